"""Routers, zones and routes in front of simulated pods."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sim_builders import SETUP, arrivals

import yaml_text
from tonnage.errors import InputError
from tonnage.inference.engine import Engine
from tonnage.inference.routing.types import RouteRequest
from tonnage.inference.timing import LinearTiming
from tonnage.machines.serving.balancing import ROUTED, Routed, needs_content
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import DONE, SimulatedService
from tonnage.simulation.result import Result
from tonnage.simulation.run import RunOptions, run
from tonnage.simulation.scenario import load
from tonnage.traffic.arrivals import Arrivals, Content, build
from tonnage.traffic.profile_file import read_profile
from tonnage.units import ns

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv-routing"


def _replica(name: str, zone: str = "") -> ServingReplica:
    return ServingReplica(name, Engine(SETUP.config, SETUP.timing, prefix_caching=True), zone=zone)


def _with_content(count: int, groups: int, gap_s: float = 0.05) -> Arrivals:
    """Requests of 1,600 tokens, of which all but the last 160 are those of one of ``groups`` documents."""
    which = np.random.default_rng(1).integers(0, groups, count).tolist()
    paths = [((g * 1000, g * 1000 + 90), (10**6 + n * 20, 10**6 + n * 20 + 10)) for n, g in enumerate(which)]
    times = np.array([ns(1 + n * gap_s) for n in range(count)], np.int64)
    lengths = np.full(count, 1600, np.int32)
    return Arrivals(times, lengths, np.full(count, 10, np.int32), (), Content(16, paths))


def _played(balancing: str, requests: Arrivals, *replicas: ServingReplica) -> SimulatedService:
    service = SimulatedService("a/b", requests, balancing, random.Random(1))
    for replica in replicas:
        service.add(replica)
    service.advance(ns(100))
    service.settle(ns(100))
    assert set(service.requests.status) == {DONE}
    return service


def _reuse(balancing: str) -> float:
    requests = _with_content(200, 40)
    service = _played(balancing, requests, *(_replica(f"pod-{i}") for i in range(4)))
    return service.requests.reused / int(requests.prompt.sum())


def test_routers_that_look_at_caches_find_more_there_than_those_that_do_not() -> None:
    blind = max(_reuse("round-robin"), _reuse("least-requests"), _reuse("least-loaded"))
    for balancing in ROUTED:
        if needs_content(balancing):
            assert _reuse(balancing) > blind + 0.05, balancing


def test_least_loaded_spreads_requests_that_stay() -> None:
    got = Counter[str]()
    service = SimulatedService("a/b", arrivals(1, 1.1, 1.2, 1.3, output=400), "least-loaded", random.Random(1))
    for i in range(4):
        service.add(_replica(f"pod-{i}"))
    service.advance(ns(1.5))
    for replica in service.endpoints:
        got[replica.pod] = replica.in_flight
    assert set(got.values()) == {1}


def test_a_router_sends_nothing_to_a_pod_that_drains_or_has_no_engine_yet() -> None:
    drains, loads, stays = _replica("drains"), ServingReplica("loads"), _replica("stays")
    service = SimulatedService("a/b", arrivals(1, 2, 3, 4), "least-loaded", random.Random(1))
    for replica in (drains, loads, stays):
        service.add(replica)
    service.drain(drains)
    service.advance(ns(10))
    service.settle(ns(10))
    assert set(service.requests.status) == {DONE}
    assert stays.engine is not None and stays.engine.prompt_tokens_total == 40


def test_a_router_forgets_the_requests_of_a_pod_that_died() -> None:
    first, second = _replica("first"), _replica("second")
    service = SimulatedService("a/b", arrivals(1, 1.01, 1.02, 3, 3.01, output=150), "least-loaded", random.Random(1))
    service.add(first)
    service.add(second)
    service.advance(ns(1.1))
    before = first.in_flight
    assert service.kill(first, ns(1.1)) == before
    service.advance(ns(30))
    service.settle(ns(30))
    assert Counter(service.requests.status)[DONE] == 5 - before


def test_a_router_sees_what_caches_hold_at_the_moment_of_its_decision() -> None:
    """The second prompt is computed once the first has ended; nobody has asked its engine for anything since."""
    timing = LinearTiming(base_ps=10**10, token_ps=10**9)  # 1 ms per token
    cold, warm = (ServingReplica(name, Engine(SETUP.config, timing, prefix_caching=True)) for name in ("cold", "warm"))
    path = ((5000, 5060),)
    assert warm.engine is not None
    warm.engine.submit(0, 0, 2048, 1)
    warm.engine.submit(1, 0, 970, 400, path=path)
    warm.engine.advance(ns(2.058))
    assert warm.engine.running == 0, "the step that admits the second begins now"
    for balancing in ROUTED:
        if needs_content(balancing):
            router = Routed(balancing, random.Random(1))
            chosen = router.choose(RouteRequest(2, ns(2.5), 970, 60, path), [cold, warm])
            assert chosen is warm, balancing


def test_engines_on_unlike_gpus_are_judged_each_by_its_own_times() -> None:
    slow, fast = LinearTiming(base_ps=10**10, token_ps=10**9), LinearTiming(base_ps=10**10, token_ps=10**8)
    for timings in ((slow, fast), (fast, slow)):
        replicas = [
            ServingReplica(str(i), Engine(SETUP.config, timing, prefix_caching=True))
            for i, timing in enumerate(timings)
        ]
        times = np.array([ns(10 * n) for n in range(1, 9)], np.int64)
        lengths = np.full(len(times), 1000, np.int32)
        paths = [((n * 1000, n * 1000 + 62),) for n in range(len(times))]
        requests = Arrivals(times, lengths, lengths // 100, (), Content(16, paths))
        _played("tonnage", requests, *replicas)
        got = {r.engine.timing: r.engine.prompt_tokens_total for r in replicas if r.engine is not None}
        assert got == {slow: 0, fast: 8000}


def test_engines_that_are_alike_share_what_is_known_of_their_times() -> None:
    router = Routed("tonnage", random.Random(1))
    router.choose(RouteRequest(0, 0, 10), [_replica("a"), _replica("b")])
    assert len(router._costs) == 2 and router._costs[0] is router._costs[1]


def test_a_router_is_not_told_how_long_answers_will_be() -> None:
    for requests in (arrivals(1), _with_content(1, 1)):
        service = SimulatedService("a/b", requests, "tonnage", random.Random(1))
        assert service._request(0, ns(1)).expected_output is None


# ---- zones ----


def _zoned(zones: list[str], *, aware: bool, replicas: list[str]) -> SimulatedService:
    requests = arrivals(*range(1, len(zones) + 1))
    requests = Arrivals(requests.arrival_ns, requests.prompt, requests.output, (), zones=zones)
    service = SimulatedService("a/b", requests, "round-robin", random.Random(1), zone_aware=aware)
    for i, zone in enumerate(replicas):
        service.add(_replica(f"{zone}-{i}", zone))
    service.advance(ns(100))
    return service


def test_zone_aware_balancing_stays_in_the_clients_zone_while_it_has_a_pod() -> None:
    zones = ["a", "b"] * 10
    assert _zoned(zones, aware=False, replicas=["a", "b", "b"]).requests.crossed > 5
    assert _zoned(zones, aware=True, replicas=["a", "b", "b"]).requests.crossed == 0


def test_clients_of_a_zone_without_a_pod_go_anywhere() -> None:
    service = _zoned(["c", "a"] * 5, aware=True, replicas=["a", "b"])
    assert service.requests.crossed == 5
    assert service.failed == 0


# ---- in a scenario ----


def _run(tmp_path: Path, traffic: dict[str, object], policy: dict[str, object] | None = None) -> Result:
    document = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    written = document["traffic"][0]
    written["profile"] = str(EXAMPLE / written["profile"])
    written |= {"rate": 0.2} | traffic
    written = {key: value for key, value in written.items() if value is not None}
    document |= {
        "duration": "2m",
        "traffic": [written],
        "policies": {"one": {"manifests": str(EXAMPLE / "manifests")} | (policy or {})},
        "default": "one",
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    scenario = load(path)
    return run(scenario, "one", RunOptions(check=True))


def test_a_policys_balancing_replaces_that_of_the_traffic(tmp_path: Path) -> None:
    found = _run(tmp_path, {"balancing": "tonnage"})
    replaced = _run(tmp_path, {"balancing": "random"}, {"balancing": "tonnage"})
    found_routing, replaced_routing = found.services[0].routing, replaced.services[0].routing
    assert found_routing == replaced_routing and found.check.violations == []


def test_equal_seeds_give_equal_results_under_every_router(tmp_path: Path) -> None:
    for balancing in ROUTED:
        assert _run(tmp_path, {"balancing": balancing}) == _run(tmp_path, {"balancing": balancing})


def test_half_of_random_requests_go_to_another_zone_and_preferring_zones_keeps_them(tmp_path: Path) -> None:
    zones = {"us-east-1a": 1.0, "us-east-1b": 1.0}
    crossing = _run(tmp_path, {"clientZones": zones, "balancing": "random"}).services[0].routing
    assert crossing.cross_zone == pytest.approx(0.5, abs=0.2), "all pods are in zone a"  # type: ignore[union-attr]


def test_routes_share_one_stream_of_requests_among_services(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    text = (EXAMPLE / "manifests" / "chat.yaml").read_text(encoding="utf-8").replace("replicas: 8", "replicas: 4")
    (manifests / "chat.yaml").write_text(text, encoding="utf-8")
    (manifests / "code.yaml").write_text(text.replace("chat", "code"), encoding="utf-8")
    routes = [
        {"path": "/chat", "service": "inference/chat", "share": 3},
        {"path": "/code", "service": "inference/code"},
    ]
    split = _run(tmp_path, {"service": None, "routes": routes}, {"manifests": str(manifests)})
    profile = read_profile(EXAMPLE / "../traffic-surge/traffic/azure-2023-conv.yaml")
    whole = build(profile, service="inference/chat+inference/code", seed=0, duration_ns=ns(120), rate=0.2)
    chat, code = (service.overall.requests + service.overall.undecided for service in split.services)
    assert chat + code == len(whole)
    assert chat / (chat + code) == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize(
    ("traffic", "field", "message"),
    [
        ({"prefixes": None, "balancing": "dynamo"}, "balancing", "looks at what prompts have in common"),
        ({"balancing": "kv"}, "balancing", "expected one of random, round-robin, least-requests, least-loaded"),
        ({"zoneAware": True}, "zoneAware", "expected clientZones"),
        ({"clientZones": {"us-east-1a": 0.0}}, "clientZones.us-east-1a", "above 0"),
        ({"prefixes": {"systemPrompts": 3}}, "prefixes", "go together"),
        ({"prefixes": {"turns": [5, 1]}}, "prefixes", "the smaller first"),
        ({"routes": [{"service": "a/b", "path": "chat"}], "service": None}, "path", "begins with /"),
        ({"routes": [{"service": "a/b"}], "service": None}, "routes[0]", "either a path or a model"),
        ({"routes": [{"service": "a/b", "path": "/a"}]}, "service", "expected either routes or a service"),
        ({"split": {"prefill": {}, "decode": {"a": "b"}}}, "split.prefill", "no labels"),
        (
            {"split": {"prefill": {"a": "b"}, "decode": {"a": "c"}, "link": "nvlink"}},
            "split.link",
            "did you mean nvlink",
        ),
        ({"split": {"prefill": {"a": "b"}, "decode": {"a": "c"}, "lease": "0s"}}, "split.lease", "not above 0"),
        (
            {"split": {"prefill": {"a": "b"}, "decode": {"a": "c"}, "conditional": {"policy": "x"}}},
            "split.conditional",
            "isl_bounding",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.report(17)
def test_mistakes_are_told_with_their_place(
    tmp_path: Path, traffic: dict[str, object], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        _run(tmp_path, traffic)
    text = str(caught.value)
    assert field in text and message in text and "scenario.yaml:" in text
