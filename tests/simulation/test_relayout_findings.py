"""A policy that lets layouts follow the load, where no node lets them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tonnage.simulation import run, scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "mig-day-night"
LABEL = ', tonnage.dev/mig-relayout: "true"'


def _found(folder: Path, policy: str) -> list[tuple[str, str]]:
    made = run.set_up(scenario.load(folder), policy)
    return [(one.rule, one.where.field) for one in made.configuration.findings if one.rule == "relayout-without-nodes"]


def test_it_is_said_where_no_node_has_the_labels(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "same")
    file = tmp_path / "same" / "scenario.yaml"
    written = file.read_text()
    assert LABEL in written
    assert _found(tmp_path / "same", "relayout") == []
    file.write_text(written.replace(LABEL, ""))
    assert _found(tmp_path / "same", "relayout") == [("relayout-without-nodes", "policies.relayout.partitioning")]
    assert _found(tmp_path / "same", "static") == []
