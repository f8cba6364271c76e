"""The health of GPUs: which observations make a GPU unhealthy, what ends that, and who shares its fate."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from deep_seeds import deep
from tonnage.facts import xids
from tonnage.node.device_health import (
    DeviceHealth,
    DeviceTested,
    HealthReading,
    HealthRules,
    Observation,
    ResetSeen,
    XidSeen,
)
from tonnage.units import NS_PER_S as S

GPU, OTHER = "GPU-a", "GPU-b"
RULES = HealthRules(settle_s=30, burst_s=0)


def _health(*seen: Observation, rules: HealthRules = RULES) -> DeviceHealth:
    health = DeviceHealth(rules)
    health.observe_all(seen)
    return health


def _names(health: DeviceHealth, gpu: str = GPU) -> list[str]:
    return [cause.name for cause in health.causes(gpu)]


@pytest.mark.parametrize(
    ("xid", "healthy", "action"),
    [
        (13, True, ""),  # the application's fault
        (31, True, ""),
        (43, True, ""),
        (63, True, ""),  # NVIDIA's device plugin would take the GPU away for it
        (94, True, ""),  # contained: the process ends, the GPU goes on
        (109, False, "RESET_GPU"),  # which NVIDIA's device plugin ignores
        (48, False, "RESET_GPU"),
        (79, False, "RESTART_BM"),
        (119, False, "RESET_GPU"),
        (151, False, "RESTART_VM"),
        (54, False, "CHECK_MECHANICALS"),
        (74, False, "WORKFLOW_NVLINK_ERR"),
        (162, True, ""),
        (171, True, ""),
        (999, False, "CONTACT_SUPPORT"),
    ],
)
def test_an_xid_takes_a_gpu_out_of_service_as_the_catalogue_says(xid: int, healthy: bool, action: str) -> None:
    health = _health(XidSeen(0, GPU, xid))
    assert (health.healthy(GPU), health.action(GPU)) == (healthy, action)
    assert health.seen[GPU, None, xid] == (1, 0), "every Xid is counted"


def test_one_transient_xid_takes_a_gpu_away_for_the_settling_time_only() -> None:
    """NVIDIA/k8s-device-plugin 1014: one Xid removed a GPU until the plugin was restarted."""
    health = _health(XidSeen(0, GPU, 119), *(HealthReading(t * S, GPU, recovery=0) for t in range(2, 32, 2)))
    assert not health.healthy(GPU)
    change = health.observe(HealthReading(32 * S, GPU, recovery=0))
    assert change is not None
    assert change.healthy
    assert health.seen[GPU, None, 119].times == 1, "counters stay when the GPU recovers"


def test_a_gpu_comes_back_when_the_driver_asks_for_nothing_any_more() -> None:
    health = _health(XidSeen(0, GPU, 95), *(HealthReading(t * S, GPU, recovery=1) for t in range(1, 100)))
    assert _names(health) == ["xid-95", "recovery-action"]
    assert health.action(GPU) == "RESET_GPU"
    health.observe_all(HealthReading((100 + t) * S, GPU, recovery=0) for t in range(30))
    assert not health.healthy(GPU)
    health.observe(HealthReading(130 * S, GPU, recovery=0))
    assert health.healthy(GPU)


def test_without_a_recovery_action_only_a_reset_or_a_test_is_evidence() -> None:
    """Memory can be read after a fatal Xid: an answer is none (review of Project-HAMi/HAMi 2201)."""
    health = _health(XidSeen(0, GPU, 119), *(HealthReading(t * S, GPU) for t in range(1, 600)))
    assert not health.healthy(GPU)
    again = _health(XidSeen(0, GPU, 119), ResetSeen(1 * S, GPU), HealthReading(2 * S, GPU), HealthReading(32 * S, GPU))
    assert again.healthy(GPU)
    tested = _health(
        XidSeen(0, GPU, 119), DeviceTested(1 * S, GPU, True), HealthReading(2 * S, GPU), HealthReading(32 * S, GPU)
    )
    assert tested.healthy(GPU)
    failed = _health(
        DeviceTested(0, GPU, False), ResetSeen(1, GPU), HealthReading(2 * S, GPU), HealthReading(900 * S, GPU)
    )
    assert _names(failed) == ["test-failed"], "a reset proves no test"


def test_an_xid_after_the_reset_needs_another_one() -> None:
    health = _health(XidSeen(0, GPU, 119), ResetSeen(1 * S, GPU), XidSeen(2 * S, GPU, 119))
    health.observe_all(HealthReading(t * S, GPU) for t in range(3, 90))
    assert not health.healthy(GPU)


def test_evidence_that_breaks_off_starts_over() -> None:
    health = _health(
        XidSeen(0, GPU, 119), HealthReading(1 * S, GPU, recovery=0), HealthReading(20 * S, GPU, answers=False)
    )
    health.observe(HealthReading(40 * S, GPU, recovery=0))
    assert not health.healthy(GPU)
    health.observe(HealthReading(70 * S, GPU, recovery=0))
    assert health.healthy(GPU)


def test_one_reading_that_fails_is_no_fault_and_two_are() -> None:
    """NVIDIA's device plugin marks every GPU of the node when one wait fails."""
    health = _health(HealthReading(0, GPU, answers=False), HealthReading(0, OTHER))
    assert health.healthy(GPU)
    health.observe(HealthReading(2 * S, GPU, answers=False))
    assert _names(health) == ["gpu-lost"]
    assert health.healthy(OTHER)
    assert not _health(HealthReading(0, GPU, lost=True)).healthy(GPU), "the driver knows at once"


