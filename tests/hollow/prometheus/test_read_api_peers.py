"""The read API as Prometheus' own tools see it: promtool asks it, and Prometheus scrapes it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
from pathlib import Path

import pytest
from read_api import EPOCH_S, NOW_S, ask, fetch, make_store, serving

from tonnage.metrics.exposition import current, render
from tonnage.units import NS_PER_S

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PROMETHEUS or not PROMTOOL, reason="prometheus and promtool are not installed (apt-get install prometheus)"
    ),
]
WAITING = "vllm:num_requests_waiting"


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    assert PROMTOOL
    return subprocess.run([PROMTOOL, *arguments], input=given, capture_output=True, text=True, check=False, timeout=30)


def test_promtool_reads_an_instant() -> None:
    with serving() as url:
        done = promtool("query", "instant", f"--time={EPOCH_S + 60}", "-o", "json", url, f"sum by (pod) ({WAITING})")
    assert done.returncode == 0, done.stderr
    found = {element["metric"]["pod"]: element["value"] for element in json.loads(done.stdout)}
    assert found == {"a": [EPOCH_S + 60, "4"], "b": [EPOCH_S + 60, "2"]}


def test_promtool_reads_a_range() -> None:
    times = [f"--start={EPOCH_S + 270}", f"--end={EPOCH_S + 310}", "--step=15s"]
    with serving() as url:
        done = promtool("query", "range", *times, "-o", "json", url, f'{WAITING}{{pod="b"}}')
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["values"] == [[EPOCH_S + 270, "2"], [EPOCH_S + 285, "2"]]


def test_promtool_lists_series_and_labels() -> None:
    span = [f"--start={EPOCH_S}", f"--end={EPOCH_S + NOW_S}"]
    with serving() as url:
        labels = promtool("query", "labels", *span, url, "pod")
        series = promtool("query", "series", *span, f"--match={WAITING}", url)
    assert labels.stdout.split() == ["a", "b"]
    assert series.stdout.count(WAITING) == 2


def test_promtool_shows_the_error() -> None:
    with serving() as url:
        done = promtool("query", "instant", url, "limitk(1, up)")
    assert done.returncode != 0
    assert "is not evaluated by Tonnage" in done.stdout + done.stderr


def test_promtool_reads_every_line_of_the_exposition() -> None:
    # exit code 3: it has read the text, and finds names that do not follow its style
    done = promtool("check", "metrics", given=render(current(make_store(), NOW_S * NS_PER_S)))
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr


def test_prometheus_scrapes_it(tmp_path: Path) -> None:
    assert PROMETHEUS
    with serving() as url, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        job = {"job_name": "tonnage", "honor_labels": True, "scrape_interval": "1s", "scrape_timeout": "1s"}
        targets = [{"targets": [url.removeprefix("http://")]}]
        (tmp_path / "c.yml").write_text(json.dumps({"scrape_configs": [{**job, "static_configs": targets}]}))
        flags = [f"--config.file={tmp_path / 'c.yml'}", f"--storage.tsdb.path={tmp_path / 'd'}"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([PROMETHEUS, *flags, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            found = until_scraped(f"http://{address}", WAITING)
            assert [(e["metric"]["pod"], e["value"][1]) for e in found] == [("a", "40")]
            _, answer = ask(f"http://{address}", "/api/v1/targets")
            assert [target["lastError"] for target in answer["data"]["activeTargets"]] == [""]
        finally:
            process.terminate()
            process.wait(10)


def until_scraped(url: str, query: str) -> list[dict[str, dict[str, str]]]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            status, body, _ = fetch(url, "/api/v1/query", {"query": query})
        except (urllib.error.URLError, ConnectionError):
            status, body = 0, ""
        result = json.loads(body)["data"]["result"] if status == 200 else []
        if result:
            return result
        time.sleep(0.1)
    raise AssertionError(f"{query} was not scraped")
