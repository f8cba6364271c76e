"""Selectors of devices, as claims and device classes have them (``cel.expression``).

    >>> selector = compile_selector('device.attributes["gpu.example.com"].model == "H100"')
    >>> selector.matches("gpu.example.com", {"model": "H100"})
    True

Source: k8s.io/dynamic-resource-allocation cel/compile.go (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tonnage.cel import costs, kinds
from tonnage.cel.bounds import cheap
from tonnage.cel.checker import Checker
from tonnage.cel.constants import ConstantFolding
from tonnage.cel.failures import Abort, CompileError, CostExceeded, Err, ErrorKind, EvaluationError
from tonnage.cel.generate import FIELDS, Generator
from tonnage.cel.kinds import ANY, BOOL, DYN, STRING, map_of
from tonnage.cel.lexer import place
from tonnage.cel.parser import Parser
from tonnage.cel.quantity import Quantity
from tonnage.cel.reads import reads
from tonnage.cel.syntax import SyntaxNode
from tonnage.cel.validators import validate
from tonnage.cel.values import Domains, Names, Semver, Value, name_of

LONGEST = 10 * 1024
"""Bytes of an expression (resource.k8s.io CELSelectorExpressionMaxLength)."""

Attribute: TypeAlias = bool | int | str | Semver | Sequence[bool] | Sequence[int] | Sequence[str] | Sequence[Semver]
"""Of a device. Lists only where the feature DRAListTypeAttributes is on."""


class Device:
    """What an expression sees of a device. It is made once and looked at by many selectors.

    ``attributes`` and ``capacity`` by qualified name: ``domain/name``, or ``name`` of the driver's own domain.
    Capacities are quantities, or quantities as they are written; raises ValueError for what is none."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Attribute] | None = None,
        capacity: Mapping[str, Quantity | str] | None = None,
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.attributes = Domains()
        self.capacity = Domains()
        self.allow_multiple_allocations = allow_multiple_allocations
        for name, value in (attributes or {}).items():
            self._named(self.attributes, name)[_key(name)] = list(value) if isinstance(value, list | tuple) else value
        for name, amount in (capacity or {}).items():
            parsed = Quantity.parse(amount) if isinstance(amount, str) else amount
            self._named(self.capacity, name)[_key(name)] = parsed

    def _named(self, domains: Domains, name: str) -> Names:
        domain, separator, _ = name.partition("/")
        return domains.setdefault(domain if separator else self.driver, Names())

    @property
    def whole(self) -> dict[str, Value]:
        """All of it as one value."""
        return {field: getattr(self, name) for field, name in FIELDS.items()}


def _key(name: str) -> str:
    return name.partition("/")[2] or name


_ATTRIBUTES = {lists: map_of(STRING, map_of(STRING, DYN if lists else ANY)) for lists in (False, True)}
_Run = Callable[[Device, int], Any]


class CompiledSelector:
    """A compiled expression. ``reads``: what it looks at of a device, where that is known beforehand."""

    def __init__(self, text: str, root: SyntaxNode, constants: ConstantFolding) -> None:
        self.text = text
        self.reads = reads(root, constants)
        self._cheap = cheap(root)
        self._root, self._constants = root, constants
        self._plain = _compiled(text, root, constants, counted=False) if self._cheap else None
        self._counting = None if self._cheap else _compiled(text, root, constants, counted=True)

    def matches(
        self,
        driver: str,
        attributes: Mapping[str, Attribute] | None = None,
        capacity: Mapping[str, Quantity | str] | None = None,
        allow_multiple_allocations: bool = False,
    ) -> bool:
        """Whether a device with these attributes and capacities is selected.

        Raises EvaluationError where the expression has no answer, CostExceeded where it costs too much."""
        return self.selects(Device(driver, attributes, capacity, allow_multiple_allocations))

    def selects(self, device: Device) -> bool:
        """Likewise, for a device that many selectors look at."""
        if self._plain is None:
            return self.evaluate(device)[0]
        try:
            value = self._plain(device, 0)
        except Abort as abort:
            raise _failed(abort) from None
        if value is True or value is False:
            return bool(value)
        raise _refused(value)

    def evaluate(self, device: Device) -> tuple[bool, int]:
        """Whether it is selected, and what the evaluation cost in units. Raises as ``matches`` does."""
        value, cost = self._counted(device)
        if cost > costs.LIMIT:
            raise CostExceeded(costs.LIMIT)
        if value is True or value is False:
            return value, cost
        raise _refused(value)

    def cost(self, device: Device) -> int:
        """What the evaluation costs, whatever comes of it; one more than the limit when it costs too much."""
        try:
            return min(self._counted(device)[1], costs.LIMIT + 1)
        except EvaluationError:
            return costs.LIMIT + 1

    def _counted(self, device: Device) -> tuple[Value, int]:
        if self._counting is None:
            self._counting = _compiled(self.text, self._root, self._constants, counted=True)
        try:
            value, cost = self._counting(device, 0)
        except Abort as abort:
            raise _failed(abort) from None
        return value, int(cost)


def _failed(abort: Abort) -> EvaluationError:
    if abort.kind is ErrorKind.COST:
        return CostExceeded(costs.LIMIT)
    return EvaluationError(abort.kind.value, "a value cannot be looked up in a list of constants, or sorted")


def _refused(value: Value) -> EvaluationError:
    if type(value) is not Err:
        return EvaluationError(ErrorKind.RESULT.value, f"the expression gives a {name_of(value)}, expected a bool")
    if value.kind is ErrorKind.COST:
        return CostExceeded(costs.LIMIT)
    guard = "test with has() or in before you look it up" if value.kind is ErrorKind.NO_KEY else ""
    return EvaluationError(value.kind.value, value.text, guard)


def compile_selector(text: str, *, list_attributes: bool = False) -> CompiledSelector:
    """A selector of devices. Raises CompileError, with the place in the text, for what Kubernetes would not store.

    ``list_attributes``: the feature DRAListTypeAttributes, by which attributes may be lists."""
    if len(text.encode()) > LONGEST:
        raise CompileError("too long", f"the expression has more than {LONGEST} bytes")
    root = Parser(text).parse()
    attributes = _ATTRIBUTES[list_attributes]
    fields = {
        "driver": STRING,
        "attributes": attributes,
        "capacity": map_of(STRING, map_of(STRING, kinds.QUANTITY)),
        "allowMultipleAllocations": BOOL,
    }
    checker = Checker(text, {"device": kinds.DEVICE}, {kinds.DEVICE: fields})
    result = checker.check(root)
    if result not in (BOOL, ANY) and not (list_attributes and result == DYN):
        raise CompileError("result type", f"must evaluate to bool or the unknown type, not {result}")
    constants = ConstantFolding(checker.resolved, checker.invalid)
    validate(root, constants, lambda node, kind, message: CompileError(kind, message, *place(text, node.at)))
    return CompiledSelector(text, root, constants)


def _compiled(text: str, root: SyntaxNode, constants: ConstantFolding, *, counted: bool) -> _Run:
    generator = Generator(constants, counted=counted)
    code = generator.code(root)
    try:
        exec(compile(code, "<selector>", "exec"), generator.names)
    except (SyntaxError, RecursionError, MemoryError):
        raise CompileError("nesting", f"nested too deeply: {text[:40]}…") from None
    run: _Run = generator.names["selector"]
    return run
