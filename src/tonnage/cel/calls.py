"""How a call is written in generated code: directly where the types are known, by dispatch where they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.cel import kinds, regex
from tonnage.cel.kinds import Type
from tonnage.cel.quantity import Quantity
from tonnage.cel.registry import dispatcher, variant
from tonnage.cel.signatures import functions
from tonnage.cel.syntax import Invocation
from tonnage.cel.values import Duration, Semver, Timestamp, UInt

REGEX = ("matches", "find", "findAll")
SINGLE = frozenset(f"_{sign}_" for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")) | {
    *("@in", "matches", "@sortByAssociatedKeys")
}
"""Functions whose signatures share one implementation: all arguments are evaluated although the first is an error."""
PANICS = {
    "list_distinct": (0, "list"),
    "_sort": (0, "list"),
    "_sortByAssociatedKeys": (1, "list"),
    "list_flatten_int": (1, "int"),
}
"""By the end of a signature: the argument that is of this type, or its cost cannot be told and the evaluation ends."""
_CLASSES: dict[Type, type] = {
    kinds.BOOL: bool,
    kinds.INT: int,
    kinds.UINT: UInt,
    kinds.DOUBLE: float,
    kinds.STRING: str,
    kinds.BYTES: bytes,
    kinds.DURATION: Duration,
    kinds.TIMESTAMP: Timestamp,
    kinds.QUANTITY: Quantity,
    kinds.SEMVER: Semver,
}


class Calls:
    """``constant`` names a constant beside the code."""

    def __init__(self, constant: Callable[[Any], str]) -> None:
        self._constant = constant

    def expression(self, node: Invocation, codes: list[str], types: list[Type], pattern: Any) -> str:
        """The call of a function with values that are no errors."""
        if node.function == "_==_":
            return self._equality(codes, types)
        if node.function == "_!=_":
            return f"{self._equality(codes, types)} is not True"
        if node.function == "matches" and type(pattern) is str:
            search = self._constant(regex.compiled(pattern).search)
            test = f"{search}({codes[0]}) is not None"
            return (
                test
                if types[0] == kinds.STRING
                else f"{test} if type({codes[0]}) is str else matched({search}, {codes[0]})"
            )
        if node.function in REGEX and type(pattern) is str and types[0] != kinds.STRING:
            codes = [f"plain({codes[0]})", *codes[1:]]
        direct = self._direct(node, codes, types)
        return direct or f"{self._constant(dispatcher(node.function))}({', '.join(codes)})"

    def _equality(self, codes: list[str], types: list[Type]) -> str:
        a, b = codes
        plain = (kinds.STRING, kinds.INT, kinds.BYTES)
        if types[0] in plain and types[0] == types[1]:
            return f"({a} == {b})"
        if types[1] == kinds.STRING:
            return f"({a} == {b} if type({a}) is str else equal({a}, {b}))"
        return f"equal({a}, {b})"

    def _direct(self, node: Invocation, codes: list[str], types: list[Type]) -> str:
        if not node.overload:
            return ""
        overload = next((o for o in functions().get(node.function, []) if o.name == node.overload), None)
        if overload is None or any(t not in _CLASSES for t in overload.arguments):
            return ""
        classes = tuple(_CLASSES[t] for t in overload.arguments)
        chosen = variant(node.function, classes)
        if chosen is None:
            return ""
        guards = [
            f"type({code}) is {self._constant(cls)}"
            for code, given, expected, cls in zip(codes, types, overload.arguments, classes, strict=True)
            if given != expected
        ]
        call = f"{self._constant(chosen)}({', '.join(codes)})"
        if not guards:
            return call
        shared = node.function in SINGLE or node.function == "size"
        other = self._constant(dispatcher(node.function)) if shared else "no_overload"
        return f"({call} if {' and '.join(guards)} else {other}({', '.join(codes)}))"
