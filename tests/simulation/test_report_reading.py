"""What people look for in a report: each policy, the SLO's name beside its line, and what has no effect under which."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import dump, in_frames, needs_chromium, root
from result_builder import build

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.simulation.report import formats, render
from tonnage.simulation.result import NotRunning, Result

ASSETS = Path(formats.__file__).parent / "assets"
NODE = shutil.which("node")
MANY = [f"policy-number-{number}-with-a-long-name" for number in range(9)]
EACH_POLICY = """(page, width) => {
  return { width, error: page.documentElement.dataset.error ?? null, reached: [...page.querySelectorAll('#switch button')].map((button) => {
    button.scrollIntoView({ behavior: 'instant', block: 'center', inline: 'center' });
    const box = button.getBoundingClientRect();
    const inside = box.left >= -1 && box.right <= width + 1;
    const there = page.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === button;
    button.click();
    return inside && there ? page.getElementById('run-heading').textContent : `${button.textContent} is out of reach`;
  }) };
}"""


@pytest.mark.peer
@needs_chromium
def test_each_of_many_policies_can_be_chosen_at_any_width(tmp_path: Path) -> None:
    page = render([_of(name, []) for name in MANY])
    for one in in_frames(tmp_path, [(390, page), (1280, page)], EACH_POLICY):
        assert one == {"width": one["width"], "error": None, "reached": MANY}


@pytest.mark.peer
@needs_chromium
def test_the_name_of_the_slo_meets_no_curve(tmp_path: Path) -> None:
    dom = dump(tmp_path, render([build("keda+karpenter"), build("static")]))
    assert "data-error" not in root(dom)
    met = re.findall(r'data-limit-met="(\d+)"', dom)
    assert len(met) >= 4 and set(met) == {"0"}


@pytest.mark.peer
@needs_chromium
def test_what_has_no_effect_names_each_policy_once(tmp_path: Path) -> None:
    twice = [_no_effect(4), _no_effect(9)]
    dom = dump(tmp_path, render([_of("one", twice), _of("other", [])]))
    section = dom.partition('id="not-running"')[2].partition("</section>")[0]
    assert section.count("No effect: ") == 1
    assert re.findall(r" under ([^<]*?) <", section) == ["one"]


def _no_effect(line: int) -> NotRunning:
    where = Where("hpa.yaml", line, "spec")
    return NotRunning(
        Ref("HorizontalPodAutoscaler", "chat", "llm"), 0, 0, 0.0, "no-effect", "hpa-without-metric", "no data", where,
        "", 0, ""
    )  # fmt: skip


def _of(policy: str, found: list[NotRunning]) -> Result:
    made = msgspec.json.decode(msgspec.json.encode(build("static", decisions=20)), type=Result)
    made.policy, made.not_running = policy, found
    return made


def asked(expression: str) -> Any:
    """What a function of charts.js gives, in node."""
    script = (ASSETS / "charts.js").read_text(encoding="utf-8")
    ran = subprocess.run(
        [str(NODE), "-e", f"{script}; console.log(JSON.stringify({expression}))"],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    return json.loads(ran.stdout)


BOX = {"left": 0, "top": 0, "width": 240, "height": 100}


@pytest.mark.peer
@pytest.mark.skipif(NODE is None, reason="no node on this machine")
@pytest.mark.parametrize(
    ("lines", "where", "met"),
    [
        ([], "right", 0),
        ([[[0, 90], [240, 90]]], "right", 0),  # far below
        ([[[0, 45], [240, 45]]], "below", 0),  # along the line, above it
        ([[[200, 0], [240, 100]]], "left of it", 0),  # through the corner, between two points
        ([[[0, 40], None, [240, 60]]], "right", 0),  # interrupted: no line between the two
        ([[[0, 44], [240, 44]], [[0, 56], [240, 56]]], "anywhere", 1),  # one on each side
    ],
)
def test_a_name_stands_where_the_fewest_curves_are(lines: list[Any], where: str, met: int) -> None:
    found = asked(f"clearPlace({json.dumps(lines)}, {json.dumps(BOX)}, 50, 40, 12, 2)")
    assert found["met"] == met
    assert (found["left"] < 180) == (where == "left of it")
    if where != "left of it":
        assert found["left"] == 196 and found["top"] == (52 if where == "below" else 36)
