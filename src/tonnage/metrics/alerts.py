"""What an alert of a PrometheusRule will say, and never say: its expression, before it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError
from tonnage.facts import metric_names
from tonnage.metrics.syntax import (
    COMPARISONS,
    Aggregate,
    Binary,
    Call,
    Negate,
    Node,
    Number,
    Selector,
    Subquery,
    UnsupportedQuery,
    parse,
    walk,
)
from tonnage.objects.base import where
from tonnage.objects.monitoring import PrometheusRule

_DEVICE = frozenset({"gpu", "UUID", "device", "pci_bus_id", "pod", "exported_pod", "Hostname", "instance", "node"})
"""Labels that tell GPUs, or the hosts of GPUs, from each other."""
_FREE_OF = {
    "DCGM_FI_DEV_FB_USED": ("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"),
    "dcgm_fb_used": ("dcgm_fb_free",),
    "nvidia_smi_memory_used_bytes": ("nvidia_smi_memory_free_bytes", "nvidia_smi_memory_reserved_bytes"),
}
"""What is used, the rest of the same whole, and further parts of it."""


def analyse(rule: PrometheusRule) -> Iterator[Finding]:
    """The findings about the alerts of a PrometheusRule, in their order. Expressions with functions that are not
    evaluated here are passed over."""
    for number, group in enumerate(rule.spec.groups):
        for position, one in enumerate(group.rules):
            if not one.alert:
                continue
            at = rule, f"spec.groups[{number}].rules[{position}].expr", one.alert
            try:
                root = parse(str(one.expr)).root
            except UnsupportedQuery:
                continue
            except InputError as error:
                yield _finding(at, "alert-expression-invalid", "error", error.problems[0].message)
                continue
            for compared in (*_comparisons(root), *_multiples(root)):
                for ratio in _ratios(compared.value):
                    yield _finding(at, "alert-used-by-free", "error", _of_ratio(ratio, compared))
                average = _average(compared.value)
                if average is not None:
                    yield _finding(at, "alert-averages-over-all", "warning", _of_average(average, compared))


def _finding(at: tuple[PrometheusRule, str, str], found: str, severity: str, text: str) -> Finding:
    rule, path, alert = at
    ref = Ref("PrometheusRule", rule.name, rule.namespace)
    return Finding(found, severity, ref, where(rule, path), f"alert {alert}: {text}")


class _Compared(Struct, frozen=True):
    """``value op limit``, whichever side it was written on."""

    value: Node
    op: str
    limit: float


_TURNED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def _comparisons(root: Node) -> Iterator[_Compared]:
    for node in walk(root):
        if isinstance(node, Binary) and node.op in COMPARISONS:
            if (limit := _number(node.rhs)) is not None:
                yield _Compared(node.lhs, node.op, limit)
            elif (limit := _number(node.lhs)) is not None:
                yield _Compared(node.rhs, _TURNED.get(node.op, node.op), limit)


def _multiples(root: Node) -> Iterator[_Compared]:
    """``used > factor * free`` as ``used / free > factor``; without a factor nobody meant a share."""
    for node in walk(root):
        if isinstance(node, Binary) and node.op in COMPARISONS:
            for one, other, op in ((node.lhs, node.rhs, node.op), (node.rhs, node.lhs, _TURNED.get(node.op, node.op))):
                used = _only_metric(one)
                if used in _FREE_OF and _only_metric(other) == _FREE_OF[used][0] and _scale(one) != _scale(other):
                    yield _Compared(Binary("/", one, other), op, 1.0)


def _number(node: Node) -> float | None:
    """The value of an expression of numbers alone."""
    match node:
        case Number(number):
            return number
        case Negate(expr):
            positive = _number(expr)
            return None if positive is None else -positive
        case Binary(op, lhs, rhs) if op in "+-*/":
            left, right = _number(lhs), _number(rhs)
            if left is None or right is None or (op == "/" and not right):
                return None
            return {"+": left + right, "-": left - right, "*": left * right}[op] if op != "/" else left / right
    return None


# ---- used by free ----


class _Ratio(Struct, frozen=True):
    """``used / free``, times ``factor`` in the expression."""

    used: str
    free: str
    factor: float


def _ratios(node: Node, factor: float = 1.0) -> Iterator[_Ratio]:
    """Ratios that an expression is, but for factors and what is aggregated over."""
    match node:
        case Binary("/", lhs, rhs):
            used, free = _only_metric(lhs), _only_metric(rhs)
            if used in _FREE_OF and free == _FREE_OF[used][0]:
                yield _Ratio(used, free, factor * _scale(lhs) / _scale(rhs))
            elif (number := _number(rhs)) is not None and number:
                yield from _ratios(lhs, factor / number)
        case Binary("*", lhs, rhs):
            for one, other in ((lhs, rhs), (rhs, lhs)):
                if (number := _number(other)) is not None:
                    yield from _ratios(one, factor * number)
        case Aggregate(_, expr) | Subquery(expr):
            yield from _ratios(expr, factor)
        case Call(_, args):
            for arg in args:
                yield from _ratios(arg, factor)


def _only_metric(node: Node) -> str:
    """The metric of an expression that adds nothing to it; empty for any other."""
    if any(isinstance(one, Binary) and one.op in "+-" for one in walk(node)):
        return ""
    names = {one.name for one in walk(node) if isinstance(one, Selector)}
    return names.pop() if len(names) == 1 else ""


def _scale(node: Node) -> float:
    """By what number the metric of an expression is multiplied."""
    match node:
        case Binary("*", lhs, rhs):
            left, right = _number(lhs), _number(rhs)
            return (left if left is not None else _scale(lhs)) * (right if right is not None else _scale(rhs))
        case Binary("/", lhs, rhs):
            divisor = _number(rhs)
            return _scale(lhs) / divisor if divisor else 1.0
        case Aggregate(_, expr):
            return _scale(expr)
    return 1.0


def _of_ratio(ratio: _Ratio, compared: _Compared) -> str:
    whole = " + ".join((ratio.used, *_FREE_OF[ratio.used]))
    limit = compared.limit / ratio.factor if ratio.factor else 0.0
    share = f"{limit / (1 + limit):.0%} are used" if limit > 0 else "any"
    turns = "from" if compared.op in (">", ">=") else "below" if compared.op in ("<", "<=") else "at"
    return f"{ratio.used} / {ratio.free} is used by free: it fires {turns} where {share}; divide by ({whole})"


# ---- an average over everything ----


def _average(node: Node) -> str | None:
    """The metric whose average over all GPUs an expression is, but for factors; None for any other."""
    match node:
        case Aggregate("avg", expr, labels, without):
            return None if without or _DEVICE & set(labels) else _of_many(expr)
        case Binary("/", Aggregate("sum", total, (), False), Aggregate("count", number, (), False)):
            name = _of_many(total)
            return name if name is not None and name == _of_many(number) else None
        case Binary("*" | "/", lhs, rhs):
            if _number(rhs) is not None:
                return _average(lhs)
            return _average(rhs) if _number(lhs) is not None else None
        case Aggregate(_, expr):
            return _average(expr)
    return None


def _of_many(node: Node) -> str | None:
    """The metric of GPUs in an expression that selects more than one of them; None for any other."""
    selectors = [one for one in walk(node) if isinstance(one, Selector)]
    if len({one.name for one in selectors}) != 1 or any(isinstance(one, Aggregate) for one in walk(node)):
        return None
    name = selectors[0].name
    metric = metric_names.find(name)
    if metric is None or metric.exporter != "dcgm-exporter":
        return None
    one_of_them = {"gpu", "UUID", "device", "pci_bus_id"}
    chosen = {matcher.label for one in selectors for matcher in one.matchers if matcher.op.value == "="}
    return None if one_of_them & chosen else name


def _of_average(metric: str, compared: _Compared) -> str:
    better = "max" if compared.op in (">", ">=") else "min"
    return (
        f"the average of {metric} over all GPUs: one that is {'over' if better == 'max' else 'under'} the limit among"
        f" others that are not raises nothing, and no label says which; compare each GPU ({metric} {compared.op}"
        f" {compared.limit:g}), or avg by (Hostname)"
    )
