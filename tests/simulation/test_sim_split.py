"""A Service whose prompts are computed by one pool of pods and answered by another."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shared_runs
import yaml_text
from deep_seeds import examples
from tonnage.errors import InputError
from tonnage.inference.disaggregation.actions import Leases
from tonnage.inference.disaggregation.conditional import ConditionalRule
from tonnage.inference.disaggregation.links import kv_bytes, kv_link, transfer_ns
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.timing import TICKS_PER_NS, LinearTiming, StepWork, prompt_work
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import DONE, FAILED, PENDING
from tonnage.machines.serving.split import DECODE, PREFILL, Split, SplitService
from tonnage.simulation.result import Result
from tonnage.simulation.run import RunOptions, run
from tonnage.simulation.scenario import load
from tonnage.traffic.arrivals import Arrivals, Content
from tonnage.units import NS_PER_S, ns

EXAMPLE = Path(__file__).parents[2] / "examples" / "disaggregated"
CONFIG = EngineConfig(2048, 8, 4096, 400)
TIMING = LinearTiming(base_ps=10**10, token_ps=10**8)  # 10 ms a step, 0.1 ms per token
BYTES = 131_072


def _split(link: str = "efa-p5", **changes: object) -> Split:
    known: dict[str, object] = {"lanes": 1, "layers": 32, "bytes_per_token": BYTES}
    return Split(kv_link(link), **(known | changes))  # type: ignore[arg-type]


def _replica(name: str, role: str, now_ns: int = 0, *, blocks: int = 400, caching: bool = False) -> ServingReplica:
    config = msgspec.structs.replace(CONFIG, kv_blocks=blocks)
    return ServingReplica(name, Engine(config, TIMING, now_ns, prefix_caching=caching), role=role)


def _requests(*seconds: float, prompt: int = 1000, output: int = 10, content: Content | None = None) -> Arrivals:
    times = np.array([ns(s) for s in seconds], np.int64)
    ones = np.ones(len(times), np.int32)
    return Arrivals(times, ones * prompt, ones * output, (), content)


def _service(
    requests: Arrivals, split: Split, *replicas: ServingReplica, balancing: str = "least-requests"
) -> SplitService:
    made = SplitService("a/b", requests, balancing, random.Random(1), random.Random(2), split)
    for replica in replicas:
        made.add(replica)
    return made


def _play(service: SplitService, second: float) -> list[int]:
    service.advance(ns(second))
    service.settle(ns(second))
    return list(service.requests.status)


def _pair(**changes: int) -> tuple[ServingReplica, ServingReplica]:
    return _replica("p", PREFILL, blocks=changes.get("p", 400)), _replica("d", DECODE, blocks=changes.get("d", 400))


def _held(*replicas: ServingReplica) -> int:
    return sum(replica.engine.blocks_used for replica in replicas if replica.engine is not None)


# ---- the way of a request ----


def test_the_first_token_comes_after_prefill_transfer_and_one_step() -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split(), prefill, decode)
    assert _play(service, 3) == [DONE]
    computed = TIMING.step(prompt_work(1000, 0)) // TICKS_PER_NS
    moved = transfer_ns(kv_link("efa-p5"), kv_bytes(63, 16, BYTES))
    step = TIMING.step(StepWork(decoders=1)) // TICKS_PER_NS
    assert service.transfers_ns == [moved]
    assert service.requests.first_ns.tolist() == [ns(1) + computed + moved + step]
    assert service.requests.finish_ns.tolist() == [ns(1) + computed + moved + 10 * step]
    assert (_held(prefill, decode), prefill.in_flight, decode.in_flight) == (0, 0, 0)


def test_decoding_is_not_held_up_by_other_prompts() -> None:
    times = [1 + 0.11 * i for i in range(30)]
    together = SplitService("a/b", _requests(*times), "least-requests", random.Random(1), random.Random(2), _split())
    together.add(_replica("d", DECODE))  # no prefill pod: all is done here
    apart = _service(_requests(*times), _split(), *_pair())
    for service in (together, apart):
        assert set(_play(service, 30)) == {DONE}
    assert (together.local, apart.local) == (30, 0)

    def slowest(service: SplitService) -> int:
        return max(f - s for f, s in zip(service.requests.finish_ns, service.requests.first_ns, strict=True))

    assert slowest(apart) < slowest(together) / 2


def test_transfers_of_one_pod_wait_for_each_other() -> None:
    service = _service(_requests(1, 1), _split("tcp-25g"), *_pair())
    assert _play(service, 10) == [DONE, DONE]
    first, second = service.transfers_ns
    assert second > 1.5 * first


def test_sending_layer_by_layer_hides_behind_the_prefill() -> None:
    whole, layers = (_service(_requests(1), _split("tcp-100g", layerwise=on), *_pair()) for on in (False, True))
    for service in (whole, layers):
        assert _play(service, 10) == [DONE]
    assert layers.transfers_ns[0] < whole.transfers_ns[0] / 2


def test_blocks_that_the_decode_pod_holds_already_are_not_moved() -> None:
    content = Content(16, [((0, 62), (100, 101)), ((0, 62), (200, 201))])
    prefill, decode = _replica("p", PREFILL, caching=True), _replica("d", DECODE, caching=True)
    service = _service(_requests(1, 3, content=content), _split("tcp-25g"), prefill, decode)
    assert _play(service, 10) == [DONE, DONE]
    assert service.transfers_ns[1] < service.transfers_ns[0] / 10
    assert service.requests.reused == 62 * 16, "the prefill pod found the second prompt in its own cache"


def test_a_prompt_waits_at_its_prefill_pod_while_the_decode_pod_is_full() -> None:
    prefill, decode = _pair(d=70)
    service = _service(_requests(1, 1.3, output=100), _split(), prefill, decode)
    service.advance(ns(1.9))
    service.settle(ns(1.9))
    assert _held(prefill) == 63, "kept under its lease"
    assert _play(service, 10) == [DONE, DONE]
    assert service.transfers_ns[1] > ns(0.5)
    assert _held(prefill, decode) == 0


def test_what_neither_pod_could_ever_hold_fails_at_once() -> None:
    for replicas in (_pair(p=40), _pair(d=40)):
        service = _service(_requests(1), _split(), *replicas)
        assert _play(service, 2) == [FAILED]
        assert service.in_flight == 0 and _held(*replicas) == 0


def test_without_a_decode_pod_requests_fail() -> None:
    assert _play(_service(_requests(1), _split(), _replica("p", PREFILL)), 2) == [FAILED]


# ---- the conditional rule ----


def test_the_rule_keeps_short_remainders_with_the_decode_pod() -> None:
    content = Content(16, [((0, 62),), ((0, 62),)])
    rule = ConditionalRule(isl_threshold=2048, ratio_threshold=0.7)
    replicas = (_replica("p", PREFILL, caching=True), _replica("d", DECODE, caching=True))
    service = _service(_requests(1, 3, content=content), _split(rule=rule), *replicas)
    assert _play(service, 10) == [DONE, DONE]
    assert (len(service.transfers_ns), service.local) == (1, 1), "the second prompt was all there"


def test_a_busy_prefill_pod_lets_the_decode_pod_do_it_unless_that_is_full() -> None:
    rule = ConditionalRule("prefill_load", prefill_busy_threshold=0.4)
    service = _service(_requests(1, 1.001), _split(rule=rule), *_pair())
    assert _play(service, 10) == [DONE, DONE]
    assert service.local == 1
    full = msgspec.structs.replace(rule, decode_busy_threshold=0.0)
    service = _service(_requests(1, 1.2, 1.201, 1.202, output=60), _split(rule=full), *_pair())
    assert set(_play(service, 10)) == {DONE}
    assert service.local == 0


# ---- pods that die ----


@pytest.mark.report(30)
def test_blocks_for_a_decode_pod_that_died_are_given_back_when_their_lease_ends() -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split("tcp-25g", leases=Leases(ns(6), ns(4), ns(1))), prefill, decode)
    service.advance(ns(1.15))
    service.settle(ns(1.15))
    assert service.kill(decode, ns(1.15)) == 1
    service.settle(ns(6))
    assert _held(prefill) == 63 and prefill.in_flight == 1
    service.settle(ns(9))
    assert _held(prefill) == 0 and prefill.in_flight == 0
    assert list(service.requests.status) == [FAILED]


@pytest.mark.report(31)
def test_a_prompt_whose_prefill_pod_dies_on_the_way_is_computed_by_its_decode_pod() -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split("tcp-25g"), prefill, decode)
    service.advance(ns(1.15))
    service.settle(ns(1.15))
    assert service.kill(prefill, ns(1.15)) == 0
    assert _play(service, 10) == [DONE]
    assert _held(decode) == 0
    assert service.requests.first_ns[0] < ns(1.5), "at once, not after a timeout"


def test_a_prompt_that_was_being_computed_fails_with_its_pod() -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split(), prefill, decode)
    service.advance(ns(1.05))
    assert service.kill(prefill, ns(1.05)) == 1
    assert _play(service, 10) == [FAILED]
    assert (decode.in_flight, service.in_flight, _held(decode)) == (0, 0, 0)


MOMENTS = st.floats(0, 12, allow_nan=False)
ROLES = st.sampled_from(["prefill", "decode"])
CHANGES = st.tuples(MOMENTS, ROLES, st.sampled_from(["add", "drain", "kill", "look", "abort", "abort"]))


@settings(max_examples=examples(80), deadline=None)
@given(
    times=st.lists(MOMENTS, min_size=1, max_size=40),
    seed=st.integers(0, 2**32),
    balancing=st.sampled_from(["round-robin", "least-requests", "least-loaded", "tonnage"]),
    changes=st.lists(CHANGES, max_size=14),
    link=st.sampled_from(["efa-p5", "tcp-25g"]),
    small=st.booleans(),
)
def test_every_request_ends_once_and_no_block_is_kept_whatever_pods_do(
    times: list[float], seed: int, balancing: str, changes: list[tuple[float, str, str]], link: str, small: bool
) -> None:
    rng = np.random.default_rng(seed)
    count = len(times)
    prompts = rng.integers(2, 1500, count).astype(np.int32)
    outputs = rng.integers(1, 100, count).astype(np.int32)
    paths = [((0, int(p) // 32),) if n % 2 else () for n, p in enumerate(prompts)]
    moments = np.array(sorted(ns(t) for t in times), np.int64)
    requests = Arrivals(moments, prompts, outputs, (), Content(16, paths))
    split = _split(
        link, leases=Leases(ns(3), ns(2), ns(0.5)), rule=ConditionalRule("isl_or_load") if seed % 2 else None
    )
    blocks = 110 if small else 400
    every = [
        _replica("p-0", PREFILL, blocks=blocks, caching=True),
        _replica("d-0", DECODE, blocks=blocks, caching=True),
    ]
    service = _service(requests, split, *every, balancing=balancing)
    for number, (second, role, change) in enumerate(sorted(changes), 1):
        now = ns(second)
        service.advance(now)
        alive = [r for r in (*service.draining, *service.endpoints) if r.role == role]
        if change == "add":
            every.append(_replica(f"{role}-{number}", role, now, blocks=blocks, caching=True))
            service.add(every[-1])
        elif change == "look":
            service.settle(now)
        elif change == "drain" and alive and alive[-1] in service.endpoints:
            service.drain(alive[-1])
        elif change == "kill" and alive:
            service.kill(alive[0], now)
        elif change == "abort" and service.received:
            service.abort(service.received - 1 - number % min(3, service.received), now)
    _play(service, 200)
    ends = Counter(service.requests.status)
    assert ends[PENDING] == 0 and ends[DONE] + ends[FAILED] == count
    assert ends[FAILED] == service.failed
    for first, last, arrival, status in zip(
        service.requests.first_ns, service.requests.finish_ns, moments, service.requests.status, strict=True
    ):
        if status == DONE:
            assert arrival < first <= last
    assert _held(*every) == 0
    assert service.in_flight == 0 and sum(r.in_flight for r in (*service.endpoints, *service.draining)) == 0
    assert service._pairs == {}, "nothing is remembered of requests that are over"


@pytest.mark.parametrize("balancing", ["round-robin", "least-requests", "least-loaded", "tonnage"])
def test_when_pods_are_looked_at_does_not_change_what_they_do(balancing: str) -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, 10, 60)).tolist()
    outcomes = []
    for looks in ([], [s / 7 for s in range(1, 100)]):
        replicas = [_replica(f"{role}-{i}", role) for role in (PREFILL, DECODE) for i in range(2)]
        paths = [((0, 30 + n % 20), (1000 * n + 100, 1000 * n + 110)) for n in range(60)]
        service = _service(
            _requests(*times, output=40, content=Content(16, paths)), _split("tcp-25g"), *replicas, balancing=balancing
        )
        for second in looks:
            _play(service, second)
        _play(service, 60)
        outcomes.append((service.requests.first_ns, service.requests.finish_ns, service.transfers_ns))
    assert outcomes[0] == outcomes[1]


# ---- clients that go away ----


@pytest.mark.parametrize(
    ("second", "where"),
    [(1.05, "computed"), (1.15, "on the wire"), (1.7, "answered")],
)
def test_an_abort_frees_both_pods_wherever_the_request_is(second: float, where: str) -> None:
    prefill, decode = _pair()
    service = _service(_requests(1, 1.001, output=200), _split("tcp-25g"), prefill, decode)
    service.advance(ns(second))
    service.abort(0, ns(second))
    assert list(service.requests.status) == [FAILED, PENDING] and service.failed == 1
    assert decode.in_flight == 1, where
    assert _play(service, 60) == [FAILED, DONE]
    assert _held(prefill, decode) == 0 and service._pairs == {}
    assert (prefill.in_flight, decode.in_flight, service.in_flight) == (0, 0, 0)


def test_pages_that_are_being_written_into_are_kept_until_the_transfer_has_ended() -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split("tcp-25g"), prefill, decode)
    _play(service, 1.15)
    assert (_held(prefill), _held(decode)) == (63, 63)
    service.abort(0, ns(1.15))
    assert (_held(prefill), _held(decode)) == (63, 63)
    service.settle(ns(1.3))
    assert (_held(prefill), _held(decode)) == (0, 0)
    assert service.transfers_ns == [], "and nothing runs"


@pytest.mark.parametrize("role", [PREFILL, DECODE])
def test_a_pod_that_dies_after_a_client_went_away_changes_nothing_for_it(role: str) -> None:
    prefill, decode = _pair()
    service = _service(_requests(1), _split("tcp-25g"), prefill, decode)
    _play(service, 1.15)
    service.abort(0, ns(1.15))
    assert service.kill(prefill if role == PREFILL else decode, ns(1.16)) == 0
    assert _play(service, 60) == [FAILED] and service.failed == 1
    assert (decode.in_flight, service.in_flight) == (0, 0)
    assert _held(prefill, decode) == 0 and service._pairs == {}


def test_a_prompt_that_waits_for_room_leaves_the_queue_with_its_client() -> None:
    prefill, decode = _pair(d=80)
    service = _service(_requests(1, 1.3, 1.5, output=200), _split(), prefill, decode)
    _play(service, 1.9)
    assert _held(prefill) == 2 * 63
    service.abort(1, ns(1.9))
    assert _held(prefill) == 63, "only what the third waits for"
    assert _play(service, 20) == [DONE, FAILED, DONE]
    assert _held(prefill, decode) == 0 and service._pairs == {}


def test_a_prompt_that_stayed_with_its_decode_pod_can_be_aborted_too() -> None:
    decode = _replica("d", DECODE)
    service = _service(_requests(1, output=100), _split(), decode)
    service.advance(ns(1.3))
    service.abort(0, ns(1.3))
    service.abort(0, ns(1.4))
    assert list(service.requests.status) == [FAILED] and service.failed == 1
    assert (decode.in_flight, _held(decode)) == (0, 0)


def test_a_request_that_has_not_come_cannot_be_aborted() -> None:
    service = _service(_requests(1), _split(), *_pair())
    with pytest.raises(ValueError, match="has not arrived"):
        service.abort(0, ns(0.5))


# ---- what the decode pod loses on the way ----


def test_blocks_that_the_decode_pod_evicts_during_a_transfer_are_sent_after_it() -> None:
    """The second prompt's beginning is in the decode pod's cache when its own part is sent, and evicted meanwhile."""

    def moved(evicted: int) -> int:
        content = Content(16, [((0, 50), (100, 112)), ((0, 50), (200, 212))])
        prefill, decode = _replica("p", PREFILL, caching=True), _replica("d", DECODE, caching=True)
        service = _service(_requests(1, 3, content=content), _split("tcp-25g"), prefill, decode)
        service.advance(ns(3.05))
        service.settle(ns(3.05))
        assert _held(decode) == 63 and service.requests.status[1] == PENDING
        assert decode.engine is not None and decode.engine.cache is not None
        decode.engine.cache.evict(evicted)
        assert _play(service, 10) == [DONE, DONE]
        assert _held(prefill, decode) == 0
        return service.transfers_ns[1]

    link = kv_link("tcp-25g")
    first = transfer_ns(link, kv_bytes(13, 16, BYTES))
    assert moved(0) == first
    assert moved(13) == first, "what the first prompt had for itself goes first, and is not missed"
    assert moved(23) == first + transfer_ns(link, kv_bytes(10, 16, BYTES))
    assert moved(63) == first + transfer_ns(link, kv_bytes(50, 16, BYTES))


# ---- in a scenario ----


HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: documents, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: documents-decode}
  minReplicas: 1
  maxReplicas: 2
"""


