"""Sets of manifests with one cause each why nothing serves, and the change that mends them.

``sets/*.yaml`` list them. Each starts from a base (``bases/NAME.yaml`` and ``bases/NAME-scenario.yaml``) and says what to
``remove`` (Kind/name), ``add`` (objects) and ``edit`` (per Kind/name: path, with numbers for list indexes, to value; null
removes the field; ``Scenario`` is the scenario); ``scenario: false`` leaves the base's scenario out. ``expect``: the rule, the stage of life, a text of the line that is
named (``at``), and what kubectl shows (``reason``). ``fix``: the same three again, after which all is well. Without
``expect`` the set is a good one, a near miss of a broken set.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml_text

HERE = Path(__file__).parent
PROFILE = HERE / "bases/profile.yaml"
Json = dict[str, Any]


@dataclass(frozen=True)
class BrokenSet:
    """One of them, as listed."""

    file: str
    listed: Json

    @property
    def name(self) -> str:
        return str(self.listed["name"])

    @property
    def expect(self) -> Json | None:
        """The cause; None of a good set."""
        return self.listed.get("expect")

    def parts(self, *, fixed: bool = False) -> tuple[list[Json], Json]:
        """Its objects and its scenario, which is empty where it has none."""
        objects, scenario = _base(self.listed.get("base", "serving"))
        scenario = {} if self.listed.get("scenario") is False else scenario
        _change(objects, scenario, self.listed)
        if fixed:
            _change(objects, scenario, self.listed["fix"])
        return objects, scenario

    def write(self, folder: Path, *, fixed: bool = False) -> Path:
        """The set as ``manifests/`` and ``scenario.yaml`` in the folder, which is returned."""
        objects, scenario = self.parts(fixed=fixed)
        (folder / "manifests").mkdir(parents=True)
        text = yaml_text.dump_all(objects, sort_keys=False, width=10**6)
        (folder / "manifests/objects.yaml").write_text(text)
        if scenario:
            (folder / "scenario.yaml").write_text(yaml_text.dump(scenario, sort_keys=False))
            shutil.copy(PROFILE, folder / "profile.yaml")
        return folder


@cache
def all_sets() -> tuple[BrokenSet, ...]:
    """Every set, by file and in the order of the file."""
    return tuple(
        BrokenSet(file.stem, one) for file in sorted((HERE / "sets").glob("*.yaml")) for one in _load(file) or ()
    )


def broken() -> list[BrokenSet]:
    """Those of which nothing serves."""
    return [one for one in all_sets() if one.expect]


def good() -> list[BrokenSet]:
    """Those that are well as they are."""
    return [one for one in all_sets() if not one.expect]


@cache
def _load(file: Path) -> Any:
    return yaml_text.load(file.read_text())


def _base(name: str) -> tuple[list[Json], Json]:
    """A base of one's own to change."""
    return copy.deepcopy(_read_base(name))


@cache
def _read_base(name: str) -> tuple[list[Json], Json]:
    objects = yaml_text.load_all((HERE / f"bases/{name}.yaml").read_text())
    scenario = HERE / f"bases/{name}-scenario.yaml"
    return objects, yaml_text.load(scenario.read_text()) if scenario.exists() else {}


def _change(objects: list[Json], scenario: Json, change: Mapping[str, Any]) -> None:
    change = copy.deepcopy(dict(change))
    for key in change.get("remove", ()):
        objects.remove(_find(objects, key))
    objects += change.get("add", ())
    for key, edits in change.get("edit", {}).items():
        target = scenario if key == "Scenario" else _find(objects, key)
        for path, value in edits.items():
            _set(target, path.split("."), value)


def _find(objects: list[Json], key: str) -> Json:
    kind, _, name = key.partition("/")
    return next(one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))


def _set(target: Any, path: list[str], value: Any) -> None:
    """Set a field; a path may escape dots of a key as ``~``."""
    for step in path[:-1]:
        key = step.replace("~", ".")
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    last = path[-1].replace("~", ".")
    if isinstance(target, list):
        target[int(last) : int(last) + 1] = [] if value is None else [value]
    elif value is None:
        target.pop(last, None)
    else:
        target[last] = value
