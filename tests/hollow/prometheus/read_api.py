"""A store with a few series, its read API on a loopback port, and plain requests to it."""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn

from tonnage.hollow.prometheus import app
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

EPOCH_S = 1_800_000_000
EPOCH_NS = EPOCH_S * NS_PER_S
NOW_S = 600


def make_store() -> SeriesStore:
    """Ten minutes, a scrape every 15 s. Pod b's engine ends at 300 s; ``odd`` holds NaN, infinities and -0."""
    store = SeriesStore()
    for second in range(0, NOW_S + 1, 15):
        at_ns = second * NS_PER_S
        engine = {"model_name": "m", "namespace": "llm"}
        store.append("vllm:num_requests_waiting", {**engine, "pod": "a"}, at_ns, float(second // 15))
        if second < 300:
            store.append("vllm:num_requests_waiting", {**engine, "pod": "b"}, at_ns, 2.0)
        if second == 300:
            store.mark_stale("vllm:num_requests_waiting", {**engine, "pod": "b"}, at_ns)
        store.append("envoy_cluster_upstream_rq_total", {"envoy_cluster_name": "chat"}, at_ns, 2.5 * second)
        for le, share in (("0.1", 1.0), ("0.5", 3.0), ("+Inf", 4.0)):
            store.append("vllm:time_to_first_token_seconds_bucket", {"pod": "a", "le": le}, at_ns, share * second)
    for kind, value in (("nan", math.nan), ("inf", math.inf), ("low", -math.inf), ("zero", -0.0), ("huge", 1.5e25)):
        store.append("odd", {"kind": kind, "text": 'a "b"\\\n'}, NOW_S * NS_PER_S, value)
    return store


@contextmanager
def serving(**changes: Any) -> Iterator[str]:
    """The address of the API over :func:`make_store`, or over what ``changes`` say."""
    given = {
        "store": make_store(),
        "epoch_ns": EPOCH_NS,
        "now_ns": lambda: NOW_S * NS_PER_S,
        "lock": threading.Lock(),
        **changes,
    }
    config = uvicorn.Config(app(given.pop("store"), **given), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "the server does not start"
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def ask(url: str, path: str, form: Any = None, *, post: bool = False) -> tuple[int, Any]:
    """Status and decoded answer of one request."""
    status, body, _ = fetch(url, path, form, post=post)
    return status, json.loads(body)


def fetch(url: str, path: str, form: Any = None, *, post: bool = False, method: str = "") -> tuple[int, str, str]:
    """Status, text and content type of one request."""
    text = urlencode(form or {}, doseq=True)
    address = url + path + (f"?{text}" if text and not post else "")
    request = urllib.request.Request(address, text.encode() if post else None, method=method or None)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode(), response.headers["content-type"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["content-type"]