def _run(tmp_path: Path, policy: str, options: RunOptions | None = None, **split: object) -> Result:
    document = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    document |= {"duration": "1m"}
    for traffic in document["traffic"]:
        traffic["profile"] = str(EXAMPLE / traffic["profile"])
        traffic["rate"] = 0.5
        traffic["split"] |= split
    for written in document["policies"].values():
        written["manifests"] = str(EXAMPLE / written["manifests"])
    shutil.copytree(EXAMPLE / "manifests" / "split", tmp_path / "scaled")
    (tmp_path / "scaled" / "hpa.yaml").write_text(HPA, encoding="utf-8")
    document["policies"]["by-slo"] = {"manifests": str(tmp_path / "scaled"), "scaling": "slo"}
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    return run(load(path), policy, options or RunOptions(check=True, seed=1))


def test_the_same_scenario_runs_with_pools_and_without(tmp_path: Path) -> None:
    split, aggregated = _run(tmp_path / "1", "split"), _run(tmp_path / "2", "aggregated")
    assert split.check.violations == aggregated.check.violations == []
    documents = split.services[0]
    assert documents.workload == "inference/documents-decode"
    routing = documents.routing
    assert routing is not msgspec.UNSET and routing.remote_prefills and routing.local_prefills == 0
    assert aggregated.services[0].routing is msgspec.UNSET
    served = [one.overall.requests + one.overall.undecided for result in (split, aggregated) for one in result.services]
    assert served[:2] == served[2:], "the same requests come"