def test_a_second_fault_has_its_own_cause_and_ends_on_its_own() -> None:
    """NVIDIA/NVSentinel 1439: the last event won."""
    health = _health(XidSeen(0, GPU, 95), HealthReading(1 * S, GPU, recovery=0, remap_pending=True))
    assert _names(health) == ["xid-95", "row-remap-pending"]
    health.observe(HealthReading(31 * S, GPU, recovery=0, remap_pending=True))
    assert _names(health) == ["row-remap-pending"]
    health.observe_all(
        [HealthReading(32 * S, GPU, remap_pending=False), HealthReading(62 * S, GPU, remap_pending=False)]
    )
    assert health.healthy(GPU)


def test_an_xid_that_reports_the_end_of_another_ends_it() -> None:
    """NVIDIA/NVSentinel 1252: 162 says that 163 is over."""
    rules = HealthRules(faults=frozenset({163}))
    assert not _health(XidSeen(0, GPU, 163), rules=rules).healthy(GPU)
    assert _health(XidSeen(0, GPU, 163), XidSeen(1, GPU, 162), rules=rules).healthy(GPU)


def test_nvlink_xids_are_the_drivers_to_judge_where_it_says_a_recovery_action() -> None:
    assert _health(HealthReading(0, GPU, recovery=0), XidSeen(1, GPU, 145)).healthy(GPU)
    assert not _health(HealthReading(0, GPU), XidSeen(1, GPU, 145)).healthy(GPU)
    judged = _health(HealthReading(0, GPU, recovery=0), XidSeen(1, GPU, 154), HealthReading(2, GPU, recovery=2))
    assert judged.action(GPU) == "RESTART_BM"


def test_what_the_driver_asks_for_goes_before_what_the_catalogue_says() -> None:
    health = _health(XidSeen(0, GPU, 79), HealthReading(1, GPU, recovery=1))
    assert health.action(GPU) == "RESET_GPU"
    assert _health(HealthReading(0, GPU, recovery=77)).action(GPU) == "CONTACT_SUPPORT"


def test_a_gpu_that_fails_again_and_again_is_for_support() -> None:
    rules = HealthRules(settle_s=10, repeats=3, within_s=3600, burst_s=60)
    health = DeviceHealth(rules)
    for start in (0, 600, 1200):
        health.observe_all(XidSeen((start + k) * S, GPU, 119) for k in range(5))  # a burst counts once
        health.observe_all(HealthReading((start + k) * S, GPU, recovery=0) for k in range(10, 40, 5))
    assert _names(health) == ["repeated-faults"]
    assert health.action(GPU) == "CONTACT_SUPPORT"
    health.observe_all(HealthReading((3700 + k) * S, GPU, recovery=0) for k in range(0, 15, 5))
    assert health.healthy(GPU), "the first fault is more than an hour ago"


@pytest.mark.parametrize(("xid", "rules", "healthy"), [
    (109, HealthRules(ignored=frozenset({109})), True),
    (13, HealthRules(faults=frozenset({13})), False),
    (13, HealthRules(ignored=frozenset({13}), faults=frozenset({13})), False),
])  # fmt: skip
def test_rules_of_a_cluster_go_before_the_catalogue(xid: int, rules: HealthRules, healthy: bool) -> None:
    assert _health(XidSeen(0, GPU, xid), rules=rules).healthy(GPU) is healthy


def test_every_mig_device_and_replica_shares_the_fate_of_its_gpu() -> None:
    """NVIDIA's device plugin keeps one device for each GPU: siblings were never marked."""
    parents = {f"MIG-{n}": GPU for n in range(7)} | {f"{OTHER}::{n}": OTHER for n in range(4)}
    health = _health(XidSeen(0, GPU, 95, instance=3))
    assert health.of_devices(parents) == {one: parent == OTHER for one, parent in parents.items()}


def test_the_catalogue_is_whole_and_its_actions_are_known() -> None:
    known = xids.actions()
    assert len(xids.all()) > 100
    for one in xids.all().values():
        assert one.effect in xids.EFFECTS
        assert not one.action or one.action in known
        assert one.effect != xids.APPLICATION or one.action == "RESTART_APP"
        assert one.effect != xids.FAULT or known[one.action].drain or known[one.action].target == "person"
        assert all(other in xids.all() for other in one.clears)
    assert {one.xid for one in xids.all().values() if one.device_plugin == "ignored"} == {13, 31, 43, 45, 68, 109}
    assert {value: name for value, name in xids.recovery_actions().items() if not name} == {0: ""}
    assert set(xids.recovery_actions().values()) - {""} <= set(known)


