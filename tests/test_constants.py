"""A constant stands in one module: others import it. What only happens to be the same is listed with its reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

import pytest

from docs_outputs import REPOSITORY

LONG = 6
"""Characters of a text that say what it is of; shorter ones are words."""

Places = frozenset[str]
SECONDS = "how long each of them waits is its own choice"
OPTIONS = "the choices of a command's option, which is read without what the command does; a test compares them"
KEPT: dict[Places, str] = {
    frozenset(
        {
            "objects/base.py:DEFAULT_NAMESPACE",
            "provisioning/auto_mode.py:DEFAULT",
            "workloads/admission/chain.py:DEFAULT_ACCOUNT",
        }
    ): "a namespace, a service account and EKS Auto Mode's NodeClass have one name",
    frozenset({"facts/labels.py:GPU", "node/cdi.py:KIND"}): "a resource, and a kind of CDI devices",
    frozenset(
        {"cli/__init__.py:PROGRAM", "scheduling/policies.py:DEFAULT_POLICY"}
    ): "a program, and a policy of its own",
    frozenset(
        {
            "health/rules/autoscalers.py:MEASURED",
            "objects/api/defaults_pods.py:COUNTED",
            "objects/validate/scaledobjects.py:RESOURCES",
        }
    ): "what metrics-server measures, what limits are defaulted to, what KEDA's triggers scale on",
    frozenset({"cli/savings.py:STRATEGIES", "costs/strategies.py:STRATEGIES"}): OPTIONS,
    frozenset({"facts/spot.py:ANY", "workloads/variables.py:ANY"}): "any type and zone, any key",
    frozenset(
        {
            "cli/agent_health.py:LOOK_S",
            "cli/agent_metrics.py:LOOK_S",
            "cli/agent_mig.py:LOOK_S",
            "node/plugin_server.py:LOOK_S",
        }
    ): SECONDS,
    frozenset({"cli/mig_demands.py:MOST", "workloads/contradictions.py:MOST"}): "how many each of them reads",
    frozenset({"control/partitioner.py:SETTLE_NS", "scheduling/queue.py:SETTLE_NS"}): SECONDS,
    frozenset(
        {"objects/api/restart_rules.py:OPERATORS", "objects/validate/common.py:LISTED"}
    ): "of exit codes, and of the values of labels",
    frozenset({"hollow/running.py:RETRY_S", "kube/leases.py:RETRY_S"}): SECONDS,
    frozenset({"inference/sizing/loading.py:MEGA", "inference/sizing/warnings.py:MEGA"}): "bytes of a megabyte, and of "
    "megabits",
    frozenset(
        {"node/offers.py:MOST_SETS", "scheduling/device_choice.py:MOST_SETS"}
    ): "how many sets of devices a node's program compares, and how many the scheduler does",
}
"""Constants of several modules that have one value and stay apart, and why."""


def constants(text: str) -> dict[str, str]:
    """The constants at the top of a module that are written out there: name → value, as Python. Values that name
    others are not, nor are functions in tables, type variables and options of commands."""
    found = {}
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        plain = name.strip("_")
        if plain.isupper() and not isinstance(value, ast.Name | ast.Attribute) and not _names_others(value):
            found[plain] = ast.unparse(value)
    return found


def _names_others(value: ast.expr) -> bool:
    names = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)}
    return bool(names - {"re", "frozenset", "NS_PER_S", "float", "str", "int"})


def says_what_it_is(value: str) -> bool:
    """Whether two constants with this value are one, whatever their names: a longer text, several texts, a pattern."""
    node = ast.parse(value, mode="eval").body
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and len(node.value) >= LONG
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return sum(len(one) > 1 for one in texts) > 1 or value.startswith("re.compile")


def repeated(files: Mapping[str, str]) -> dict[Places, str]:
    """Where constants of several modules have one value that says what they are, or one value and one name."""
    by_value: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, text in sorted(files.items()):
        for name, value in constants(text).items():
            by_value[value].append((file, name))
    found = {}
    for value, places in by_value.items():
        groups = [places] if says_what_it_is(value) else _by_name(places)
        for group in groups:
            if len({file for file, _ in group}) > 1 and len(value) > 2:
                found[frozenset(f"{file}:{name}" for file, name in group)] = value
    return found


def _by_name(places: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, name in places:
        groups[name].append((file, name))
    return list(groups.values())


@pytest.mark.fuzz
def test_a_constant_stands_in_one_module() -> None:
    root = REPOSITORY / "src" / "tonnage"
    found = repeated({str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*.py")})
    strangers = [f"{value}: {sorted(places)}" for places, value in found.items() if places not in KEPT]
    assert not strangers, "import it from one of them, or list the places in KEPT with the reason"
    assert [sorted(places) for places in KEPT if places not in found] == [], "what is no longer so is no longer listed"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('ZONE = "topology.kubernetes.io/zone"', 'PLACE = "topology.kubernetes.io/zone"', True),
        ('_ZONE: str = "topology.kubernetes.io/zone"', 'ZONE = "topology.kubernetes.io/zone"', True),
        ('UP = "spot"', 'KIND = "spot"', False),
        ('SPOT = "spot"', 'SPOT = "spot"', True),
        ("LIMIT_S = 300.0", "OTHER_S = 300.0", False),
        ("LIMIT_S = 300.0", "LIMIT_S = 300.0", True),
        ("LIMIT_NS = 300 * NS_PER_S", "LIMIT_NS = 300 * NS_PER_S", True),
        ('ENDS = (".yaml", ".json")', 'SUFFIXES = (".yaml", ".json")', True),
        ('NAME = re.compile("[a-z]")', 'WORD = re.compile("[a-z]")', True),
        ('ZONE = "topology.kubernetes.io/zone"', "from a import ZONE\nPLACE = ZONE", False),
        ("BY_KIND = {'a': f, 'b': g}", "BY_KIND = {'a': f, 'b': g}", False),
        ("ONE = 1", "ONE = 1", False),
    ],
)
def test_constants_are_the_same_in_value_and_meaning(one: str, other: str, same: bool) -> None:
    assert bool(repeated({"a.py": one, "b.py": other})) is same


@pytest.mark.fuzz
def test_choices_of_options_are_those_of_what_the_commands_do() -> None:
    from tonnage.cli import savings
    from tonnage.costs import strategies

    assert savings.STRATEGIES == strategies.STRATEGIES
