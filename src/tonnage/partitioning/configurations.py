"""The configurations of mig-parted and of the device plugin among the ConfigMaps of a cluster, and which are in use.

A ClusterPolicy names the ConfigMap of each program, and only that one counts. Without a ClusterPolicy each ConfigMap
counts that is one of theirs without ambiguity. Source: NVIDIA/gpu-operator controllers/object_controls.go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import names
from tonnage.facts.labels import MIG_CONFIG
from tonnage.objects.base import where
from tonnage.objects.core import ConfigMap
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.objects.unknown import read_members
from tonnage.partitioning import device_plugin, documents, mig_parted
from tonnage.partitioning.device_plugin import Config
from tonnage.partitioning.documents import ConfigDocument
from tonnage.partitioning.labels import STRATEGIES
from tonnage.partitioning.mig_parted import Spec
from tonnage.partitioning.node_cuts import PLUGIN_CONFIG, Configurations

_MIG = re.compile(r"^mig-configs:", re.MULTILINE)
_VERSION = re.compile(r"^version:", re.MULTILINE)
_SECTION = re.compile(r"^(flags|sharing|resources|imex):", re.MULTILINE)
_SURELY_PLUGIN = re.compile(r"\b(timeSlicing|migStrategy):")
"""Words that make broken YAML an error rather than a file of another program."""
_DEFAULT = "spec.devicePlugin.config.default"
_STRATEGY = "spec.mig.strategy"


def read(config_maps: Iterable[ConfigMap], policies: Sequence[ClusterPolicy] = ()) -> Configurations:
    """The configurations in these ConfigMaps; those of other programs are passed over.

    Raises InputError, with file and line, for one that its program would refuse, for several ClusterPolicies, and for
    one that names a strategy or a default that does not exist. A name that means two things is among the clashes."""
    policy = policies[0] if policies else None
    problems = [_second(one, policies[0]) for one in policies[1:]]
    mig: dict[str, Spec] = {}
    plugin: dict[str, Config] = {}
    first: dict[tuple[str, str], tuple[object, Where]] = {}
    clashes: dict[tuple[str, str], Problem] = {}

    def note(label: str, name: str, content: object, at: Where) -> None:
        known, there = first.setdefault((label, name), (content, at))
        if known != content:
            clashes[label, name] = _clash(label, name, there, at)

    for one in config_maps:
        try:
            for spec in _mig_specs(one, policy):
                for name, entries in spec.configs.items():
                    note(MIG_CONFIG, name, entries, spec.where(name))
                    mig.setdefault(name, spec)
            for key, config in _plugin_configs(one, policy):
                content = (config.flags, config.resources, config.sharing, config.imex)
                note(PLUGIN_CONFIG, key, content, documents.place_of(one, key))
                plugin.setdefault(key, config)
        except InputError as error:
            problems += error.problems
    if policy is not None:
        problems += _wrong_policy(policy, plugin)
    if problems:
        raise InputError(*problems)
    return Configurations(mig, plugin, complete=True, policy=policy, clashes=clashes)


def _mig_specs(one: ConfigMap, policy: ClusterPolicy | None) -> list[Spec]:
    named = policy is None or one.name == policy.mig_config_map
    if not named or not any(_MIG.search(text) for text in one.data.values()):
        return []
    return [
        mig_parted.parse(document)
        for document in documents.inside(one)
        if isinstance(document.value, dict) and "mig-configs" in document.value
    ]


def _plugin_configs(one: ConfigMap, policy: ClusterPolicy | None) -> list[tuple[str, Config]]:
    if policy is None:
        found = _of_the_plugin(one)
    else:
        found = documents.inside(one) if one.name == policy.spec.device_plugin.config.name else []
    return [(document.key, device_plugin.parse(document)) for document in found]


def _of_the_plugin(one: ConfigMap) -> list[ConfigDocument]:
    """The documents of a ConfigMap that nobody names, if any of them is a configuration of the device plugin."""
    texts = one.data.values()
    if not any(_VERSION.search(text) and _SECTION.search(text) for text in texts):
        return []
    try:
        found = documents.inside(one)
    except InputError:
        if any(_SURELY_PLUGIN.search(text) for text in texts):
            raise
        return []
    return found if any(_is_plugins(document) for document in found) else []


def _is_plugins(document: ConfigDocument) -> bool:
    """Whether it says version v1, its sections are mappings, and one of them has a field that the plugin knows."""
    value = document.value
    if not isinstance(value, dict) or value.get("version") != "v1":
        return False
    known = {
        "flags": {flag.field.partition(".")[0] for flag in device_plugin.flags()},
        "sharing": set(read_members(device_plugin.Sharing) or ()),
        "resources": set(read_members(device_plugin.PluginResources) or ()),
        "imex": set(read_members(device_plugin.Imex) or ()),
    }
    written = {name: value[name] for name in known if name in value}
    mappings = all(isinstance(section, dict) for section in written.values())
    return mappings and any(known[name] & set(section) for name, section in written.items())


def _wrong_policy(policy: ClusterPolicy, plugin: Iterable[str]) -> Iterator[Problem]:
    strategy, config = policy.spec.mig.strategy, policy.spec.device_plugin.config
    if strategy and strategy not in STRATEGIES:
        yield from names.unknown("MIG strategy", strategy, STRATEGIES, where=where(policy, _STRATEGY)).problems
    if config.default and config.default not in plugin:
        hint = f"the ConfigMap {config.name} has to be among the manifests, with this key"
        at = where(policy, _DEFAULT)
        yield from names.unknown("device-plugin configuration", config.default, plugin, where=at, hint=hint).problems


def _second(one: ClusterPolicy, first: ClusterPolicy) -> Problem:
    message = f"a ClusterPolicy beside {first.name}: the operator follows one and ignores the others"
    return Problem(where(one, "metadata.name"), message, "keep one of them")


def _clash(label: str, name: str, one: Where, other: Where) -> Problem:
    places = f"{one.file}:{one.line} and {other.file}:{other.line}"
    message = f"configuration {name!r} is one thing in a ConfigMap and another in the next: {places}"
    return Problem(Where(field=label), message, "keep one of them, or name the ConfigMap in a ClusterPolicy")
