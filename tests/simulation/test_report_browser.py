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
from browser import barriers, dump, in_frames, needs_chromium, root
from result_builder import build

from tonnage.simulation.report import formats, render
from tonnage.simulation.result import EventRecord, Result

ASSETS = Path(formats.__file__).parent / "assets"
NODE = shutil.which("node")

WIDTHS = (390, 768, 1280, 2560)
MEASURE = """(page, width) => {
  const clipped = (node) => {
    for (let at = node.parentElement; at; at = at.parentElement)
      if (page.defaultView.getComputedStyle(at).overflowX !== 'visible') return true;
    return false;
  };
  const outside = [...page.body.querySelectorAll('*')].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width && box.right > width + 1 && !clipped(node);
  });
  return { width, scrolls: page.documentElement.scrollWidth, ready: page.documentElement.dataset.ready,
    error: page.documentElement.dataset.error, outside: outside.slice(0, 5).map((node) => node.outerHTML.slice(0, 80)) };
}"""


def event(t_s: float, name: str, reason: str, message: str) -> EventRecord:
    return EventRecord(t_s, name, "Normal", reason, message, 1)


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
@needs_chromium
def test_pods_stand_on_their_nodes_and_waits_with_their_cause(tmp_path: Path) -> None:
    result = build()
    node = next(one for one in result.nodes if one.gpus)
    result.events = [
        event(0, "Pod a/first", "Scheduled", f"assigned to {node.name}"),
        event(20, "Pod a/first", "Ready", "pod is Ready"),
        event(60, "Pod a/first", "Killing", "pod terminated"),
        event(30, "Pod a/late", "FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"),
        event(60, "Pod a/late", "Scheduled", f"assigned to {node.name}"),
        event(30, "Pod a/never", "FailedScheduling", "0/1 nodes are available: 1 had untolerated taint"),
    ]
    dom = dump(tmp_path, render([result]))
    section = dom.partition('<section id="pods"')[2].partition("</section>")[0]
    assert "data-error" not in root(dom) and section.count("pod-bar") == 1  # one follows the other on its GPU
    assert 'title="a/first: starts, 0:00:00 to 0:00:20"' in section
    assert 'title="a/first: Ready, 0:00:20 to 0:01:00"' in section
    waits = re.findall(
        r"<tr><th scope=.row.>(.*?)</th>.*?<td class=.num.>([^<]*)</td><td class=.cause.>(.*?)</td>", section
    )
    assert [(pod, cause.rpartition(": ")[2]) for pod, _, cause in waits] == [
        ("a/never", "1 had untolerated taint"),
        ("a/late", "1 Insufficient nvidia.com/gpu"),
    ]
    assert waits[1][1] == "30 s"


@pytest.mark.peer
@needs_chromium
def test_nothing_overflows_at_the_widths_of_phones_and_large_screens(tmp_path: Path) -> None:
    page = render([build("keda+karpenter"), build("static")])
    measured = in_frames(tmp_path, [(width, page) for width in WIDTHS], MEASURE)
    assert [one["width"] for one in measured] == list(WIDTHS)
    for one in measured:
        assert one["ready"] == "true" and "error" not in one
        assert one["scrolls"] <= one["width"] and one["outside"] == []


@pytest.mark.peer
@needs_chromium
def test_nothing_keeps_people_from_reading_the_report_at_any_width(tmp_path: Path) -> None:
    """axe-core has no fault to find, with one run or several, in light or dark."""
    several, one = render([build("keda+karpenter"), build("static")]), render([build("static")])
    dark = one.replace("</body>", "<script>document.getElementById('theme').click()</script></body>")
    pages = [*((width, several) for width in WIDTHS), (WIDTHS[0], one), (WIDTHS[2], dark)]
    assert barriers(tmp_path, pages) == [[]] * len(pages)


@pytest.mark.peer
@needs_chromium
def test_a_barrier_is_found_where_there_is_one(tmp_path: Path) -> None:
    page = "<!doctype html><html lang='en'><title>t</title><body><main><h1>t</h1><p style='color:#aaa'>pale</p></main></body>"
    (found,) = barriers(tmp_path, [(WIDTHS[0], page)])
    assert [one.partition(" 1 ")[0] for one in found] == ["serious color-contrast"]


@pytest.mark.peer
@needs_chromium
def test_an_error_in_the_console_is_seen(tmp_path: Path) -> None:
    page = "<!doctype html><script>console.error('one'); setTimeout(() => { throw new Error('two') }, 10)</script>"
    dump(tmp_path, page, console=['"one"', '"Uncaught Error: two"'])
    with pytest.raises(AssertionError):
        dump(tmp_path, page)


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


@pytest.mark.parametrize("theme", [":root", ":root.dark"])
def test_text_is_readable_on_every_background(theme: str) -> None:
    """WCAG 2.1, 1.4.3: a contrast of 4.5 for text."""
    block = re.search(rf"^{re.escape(theme)} {{(.*?)^}}", (ASSETS / "base.css").read_text(), re.S | re.M)
    assert block is not None
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block[1]))
    for text_colour in ("text", "muted", "faint"):
        for background in ("bg", "surface", "raised", "sunken"):
            light, dark = sorted((luminance(colours[text_colour]), luminance(colours[background])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text_colour, background)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
