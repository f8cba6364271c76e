"""The report in a real browser: its scripts run without an error, and show what they should."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from result_builder import build

from tonnage.simulation.report import formats, render
from tonnage.simulation.result import Result

ASSETS = Path(formats.__file__).parent / "assets"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def dump(tmp_path: Path, page: str, fragment: str = "") -> str:
    """The document after its scripts have run."""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom",
        f"file://{tmp_path / 'report.html'}{fragment}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def root(dom: str) -> str:
    found = re.search(r"<html[^>]*>", dom)
    assert found
    return found[0]


def text(dom: str, element_id: str) -> str:
    found = re.search(rf'id="{element_id}"[^>]*>(.*?)</', dom, re.S)
    assert found
    return html.unescape(found[1])


def drawn(dom: str, log: str) -> list[str]:
    return re.findall(rf'id="{log}-\d+"', dom)


@pytest.mark.peer
@needs_chromium
def test_the_report_runs_without_an_error_and_draws_its_charts(tmp_path: Path) -> None:
    dom = dump(tmp_path, render([build("keda+karpenter"), build("static")]))
    assert 'data-ready="true"' in root(dom)
    assert "data-error" not in root(dom)
    services, per_service, fleet, compared = 2, 6, 3, 2 * 2 + 2
    assert dom.count('<div class="uplot') == services * per_service + fleet + compared
    assert 'role="radio" aria-checked="true"' in dom


@pytest.mark.peer
@needs_chromium
def test_the_hash_filters_5000_decisions_of_which_only_those_in_view_are_drawn(tmp_path: Path) -> None:
    result = build(decisions=5000)
    matching = [one for one in result.decisions if "scale" in msgspec.json.encode(one).decode().lower()]
    dom = dump(tmp_path, render([result]), "#q=scale")
    assert "data-error" not in root(dom)
    assert text(dom, "decision-count") == f"{len(matching):,} of 5,000 decisions"
    assert 0 < len(drawn(dom, "decision-log")) < 60
    launches = sum(one.kind == "Launch" and "gpu-l40s-3" in one.target for one in result.decisions)
    dom = dump(tmp_path, render([result]), "#kind=Launch&target=gpu-l40s-3")
    assert text(dom, "decision-count") == f"{launches:,} of 5,000 decisions"


@pytest.mark.peer
@needs_chromium
def test_markup_in_the_data_stays_text(tmp_path: Path) -> None:
    result = build()
    hostile = "</script><img src=x onerror='document.documentElement.dataset.error=1'><script>throw 1</script>"
    result.decisions[0].verdict = result.decisions[0].summary = result.scenario = result.services[0].name = hostile
    result.events[0].message = hostile
    dom = dump(tmp_path, render([result]))
    assert 'data-ready="true"' in root(dom)
    assert "data-error" not in root(dom)
    assert "<img" not in dom.split('id="data"')[0]


@pytest.mark.peer
@needs_chromium
def test_a_run_in_which_nothing_happened_is_shown_too(tmp_path: Path) -> None:
    result = build()
    empty = msgspec.json.decode(msgspec.json.encode(result), type=Result)
    series = result.series
    for column in ("nodes_ready", "nodes_starting", "gpus_paid", "gpus_allocated", "spend_micro_usd"):
        setattr(series, column, [0] * len(series.t_s))
    for service in series.services:
        for column in ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "slo_share", "kv_usage"):
            setattr(service, column, [None] * len(series.t_s))
    empty.series, empty.nodes, empty.findings, empty.decisions, empty.events = series, [], [], [], []
    empty.decision_counts, empty.heatmap.rows, empty.cost.lines = {}, [], []
    dom = dump(tmp_path, render([empty]))
    assert 'data-ready="true"' in root(dom)
    assert "data-error" not in root(dom)
    assert text(dom, "decision-count") == "0 of 0 decisions"


@pytest.mark.peer
@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_page_and_terminal_write_numbers_alike() -> None:
    values = [
        0,
        0.0042,
        0.07,
        0.52,
        0.8749,
        0.9954,
        0.99999,
        1,
        3.27,
        48.31,
        99.96,
        621.4,
        999.7,
        1234.6,
        5400,
        231_000,
        7_200_000,
        43_980_000,
    ]
    pairs = {
        "percent": formats.percent, "usd": formats.dollars, "ms": formats.milliseconds,
        "seconds": formats.seconds, "hours": formats.hours, "count": formats.count,
    }  # fmt: skip
    script = (ASSETS / "dom.js").read_text(encoding="utf-8") + (
        f"; const values = {json.dumps([*values, None])};"
        f"console.log(JSON.stringify({json.dumps(list(pairs))}.map((name) => values.map((v) => fmt[name](v)))))"
    )
    ran = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, timeout=30, check=True)
    ours = [[write(value) for value in [*values, None]] for write in pairs.values()]
    assert json.loads(ran.stdout) == ours
