"""NVIDIA_REQUIRE_* expressions: ``cuda>=12.4 brand=tesla,driver>=470,driver<471``.

A space is OR, a comma is AND and binds tighter. Keys: ``cuda`` (the version that the driver reports), ``driver``,
``arch`` (compute capability) and ``brand``, in any letter case; operators ``=  !=  <  <=  >  >=``, for brand the first
two only. Terms are read from the left and no further than the answer needs, so a fault behind it goes unseen.
Source: NVIDIA/libnvidia-container src/cli/dsl.c and configure.c; the reading of NVIDIA/nvidia-container-toolkit
internal/requirements, which skips unknown keys, differs on faulty expressions only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from tonnage.cuda_fit.host import Host
from tonnage.errors import InputError
from tonnage.facts import cuda as facts
from tonnage.facts.cuda import Version

KEYS = ("cuda", "driver", "arch", "brand")
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RULE = re.compile(r"(?P<key>[^<>=!]+)(?P<operator>[<>=!]++)(?P<value>.+)", re.DOTALL)
_NUMBERS = re.compile(r"[0-9]{1,18}(\.+[0-9]{1,18})*\.*")


class RequireCondition(Struct, frozen=True):
    """One condition. ``problem``: why it cannot be evaluated, empty where it can."""

    written: str
    key: str = ""
    operator: str = ""
    value: str = ""
    version: Version = ()
    problem: str = ""


class RequirementResult(Struct, frozen=True):
    """``holds``: None where it depends on what is not known of the node. ``invalid``: the rule that was reached and
    cannot be evaluated: the container does not start then."""

    holds: bool | None
    invalid: RequireCondition | None = None


@lru_cache(maxsize=1024)
def parse(expression: str) -> tuple[tuple[RequireCondition, ...], ...]:
    """The rules of each term, in order, without empty ones; a term of commas alone has none. Faulty rules carry their
    problem."""
    terms = (term for term in expression.split(" ") if term)
    return tuple(tuple(_rule(text) for text in term.split(",") if text) for term in terms)


def parse_strictly(expression: str, field: str) -> tuple[tuple[RequireCondition, ...], ...]:
    """The same for an expression that a user types: raises InputError with the first faulty rule."""
    terms = parse(expression)
    for rule in (rule for rules in terms for rule in rules):
        problem = rule.problem or _mistyped(rule)
        if problem:
            hint = "a condition is like cuda>=12.4, driver<551, arch>=8.0 or brand=tesla; a space is OR, a comma AND"
            raise InputError.at(f"{rule.written!r}: {problem}", field=field, hint=hint)
    return terms


def _mistyped(rule: RequireCondition) -> str:
    """What a container would start with and nobody means: a version with a point too many."""
    odd = bool(rule.version) and re.fullmatch(r"[0-9]+(\.[0-9]+)*", rule.value) is None
    return f"{rule.value!r} is not a version" if odd else ""


def evaluate(expression: str, host: Host) -> RequirementResult:
    """Whether the expression holds on the node; an empty one does. None where possible brands differ about it."""
    found = [_evaluate(expression, replace(host, brands=frozenset((one,)))) for one in sorted(host.brands)]
    if not found:
        return _evaluate(expression, host)
    return found[0] if all(one.holds is found[0].holds for one in found) else RequirementResult(None)


def _evaluate(expression: str, host: Host) -> RequirementResult:
    terms = parse(expression)
    unknown = False
    for number, rules in enumerate(terms):
        if not rules:  # the C code stops at commas alone, with the answer that it has
            return RequirementResult(None if unknown else number == 0)
        term: bool | None = True
        for rule in rules:
            if rule.problem:
                open_ = unknown or term is None
                return RequirementResult(None) if open_ else RequirementResult(False, rule)
            found = _holds(rule, host)
            if found is False:
                term = False
                break
            term = None if found is None else term
        if term:
            return RequirementResult(True)
        unknown |= term is None
    return RequirementResult(None if unknown else not terms)


def _rule(text: str) -> RequireCondition:
    match = _RULE.fullmatch(text)
    if match is None:
        return RequireCondition(text, problem="expected a key, an operator and a value")
    key, sign, value = match["key"].lower(), match["operator"], match["value"]
    sign = "!=" if sign == "!" else sign  # the C code compares as many characters as stand there
    if sign not in _COMPARE:
        return RequireCondition(text, problem=f"no operator {sign!r}; there are {', '.join(_COMPARE)}")
    if key not in KEYS:
        return RequireCondition(text, problem=f"no key {match['key']!r}; there are {', '.join(KEYS)}")
    if key == "brand":
        problem = "" if sign in ("=", "!=") else "a brand can be equal (=) or not (!=) only"
        return RequireCondition(text, key, sign, value.lower(), problem=problem)
    if not _NUMBERS.fullmatch(value):
        return RequireCondition(text, problem=f"{value!r} is not a version")
    return RequireCondition(text, key, sign, value, tuple(int(part) for part in value.split(".") if part))


def _holds(rule: RequireCondition, host: Host) -> bool | None:
    if rule.key == "brand":
        return (rule.value in host.brands) == (rule.operator == "=") if host.brands else None
    version = {"cuda": host.cuda, "driver": host.driver, "arch": host.arch}[rule.key]
    if version is None:
        return _newer(rule, host)
    length = max(len(version), len(rule.version))
    pad = (0,) * length
    return _COMPARE[rule.operator]((version + pad)[:length], (rule.version + pad)[:length])


def _newer(rule: RequireCondition, host: Host) -> bool | None:
    """A driver branch that is newer than all known ones runs no less than the newest known CUDA version."""
    newest = facts.toolkits()[0].cuda
    if rule.key != "cuda" or not host.is_newer or facts.at_least(rule.version, newest):
        return None
    return rule.operator in (">=", ">", "!=")
