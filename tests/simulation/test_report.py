"""The report as text: what is in the file, what can never be, and the figures it derives."""

from __future__ import annotations

import html.parser
import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builder import build, holding

from tonnage.simulation.report import formats, render
from tonnage.simulation.report.comparison import compare
from tonnage.simulation.report.headline import headline, labels, max_nodes
from tonnage.simulation.report.page import Payload, json_for_html
from tonnage.simulation.result import NodeResult, Result

HOSTILE = "</script><script>document.documentElement.dataset.broken = 1</script><!-- \u2028 {{data}}"


class Scripts(html.parser.HTMLParser):
    """Collects the script elements and every attribute that could load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.loads: list[tuple[str, str, str | None]] = []
        self.headings: list[str] = []
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag == "h2":
            self.headings.append("")
        self.loads += [
            (tag, name, value) for name, value in attrs if name in {"src", "href", "srcset", "data", "action"}
        ]

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._in == "h2":
            self.headings[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    @property
    def data(self) -> str:
        return next(text for attrs, text in self.scripts if attrs.get("id") == "data")


@pytest.fixture(scope="module")
def result() -> Result:
    return build()


@pytest.fixture(scope="module")
def page(result: Result) -> str:
    return render([result])


def test_the_file_loads_nothing(page: str) -> None:
    found = Scripts(page)
    assert [load for load in found.loads if not (load[2] or "").startswith("#")] == []
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|importScripts", page)
    assert set(re.findall(r"https?://[^\s\"')*]+", page)) == {"https://github.com/leeoniya/uPlot"}  # the licence banner


def test_every_section_is_there(page: str) -> None:
    assert [heading for heading in Scripts(page).headings if heading] == [
        "Comparison", "Summary", "Training", "Replicas and nodes", "Latency", "Requests", "Fleet", "Pods", "Cost", "Findings", "Decisions", "Events",
    ]  # fmt: skip


def test_the_licence_of_the_chart_library_travels_with_it(page: str) -> None:
    assert "Copyright (c) 2022 Leon Sorokin" in page


def test_the_data_in_the_page_is_the_result(page: str, result: Result) -> None:
    payload = msgspec.json.decode(Scripts(page).data, type=Payload)
    assert payload.results == [result]
    assert payload.headlines == [headline(result)]
    assert payload.comparison is None


def test_several_results_come_with_a_comparison() -> None:
    results = [build("keda+karpenter"), build("static")]
    payload = msgspec.json.decode(Scripts(render(results)).data, type=Payload)
    assert payload.results == results
    assert payload.comparison == compare(results)


def test_text_of_the_data_cannot_leave_its_script_element(result: Result) -> None:
    clean = len(Scripts(render([result])).scripts)
    hostile = msgspec.json.decode(msgspec.json.encode(result), type=Result)
    hostile.decisions[0].verdict = hostile.scenario = hostile.policy = HOSTILE
    found = Scripts(render([hostile]))
    assert len(found.scripts) == clean
    assert json.loads(found.data)["results"][0]["decisions"][0]["verdict"] == HOSTILE


@given(st.recursive(st.text() | st.floats(allow_nan=False) | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_escaping_for_html_keeps_the_value(value: object) -> None:
    escaped = json_for_html(msgspec.json.encode(value))
    assert not set("<>\u2028\u2029") & set(escaped)
    assert json.loads(escaped) == json.loads(msgspec.json.encode(value))


def test_equal_input_gives_equal_bytes(page: str) -> None:
    assert render([build()]) == page


def test_a_90_minute_run_stays_below_2_mb(page: str) -> None:
    assert len(page.encode()) < 2_000_000
    assert len(render([build(decisions=5000)]).encode()) < 2_000_000


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        render([])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (formats.percent(None), "–"),
        (formats.percent(0.0), "0%"),
        (formats.percent(1.0), "100%"),
        (formats.percent(0.99999), ">99.99%"),
        (formats.percent(0.9954), "99.54%"),
        (formats.percent(0.881), "88.1%"),
        (formats.dollars(None), "–"),
        (formats.dollars(0), "$0.00"),
        (formats.dollars(43_980_000), "$43.98"),
        (formats.dollars(-1_500_000), "-$1.50"),
        (formats.dollars(4_200), "$0.0042"),
        (formats.dollars(1_234_567_000_000), "$1,234,567"),
        (formats.milliseconds(48.31), "48.3 ms"),
        (formats.milliseconds(621.4), "621 ms"),
        (formats.milliseconds(999.7), "1 s"),
        (formats.milliseconds(231_000), "3 min 51 s"),
        (formats.seconds(7200), "2 h"),
        (formats.seconds(5400), "1 h 30 min"),
        (formats.clock(2325), "0:38:45"),
        (formats.hours(16.768), "16.77"),
        (formats.hours(1234.5), "1,234"),
        (formats.count(97_092), "97,092"),
    ],
)
def test_numbers_are_written_for_people(text: str, wanted: str) -> None:
    assert text == wanted


def node(launched_s: float, ended_s: float | None) -> NodeResult:
    return NodeResult("n", "g6e.12xlarge", "l40s", 4, "", "spot", "a", 1, launched_s, launched_s, ended_s, "", 0)


@pytest.mark.parametrize(
    ("lives", "peak"),
    [
        ([], 0),
        ([(0, None)], 1),
        ([(0, 10), (10, 20)], 1),
        ([(0, 11), (10, 20)], 2),
        ([(0, None), (5, 9), (7, None), (8, 8.5)], 4),
    ],
)
def test_the_most_nodes_at_once_are_counted_from_launch_to_end(
    lives: list[tuple[float, float | None]], peak: int
) -> None:
    assert max_nodes([node(*life) for life in lives]) == peak


def test_a_node_of_the_initial_fleet_is_not_bought(result: Result) -> None:
    head = headline(result)
    assert (head.max_nodes, head.nodes_bought, head.nodes_returned) == (5, 3, 3)


def test_cost_per_million_tokens_has_no_value_without_tokens(result: Result) -> None:
    silent = msgspec.structs.replace(result, services=[])
    assert headline(silent).micro_usd_per_million_tokens is None
    assert headline(silent).share is None


def test_runs_of_one_policy_are_told_apart(result: Result) -> None:
    other_seed = msgspec.structs.replace(result, seed=8)
    other_scenario = msgspec.structs.replace(result, scenario="steady")
    assert labels([result, build("static")]) == ["keda+karpenter", "static"]
    assert labels([result, other_seed]) == ["keda+karpenter, seed 7", "keda+karpenter, seed 8"]
    assert labels([result, other_scenario]) == ["keda+karpenter, traffic-surge", "keda+karpenter, steady"]
    assert labels([result, result]) == ["keda+karpenter (1)", "keda+karpenter (2)"]


def test_the_comparison_marks_the_better_end_of_each_row() -> None:
    results = [holding(build("keda+karpenter"), 1.0, 1.0), holding(build("static"), 0.995, 1.0)]
    rows = {(row.group, row.label): row for row in compare(results).rows}
    assert rows["serving/chat-8b", "SLO met outside grace"].best == (True, False)
    assert rows["", "Cost"].best == (False, True)
    assert rows["", "Nodes launched"].best == (False, False), "neither end is good"
    assert rows["", "Findings"].best == (False, False), "equal"
    assert rows["serving/code-14b", "In grace (what the surge cost)"].texts == ("–", "–")


def test_what_does_not_hold_the_slo_is_never_marked_as_best() -> None:
    results = [holding(build("keda+karpenter"), 0.989, 1.0), holding(build("static"), 0.24, 1.0)]
    assert not any(any(row.best) for row in compare(results).rows)
    results[0] = holding(results[0], 0.99, 1.0)
    rows = {(row.group, row.label): row for row in compare(results).rows}
    assert rows["", "Cost"].values[1] < rows["", "Cost"].values[0], "cheaper, and of no use"
    assert rows["", "Cost"].best == (True, False)
    assert not any(row.best[1] for row in rows.values())


def test_a_service_that_a_run_lacks_is_no_data_there(result: Result) -> None:
    lacking = msgspec.structs.replace(result, services=result.services[:1], seed=8)
    rows = [row for row in compare([result, lacking]).rows if row.group == "serving/code-14b"]
    assert {row.values[1] for row in rows} == {None}
    assert {row.texts[1] for row in rows} == {"–"}
