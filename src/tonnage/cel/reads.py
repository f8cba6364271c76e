"""Which attributes and capacities of a device an expression looks at. What it says is the same of devices that have
those alike."""

from __future__ import annotations

from typing import NamedTuple

from tonnage.cel.constants import NOT_CONSTANT, ConstantFolding
from tonnage.cel.generate import FIELDS, LOOKUPS
from tonnage.cel.syntax import Fold, Ident, Invocation, Select, SyntaxNode
from tonnage.cel.validators import children

_DEVICE = "device"

QualifiedName = tuple[str, str]
"""Domain and name."""


class Reads(NamedTuple):
    """What is looked at beside the driver and whether the device can be shared: by domain and name, sorted."""

    attributes: tuple[QualifiedName, ...]
    capacity: tuple[QualifiedName, ...]


class _Wide(Exception):
    """Something is looked at whole: a domain, all attributes, the device."""


def reads(root: SyntaxNode, constants: ConstantFolding) -> Reads | None:
    """What the expression looks at; None: it cannot be told beforehand, such as where it goes through all names."""
    found: dict[str, set[QualifiedName]] = {"attributes": set(), "capacity": set()}
    waiting = [root]
    try:
        while waiting:
            waiting += _looked_at(waiting.pop(), constants, found)
    except _Wide:
        return None
    return Reads(tuple(sorted(found["attributes"])), tuple(sorted(found["capacity"])))


def _looked_at(node: SyntaxNode, constants: ConstantFolding, found: dict[str, set[QualifiedName]]) -> list[SyntaxNode]:
    """Note what a node looks at; the parts that are to be gone through yet."""
    if isinstance(node, Fold) and _DEVICE in (node.variable, node.second, node.accumulator):
        raise _Wide
    if isinstance(node, Invocation) and node.function == "@in":
        name, holder = node.operands
        keys, rest, of_device = _keys(holder, constants)
        key = constants.of(name, calls=False)
        if of_device and key is not NOT_CONSTANT:
            _note([*keys, key], found)
            return rest
        return [name, holder]
    keys, rest, of_device = _keys(node, constants)
    if not of_device:
        return children(node)
    _note(keys, found)
    return rest


def _keys(node: SyntaxNode, constants: ConstantFolding) -> tuple[list[object], list[SyntaxNode], bool]:
    """Of look-ups one after another, such as `device.attributes["d"].?n`: the keys, what computes some of them, and
    whether they start at the device."""
    keys: list[object] = []
    computed: list[SyntaxNode] = []
    while True:
        if isinstance(node, Select) and node.name:
            keys.append(node.name)
            node = node.operand
        elif isinstance(node, Invocation) and node.function in LOOKUPS:
            key = node.arguments[1]
            keys.append(constants.of(key, calls=False))
            if keys[-1] is NOT_CONSTANT:
                computed.append(key)
            node = node.arguments[0]
        else:
            break
    of_device = isinstance(node, Ident) and node.constant is None and node.name.removeprefix(".") == _DEVICE
    return keys[::-1], computed, of_device


def _note(keys: list[object], found: dict[str, set[QualifiedName]]) -> None:
    if not keys or keys[0] not in FIELDS:
        raise _Wide
    names = found.get(str(keys[0]))
    if names is None:
        return
    if len(keys) < 3 or type(keys[1]) is not str or type(keys[2]) is not str:
        raise _Wide
    names.add((keys[1], keys[2]))
