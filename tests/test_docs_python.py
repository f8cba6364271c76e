"""`docs/reference/python.md` is the truth on what may be called from outside: names, signatures, examples."""

from __future__ import annotations

import ast
import csv
import doctest
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from docs_outputs import REPOSITORY

PAGE = (REPOSITORY / "docs/reference/python.md").read_text(encoding="utf-8")
ROOMS = (REPOSITORY / "docs/explanation/rooms.md").read_text(encoding="utf-8")
PROGRAMS = {"node", "control", "kube", "live", "apiserver", "traffic", "machines", "hollow", "cli"}
"""Rooms that are programs or parts of them, and have no functions to call from outside."""
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
}


def fences(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def stated() -> Iterator[tuple[str, str, ast.FunctionDef | None]]:
    """(module, dotted name in it, how it is written): functions, constructors and methods; None: the class itself."""
    for module, text in SECTIONS.items():
        for fence in fences(text, "python"):
            for node in ast.parse(fence).body:
                if isinstance(node, ast.ClassDef):
                    yield module, node.name, None
                    for one in node.body:
                        if isinstance(one, ast.FunctionDef):
                            yield module, f"{node.name}.{one.name}", one
                elif isinstance(node, ast.FunctionDef):
                    yield module, node.name, node


STATED = list(stated())


def the_object(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _text(annotation: Any, owner: Any, name: str) -> str:
    """An annotation as its source has it, in one way of writing."""
    if annotation is inspect.Parameter.empty:
        return ""
    if not isinstance(annotation, str):  # msgspec gives the types themselves
        of = next(one for one in owner.__mro__ if name in inspect.get_annotations(one))
        annotation = inspect.get_annotations(of)[name]
    return ast.unparse(ast.parse(annotation, mode="eval"))


def _written(node: ast.FunctionDef) -> list[tuple[str, str, str, ast.expr | None]]:
    """(name, kind, annotation, default) of the parameters on the page, without self and cls."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    rows = [(one, "plain", default) for one, default in zip(plain, defaults, strict=True)]
    rows += [(one, "named", default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [
        (one.arg, kind, ast.unparse(one.annotation) if one.annotation else "", default)
        for one, kind, default in rows
        if one.arg not in ("self", "cls")
    ]


def _signature(module: str, name: str) -> inspect.Signature:
    owner = the_object(module, name.rpartition(".")[0]) if "." in name else None
    is_constructor = name.endswith(".__init__")
    found = inspect.signature(owner if is_constructor else the_object(module, name))
    kept = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    return found.replace(parameters=kept)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str) or value == ()


def _same_default(written: ast.expr | None, value: Any, module: str) -> bool:
    """``...`` stands for what has no name and is not a plain value, such as a factory."""
    if written is None or value is inspect.Parameter.empty:
        return written is None and value is inspect.Parameter.empty
    if isinstance(written, ast.Constant) and written.value is ...:
        return not _is_plain(value)
    given = eval(ast.unparse(written), dict(vars(importlib.import_module(module))))
    return bool(given == value) and type(given) is type(value)


@pytest.mark.parametrize(
    ("module", "name", "node"),
    [row for row in STATED if row[2] is not None],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_signatures_are_those_of_the_page(module: str, name: str, node: ast.FunctionDef) -> None:
    signature = _signature(module, name)
    owner = the_object(module, name.rpartition(".")[0]) if "." in name else None
    kinds = {inspect.Parameter.KEYWORD_ONLY: "named", inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain"}
    there = [
        (one.name, kinds[one.kind], _text(one.annotation, owner, one.name)) for one in signature.parameters.values()
    ]
    written = _written(node)
    assert [(one, kind, annotation) for one, kind, annotation, _ in written] == there
    for one, _, _, default in written:
        value = signature.parameters[one].default
        shown = ast.unparse(default) if default is not None else "none"
        assert _same_default(default, value, module), f"{name}: {one} has the default {value!r}, the page says {shown}"
    if not name.endswith(".__init__"):
        assert node.returns is not None
        assert ast.unparse(node.returns) == _text(signature.return_annotation, owner, "return")


def test_classes_of_the_page_are_classes() -> None:
    classes = [(module, name) for module, name, node in STATED if node is None]
    assert len(classes) > 10
    assert all(inspect.isclass(the_object(*one)) for one in classes)


@pytest.mark.parametrize("module", [module for module, text in SECTIONS.items() if fences(text, "pycon")])
def test_examples_of_the_page_give_what_it_says(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    for number, fence in enumerate(fences(SECTIONS[module], "pycon")):
        said: list[str] = []
        test = doctest.DocTestParser().get_doctest(fence, {}, f"{module}[{number}]", "docs/reference/python.md", 0)
        assert test.examples
        assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


def test_the_ten_most_asked_for_have_examples_of_three_to_twelve_lines() -> None:
    wanted = (
        "objects.load", "scheduling.place", "scaling.hpa", "scaling.keda", "inference.index", "inference.estimate",
        "metrics.promql", "inference.memory", "inference.capacity", "partitioning.fit", "partitioning.relayout",
        "provisioning.karpenter", "simulation.run",
    )  # fmt: skip
    for module in wanted:
        (fence,) = fences(SECTIONS[f"tonnage.{module}"], "pycon")
        assert 3 <= sum(line.startswith((">>>", "...")) for line in fence.splitlines()) <= 12


def _faces() -> Iterator[str]:
    """The names in the last column of the table of rooms, but those of programs; what parts of a room show each other is
    another table."""
    for line in ROOMS.partition("### inference")[0].splitlines():
        cells = line.strip("|").split("|")
        if line.startswith("| `") and len(cells) == 3 and not PROGRAMS & set(re.findall(r"`(\w+)`", cells[0])):
            yield from re.findall(r"`([\w.]+)`", cells[2])


def test_every_public_face_of_a_room_is_on_the_page() -> None:
    names = {f"{module}.{name}" for module, name, _ in STATED} | set(SECTIONS)
    missing = [face for face in _faces() if not any(f".{name}".endswith(f".{face}") for name in names)]
    assert missing == []


def test_names_that_callers_from_outside_may_use_stay() -> None:
    """`tests/data/public_names.csv` only grows: a name there is one that somebody imports."""
    with (REPOSITORY / "tests/data/public_names.csv").open(encoding="utf-8") as file:
        recorded = [(row["module"], row["name"]) for row in csv.DictReader(file)]
    assert len(recorded) > 150
    gone = [f"{module}.{name}" for module, name in recorded if not _importable(module, name)]
    assert not gone


def _importable(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None


FORMER = re.findall(r"^\| `(tonnage[\w.]+)` \| `(\w+)` \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("former", "name"), FORMER)
def test_a_former_name_is_the_same_object(former: str, name: str) -> None:
    module, _, old = former.rpartition(".")
    assert the_object(module, old) is the_object(module, name)


def test_former_names_are_listed() -> None:
    assert len(FORMER) >= 5
