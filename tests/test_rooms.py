"""The picture of the rooms is that of the imports, and no module imports itself by way of others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs_outputs import REPOSITORY
from scripts import rooms

PAGE = rooms.PAGE.read_text(encoding="utf-8")


@pytest.mark.fuzz
def test_the_picture_the_contracts_and_the_imports_are_the_same() -> None:
    assert rooms.problems() == []


def test_the_picture_is_read_with_all_its_rooms() -> None:
    layers = rooms.drawn(PAGE)[""]
    assert layers[0] == {"cli"} and {"scheduling", "provisioning", "inference", "costs"} in layers
    assert {"errors", "units", "highs", "rng"} == layers[-1]
    packages = {path.parent.name for path in (REPOSITORY / "src/tonnage").glob("*/__init__.py")}
    assert packages <= {name for layer in layers for name in layer}


def test_a_room_has_a_picture_of_its_parts_below_its_heading() -> None:
    parts = [name for layer in rooms.drawn(PAGE)["inference"] for name in layer]
    inside = {path.stem for path in (REPOSITORY / "src/tonnage/inference").glob("[a-z]*") if path.name != "data"}
    assert sorted(parts) == sorted(inside)


def test_every_package_has_a_row_that_says_what_it_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("### inference")[0], flags=re.MULTILINE)
    packages = sorted(path.parent.name for path in (REPOSITORY / "src/tonnage").glob("*/__init__.py"))
    assert [name for name in packages if rows.count(name) != 1] == []


def test_findings_of_a_scenario_are_those_that_need_simulated_machines_or_a_run() -> None:
    """Others stand in the lowest room that knows what they need (ADR 0023)."""
    known = rooms.modules(REPOSITORY / "src")
    findings = {one for one in known if one.startswith("tonnage.simulation.findings.")}
    needed = {name: {rooms.room(one) for one in rooms.imports_of(name, known) - findings} for name in findings}
    assert len(needed) > 3
    assert [name for name, of in needed.items() if not of & {"machines", "simulation"}] == []


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
        ({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"b"}}, [["a", "b", "c", "d"]]),
    ],
    ids=["line", "diamond", "two", "three", "two circles", "joined"],
)
def test_circles_are_found(graph: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert rooms.circles(graph) == expected


def _tree(folder: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        path = folder / "tonnage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    (folder / "tonnage/__init__.py").touch()
    return rooms.imports(rooms.modules(folder))


@pytest.mark.parametrize(
    "text",
    [
        "import tonnage.low.b\n",
        "from tonnage.low.b import x\n",
        "from tonnage.low import b\n",
        "from .b import x\n",
        "from . import b\n",
        "from ..low import b as c\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tonnage.low.b import X\n",
        "def f():\n    from tonnage.low import b\n",
    ],
)
def test_every_way_to_import_counts(text: str, tmp_path: Path) -> None:
    found = _tree(tmp_path, {"low/a.py": text, "low/b.py": "from tonnage.low.a import y\n"})
    assert found["tonnage.low.a"] == {"tonnage.low.b"}
    assert rooms.circles(found) == [["tonnage.low.a", "tonnage.low.b"]]


def test_an_import_of_a_room_above_or_beside_is_named(tmp_path: Path) -> None:
    files = {
        "high/a.py": "from tonnage.low import b\n",
        "low/b.py": "def late():\n    import tonnage.high.a\n",
        "side/c.py": "from tonnage.low.b import late\n",
    }
    found = _tree(tmp_path, files)
    assert rooms.upward(found, [{"high"}, {"low", "side"}]) == [
        "tonnage.low.b → tonnage.high.a",
        "tonnage.side.c → tonnage.low.b",
    ]
    assert rooms.upward(found, [{"high"}, {"side"}, {"low"}]) == ["tonnage.low.b → tonnage.high.a"]


def test_a_part_of_a_room_imports_what_is_drawn_below_it(tmp_path: Path) -> None:
    files = {
        "low/a.py": "from tonnage.low.deep.b import x\nfrom tonnage.high.top import y\n",
        "low/deep/b.py": "import tonnage.low.a\n",
        "high/top.py": "from tonnage.low.deep import b\n",
    }
    found = _tree(tmp_path, files)
    assert rooms.upward(found, [{"a"}, {"deep"}], "low") == ["tonnage.low.deep.b → tonnage.low.a"]
    assert rooms.upward(found, [{"a", "deep"}], "low") == [
        "tonnage.low.a → tonnage.low.deep.b",
        "tonnage.low.deep.b → tonnage.low.a",
    ]
    page = "```text\nhigh  above\nlow   below\n```\n### low\n```text\na     first\nb c   second\n```\n"
    assert rooms.drawn(page) == {"": [{"high"}, {"low"}], "low": [{"a"}, {"b", "c"}]}
    assert [*rooms.misdrawn(found, rooms.drawn(page)["low"], "low")] == [
        "rooms.md: deep is drawn 0 times, expected once",
        "rooms.md: b is drawn, and src/tonnage/low has no such room",
        "rooms.md: c is drawn, and src/tonnage/low has no such room",
    ]


def test_a_room_that_is_not_drawn_drawn_twice_or_drawn_elsewhere_is_named(tmp_path: Path) -> None:
    _tree(tmp_path, {"high/a.py": "", "low/b.py": "", "new/c.py": ""})
    page = tmp_path / rooms.PAGE.relative_to(rooms.ROOT)
    page.parent.mkdir(parents=True)
    page.write_text("```text\nhigh       what is above\nlow  high  below\ngone       was here\n```\n", encoding="utf-8")
    contracts = "[importlinter:contract:layers]\nlayers =\n    tonnage.low\n    tonnage.high\n"
    (tmp_path / ".importlinter").write_text(contracts, encoding="utf-8")
    (tmp_path / "tonnage").rename(tmp_path / "moved")
    (tmp_path / "src").mkdir()
    (tmp_path / "moved").rename(tmp_path / "src/tonnage")
    assert rooms.problems(tmp_path) == [
        "rooms.md: high is drawn 2 times, expected once",
        "rooms.md: new is drawn 0 times, expected once",
        "rooms.md: gone is drawn, and src/tonnage has no such room",
        "rooms.md draws other layers than .importlinter: make them the same",
    ]