# ---- any sequence of faults ----


def expected(history: list[Observation], gpu: str, rules: HealthRules) -> set[str]:
    """The causes of a GPU, found from all that was observed of it, cause by cause: slow, and without any state."""
    own = [seen for seen in history if seen.gpu == gpu]
    readings = [seen for seen in own if isinstance(seen, HealthReading)]
    found = set()
    for name in {f"xid-{s.xid}" for s in own if isinstance(s, XidSeen)} | {
        "gpu-lost",
        "recovery-action",
        "test-failed",
    }:
        raised = [k for k, seen in enumerate(own) if _raises(own, k, name, rules)]
        if not raised or any(_ends(own, raised[-1], k, name) for k in range(raised[-1], len(own))):
            continue
        after = own[raised[-1] :]
        runs: list[list[int]] = [[]]
        for k, seen in enumerate(after):
            if isinstance(seen, HealthReading):
                runs = [*runs, []] if not _good(after, k, name) else [*runs[:-1], [*runs[-1], seen.at_ns]]
        if not any(run and run[-1] - run[0] >= rules.settle_s * S for run in runs):
            found.add(name)
    assert all(a.at_ns <= b.at_ns for a, b in pairwise(readings))
    return found


def _raises(own: list[Observation], k: int, name: str, rules: HealthRules) -> bool:
    seen = own[k]
    if name == "gpu-lost":
        failed = 0
        for one in own[: k + 1]:
            if isinstance(one, HealthReading):
                failed = 0 if one.answers else failed + 1
        return isinstance(seen, HealthReading) and (seen.lost or failed >= rules.misses)
    if name == "recovery-action":
        return isinstance(seen, HealthReading) and seen.answers and not seen.lost and seen.recovery not in (None, 0)
    if name == "test-failed":
        return isinstance(seen, DeviceTested) and not seen.passed
    if not isinstance(seen, XidSeen) or f"xid-{seen.xid}" != name:
        return False
    effect = xids.get(seen.xid).effect
    said = [o.recovery is not None for o in own[:k] if isinstance(o, HealthReading) and o.answers and not o.lost]
    # a reading after several failed ones counts as an answer again
    return effect == xids.FAULT or (effect == xids.DECODED and not (said and said[-1]))


def _ends(own: list[Observation], since: int, k: int, name: str) -> bool:
    seen = own[k]
    return k > since and isinstance(seen, XidSeen) and any(f"xid-{x}" == name for x in xids.get(seen.xid).clears)


def _good(after: list[Observation], k: int, name: str) -> bool:
    seen = after[k]
    assert isinstance(seen, HealthReading)
    if not seen.answers or seen.lost:
        return False
    tests = any(isinstance(one, DeviceTested) and one.passed for one in after[:k])
    renewed = tests or any(isinstance(one, ResetSeen) for one in after[:k])
    if name == "gpu-lost":
        return True
    if name == "recovery-action":
        return seen.recovery == 0
    if name == "test-failed":
        return tests
    return seen.recovery == 0 or (seen.recovery is None and renewed)


def _random(rng: random.Random, at_ns: int) -> Observation:
    gpu = rng.choice((GPU, OTHER))
    kind = rng.random()
    if kind < 0.2:
        return XidSeen(
            at_ns, gpu, rng.choice((13, 43, 48, 63, 74, 79, 94, 95, 109, 119, 145, 154, 999)), rng.choice((None, 1))
        )
    if kind < 0.3:
        return ResetSeen(at_ns, gpu)
    if kind < 0.36:
        return DeviceTested(at_ns, gpu, rng.random() < 0.7)
    answers = rng.random() < 0.9
    return HealthReading(at_ns, gpu, answers, answers and rng.random() < 0.04, rng.choice((None, 0, 0, 0, 0, 1, 2)))


@pytest.mark.parametrize("seed", [*range(8), *deep(range(8, 150))])
def test_no_gpu_is_healthy_with_a_cause_or_unhealthy_without_one_and_siblings_agree(seed: int) -> None:
    rng = random.Random(seed)
    rules = HealthRules(settle_s=rng.choice((0, 10, 30)), misses=rng.choice((1, 2, 3)), repeats=10**6)
    parents = {f"MIG-{gpu}-{n}::{r}": gpu for gpu in (GPU, OTHER) for n in range(3) for r in range(2)}
    health, history, at_ns = DeviceHealth(rules), list[Observation](), 0
    told = {GPU: True, OTHER: True}
    for _ in range(60):
        at_ns += rng.randrange(1, 12) * S
        history.append(_random(rng, at_ns))
        change = health.observe(history[-1])
        if change is not None:
            assert told[change.gpu] is not change.healthy, "a change is told once"
            told[change.gpu] = change.healthy
        for gpu in (GPU, OTHER):
            causes = expected(history, gpu, rules)
            assert {cause.name for cause in health.causes(gpu)} == causes
            assert health.healthy(gpu) is told[gpu] is (not causes)
            assert bool(health.action(gpu)) is bool(causes)
        assert {one: health.healthy(gpu) for one, gpu in parents.items()} == health.of_devices(parents)