def test_series_count_the_pods_of_both_pools(tmp_path: Path) -> None:
    assert _run(tmp_path, "split").series.services[0].replicas_wanted[-1] == 4


@pytest.mark.fuzz
def test_equal_seeds_give_equal_results_with_pools(tmp_path: Path) -> None:
    assert _run(tmp_path / "1", "split") == _run(tmp_path / "2", "split")


def test_one_pool_without_the_other_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"split\.decode"):
        _run(tmp_path, "split", decode={"role": "nothing"})


def test_the_slo_policy_does_not_size_two_pools(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sizes one pool"):
        _run(tmp_path, "by-slo")


@pytest.mark.fuzz
def test_splitting_pays_for_long_prompts_and_not_for_chats() -> None:
    share = {
        policy: [service.overall.share or 0.0 for service in shared_runs.result(EXAMPLE.name, policy).services]
        for policy in ("aggregated", "split")
    }
    (documents, chat), (documents_split, chat_split) = share["aggregated"], share["split"]
    assert documents_split > 0.99 > 0.95 > documents
    assert chat > 0.99 > 0.95 > chat_split


def test_every_second_is_sampled_as_it_was(tmp_path: Path) -> None:
    result = _run(tmp_path, "split")
    running = result.series.services[0].requests_running
    assert max(running) > 0 and len(running) == len(result.series.t_s)
    assert result.duration_s * NS_PER_S == 60 * NS_PER_S
