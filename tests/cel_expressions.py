"""Random expressions on random devices: such as people write, and such as nobody should."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tonnage.cel.device import Device
from tonnage.cel.values import Semver

DRIVERS = ("gpu.example.com", "nic.example.com")
TEXTS = (
    "",
    "a",
    "A100",
    "NVIDIA A100-SXM4-40GB",
    "h100",
    "x y",
    "é",
    "gpu.example.com",
    "1.2.3",
    "10",
    "nvlink",
    "^a.*$",
)
QUANTITIES = ("0", "1", "40Gi", "1500m", "80G", "1e3", "0.5", "-2", "1Ki", "100n", "12E")
VERSIONS = ("1.2.3", "0.0.1", "1.2.3-rc.1", "10.0.0", "1.2.3+build", "2.0.0-alpha.beta")
PATTERNS = (
    "^a.*$",
    "A100",
    "[0-9]+",
    "(a|h)100",
    "x.y",
    "\\\\d+Gi?",
    "^$",
    "(?i)nvidia",
    "[^a-z]",
    "a{2,3}",
    "\\\\bA",
    "$",
)
BAD_PATTERNS = ("(", "(?=a)", "a**", "\\\\1", "[b-a]", "a{1001}", "(?<n>a)")
INTS = ("0", "1", "-1", "2", "3", "7", "40", "9223372036854775807", "-9223372036854775808")
NAMES = ("model", "index", "ok", "version", "missing", "memory", "cores", "links")


def device(draw: random.Random, *, lists: bool = False) -> dict[str, Any]:
    """A device as its slice has it, and its driver."""
    attributes: dict[str, Any] = {}
    for name in draw.sample(NAMES[:5], draw.randint(0, 5)):
        domain = draw.choice(("", "", f"{DRIVERS[0]}/", f"{DRIVERS[1]}/"))
        attributes[f"{domain}{name}"] = _attribute(draw, name)
    if lists and draw.random() < 0.6:
        kind, values = draw.choice(
            (("ints", [1, 2, 3]), ("strings", ["nvlink", "a"]), ("bools", [True]), ("versions", ["1.2.3"]))
        )
        attributes["links"] = {kind: values[: draw.randint(1, 3)]}
    capacity = {name: {"value": draw.choice(QUANTITIES)} for name in ("memory", "cores") if draw.random() < 0.7}
    made = {"driver": draw.choice(DRIVERS), "name": "d", "attributes": attributes, "capacity": capacity}
    return made | ({"allowMultipleAllocations": draw.random() < 0.5} if draw.random() < 0.5 else {})


def _attribute(draw: random.Random, name: str) -> dict[str, Any]:
    usual = {"model": "string", "index": "int", "ok": "bool", "version": "version"}.get(name)
    kind = usual if usual and draw.random() < 0.85 else draw.choice(("string", "int", "bool", "version"))
    if kind == "string":
        return {"string": draw.choice(TEXTS)}
    if kind == "int":
        return {"int": draw.choice((0, 1, 2, 3, -5, 40, 2**63 - 1))}
    return {"bool": draw.random() < 0.5} if kind == "bool" else {"version": draw.choice(VERSIONS)}


def seen(made: dict[str, Any]) -> Device:
    """The same device, as selectors here see it."""
    attributes: dict[str, Any] = {}
    for name, held in made["attributes"].items():
        ((kind, value),) = held.items()
        if kind == "version":
            value = Semver.parse(value)
        elif kind == "versions":
            value = [Semver.parse(one) for one in value]
        attributes[name] = value
    capacity = {name: held["value"] for name, held in made["capacity"].items()}
    return Device(made["driver"], attributes, capacity, made.get("allowMultipleAllocations", False))


class Expressions:
    """Draws expressions. ``wild``: how often a part is of another type than its place wants."""

    def __init__(self, draw: random.Random, wild: float = 0.06) -> None:
        self._draw = draw
        self._wild = wild
        self._names: list[tuple[str, str]] = []
        self._loops = 0

    def one(self) -> str:
        """An expression that should be a bool."""
        self._names, self._loops = [], 0
        return self._of("bool", self._draw.choice((1, 2, 2, 3, 3, 4)))

    def _of(self, kind: str, depth: int) -> str:
        if self._draw.random() < self._wild:
            kind = self._draw.choice(list(_MAKERS))
        known = [name for name, held in self._names if held == kind]
        if known and self._draw.random() < 0.5:
            return self._draw.choice(known)
        simple, compound = _MAKERS[kind]
        makers = compound if depth > 0 and (self._draw.random() < 0.85 or not simple) else simple
        return self._draw.choice(makers or simple)(self, depth - 1)

    def pick(self, *options: str) -> str:
        return self._draw.choice(options)

    def looped(self, depth: int, kind: str, head: str, body: str, extra: str = "") -> str:
        """A macro over a list, or over the names of a map."""
        over = self._of(f"list {kind}", depth)
        name = f"v{self._loops}"
        self._loops += 1
        self._names.append((name, kind))
        inside = self._of(body, depth)
        self._names.pop()
        return f"{over}.{head}({name}, {inside}{extra})"

    def bound(self, depth: int, kind: str) -> str:
        """cel.bind"""
        inner = self.pick("bool", "int", "string", "quantity", "dyn")
        value = self._of(inner, depth)
        name = f"b{self._loops}"
        self._loops += 1
        self._names.append((name, inner))
        body = self._of(kind, depth)
        self._names.pop()
        return f"cel.bind({name}, {value}, {body})"


Maker = Callable[[Expressions, int], str]


def _t(template: str) -> Maker:
    """A template: ``{bool}`` stands for a part of that type, ``{a|b}`` for one of these words."""

    def make(e: Expressions, depth: int) -> str:
        out, rest = "", template
        while "<" in rest:
            before, _, rest = rest.partition("<")
            kind, _, rest = rest.partition(">")
            out += before + (e.pick(*kind.split("|")) if "|" in kind else e._of(kind, depth))
        return (out + rest).replace(" LT ", " < ")

    return make


def _word(*words: str) -> Maker:
    return lambda e, depth: e.pick(*words)


def _quoted(*words: str) -> Maker:
    return lambda e, depth: '"' + e.pick(*words) + '"'


_DOMAIN = 'device.attributes["gpu.example.com"]'
_LOOKED = (
    *(f"{_DOMAIN}.{name}" for name in NAMES[:5]),
    'device.attributes["nic.example.com"].model',
    "device.attributes[device.driver].index",
    f'{_DOMAIN}["mod" + "el"]',
    f'{_DOMAIN}["index"]',
)
_RELATIONS = tuple(
    _t(f"<{kind}> {sign} <{kind}>")
    for kind in ("int", "string", "double", "uint", "dyn", "bool", "list int", "quantity", "semver", "duration")
    for sign in (("==", "!=") if kind in ("list int", "quantity", "semver") else ("==", "!=", "LT"))
)
_MAKERS: dict[str, tuple[tuple[Maker, ...], tuple[Maker, ...]]] = {
    "bool": (
        (_word("true", "false", "device.allowMultipleAllocations", f"{_DOMAIN}.ok", f"has({_DOMAIN}.model)"),),
        (
            *_RELATIONS,
            *(_t("<bool> && <bool>"), _t("(<bool> || <bool>)"), _t("!<bool>"), _t("(<bool> ? <bool> : <bool>)")),
            *(
                _t("(<bool> && <bool> && <bool>)"),
                _t("<string> in [<string>, <string>]"),
                _t("<dyn> in ['A100', 'h100']"),
            ),
            *(_t("<int> in [1, 2, 3]"), _t("<string> in <map>"), _t("<string>.contains(<string>)")),
            *(_t("<string>.startsWith(<string>)"), _t("<dyn>.endsWith(<string>)"), _t("<string>.matches(<pattern>)")),
            *(_t("<dyn>.matches(<pattern>)"), _t("matches(<string>, <pattern>)"), _t("<string>.matches(<string>)")),
            *(_t("<quantity>.isGreaterThan(<quantity>)"), _t("<quantity>.isLessThan(<quantity>)")),
            *(_t("<quantity>.isInteger()"), _t("isQuantity(<string>)"), _t("isSemver(<string>)")),
            *(_t("<semver>.isGreaterThan(<semver>)"), _t("<semver>.isLessThan(<semver>)"), _t("<optional>.hasValue()")),
            *(_t("<dyn>.includes(<string|int>)".replace("<string|int>", "<dyn>")), _t("has(<map>.<model|index|a>)")),
            *(_t("sets.contains(<list int>, <list int>)"), _t("sets.intersects(<list string>, <list string>)")),
            _t("<list int>.isSorted()"),
            *(lambda e, d, h=head: e.looped(d, "int", h, "bool") for head in ("all", "exists", "exists_one")),
            *(lambda e, d, h=head: e.looped(d, "string", h, "bool") for head in ("all", "exists")),
            lambda e, d: e.bound(d, "bool"),
        ),
    ),
    "int": (
        (_word(*INTS), _word(f"{_DOMAIN}.index")),
        (
            *(_t("(<int> <+|-|*> <int>)"), _t("<int> <+|-|*|/|%> <int>"), _t("-<int>"), _t("size(<string>)")),
            *(
                _t("<string>.size()"),
                _t("<list int>.size()"),
                _t("<map>.size()"),
                _t("int(<string>)"),
                _t("int(<double>)"),
            ),
            *(
                _t("int(<uint>)"),
                _t("<quantity>.asInteger()"),
                _t("<quantity>.compareTo(<quantity>)"),
                _t("sign(<quantity>)"),
            ),
            *(
                _t("<semver>.compareTo(<semver>)"),
                _t("<semver>.<major|minor|patch>()"),
                _t("<string>.indexOf(<string>)"),
            ),
            *(_t("<string>.lastIndexOf(<string>)"), _t("<list int>[<int>]"), _t("<list int>.<max|min|sum>()")),
            *(_t("(<bool> ? <int> : <int>)"), _t("<dyn>.orValue(<int>)".replace("<dyn>", "<optional>"))),
            *(_t("<list string>.indexOf(<string>)"), _t("<duration>.<getSeconds|getMinutes|getHours>()")),
            lambda e, d: e.bound(d, "int"),
        ),
    ),
    "uint": ((_word("0u", "1u", "18446744073709551615u"),), (_t("<uint> <+|-|*|/|%> <uint>"), _t("uint(<int>)"))),
    "double": (
        (_word("0.0", "1.5", "-2.25", "1e300"),),
        (
            _t("<double> <+|-|*|/> <double>"),
            _t("double(<int>)"),
            _t("<quantity>.asApproximateFloat()"),
            _t("double(<string>)"),
        ),
    ),
    "string": (
        (_quoted(*TEXTS), _word("device.driver", f"{_DOMAIN}.model")),
        (
            *(_t("<string> + <string>"), _t("<string>.<lowerAscii|upperAscii|trim>()"), _t("<dyn>.lowerAscii()")),
            *(_t("<string>.replace(<string>, <string>)"), _t("<string>.substring(<int>)"), _t("string(<int>)")),
            *(
                _t("<string>.substring(<int>, <int>)"),
                _t("<string>.charAt(<int>)"),
                _t("string(<double>)"),
                _t("string(<bool>)"),
            ),
            *(_t("<list string>.join(<string>)"), _t("<string>.find(<pattern>)"), _t("(<bool> ? <string> : <string>)")),
            *(_t("<list string>[<int>]"), _t("<string>.replace(<string>, <string>, <int>)"), _t("string(<duration>)")),
            lambda e, d: e.bound(d, "string"),
        ),
    ),
    "pattern": ((_quoted(*PATTERNS), _quoted(*PATTERNS), _quoted(*PATTERNS, *BAD_PATTERNS)), ()),
    "dyn": (
        (_word(*_LOOKED),),
        (_t("dyn(<int>)"), _t("dyn(<string>)"), _t("(<bool> ? <dyn> : <dyn>)"), _t("<map>.<a|b>")),
    ),
    "quantity": (
        (_word('device.capacity["gpu.example.com"].memory', "device.capacity[device.driver].cores"),),
        (
            *(lambda e, d: f'quantity("{e.pick(*QUANTITIES)}")', _t("<quantity>.<add|sub>(<quantity>)")),
            *(_t("<quantity>.<add|sub>(<int>)"), _t("quantity(<string>)")),
        ),
    ),
    "semver": (
        (lambda e, d: f'semver("{e.pick(*VERSIONS)}")',),
        (
            _t("semver(<string>)"),
            _t("semver(<string>, <bool>)"),
            lambda e, d: f'semver("v{e.pick("1", "1.2", "01.2")}", true)',
        ),
    ),
    "duration": (
        (_word('duration("1h")', 'duration("90s")', 'duration("1.5s")', 'duration("-1m")'),),
        (_t("<duration> + <duration>"), _t("<duration> - <duration>")),
    ),
    "optional": (
        (_word(f"{_DOMAIN}.?index", 'device.attributes[?"gpu.example.com"].?index', "optional.none()"),),
        (
            _t("optional.of(<int>)"),
            _t("<optional>.or(<optional>)"),
            _t("<list int>[?<int>]"),
            _t("<list int>.<first|last>()"),
        ),
    ),
    "map": (
        (_word(_DOMAIN, 'device.attributes["nowhere"]', '{"a": 1, "b": 2}'),),
        (_t('{"a": <int>, "b": <int>}'), _t('{"a": <string>}'), _t('{?"a": <optional>}')),
    ),
    "list int": (
        (_word("[1, 2, 3]", "[3, 1, 2, 1]", "[0]", "lists.range(4)"),),
        (
            *(_t("[<int>, <int>]"), _t("<list int> + <list int>"), _t("<list int>.<sort|reverse|distinct>()")),
            *(
                _t("<list int>.slice(<int>, <int>)"),
                _t("[?<optional>, <int>]"),
                _t("lists.range(<int>)".replace("<int>", "3")),
            ),
            lambda e, d: e.looped(d, "int", "map", "int"),
            lambda e, d: e.looped(d, "int", "filter", "bool"),
            lambda e, d: e.looped(d, "int", "sortBy", "int"),
        ),
    ),
    "list string": (
        (_word('["a", "A100"]', '["b"]', '["nvlink", "a", "h100"]'),),
        (
            *(_t("<string>.split(<string>)"), _t("[<string>, <string>]"), _t("<string>.findAll(<pattern>)")),
            *(_t("<string>.split(<string>, <int>)"), _t("<list string>.<sort|reverse|distinct>()")),
            lambda e, d: e.looped(d, "string", "map", "string"),
        ),
    ),
}
