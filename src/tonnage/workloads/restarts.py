"""Which pods of a workload restart after a failure, and when the workload has failed.

The rules are data (:mod:`tonnage.facts.restarts`), a row for each kind, failure policy and cause. Here they are
applied: the pods that a row means are found, counters are counted and compared with their limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tonnage.facts import restarts as table
from tonnage.facts.labels import JOB_NAME
from tonnage.facts.restarts import RestartRule
from tonnage.objects import batch, ray, training
from tonnage.objects.base import KubeObject
from tonnage.units import NS_PER_S
from tonnage.workloads.failures import Cause, FailedPod, case_of, job_set_case
from tonnage.workloads.replicas import WorkloadPod

Counters = Mapping[str, int]
"""What has been counted so far: ``counter/of what``. Empty at first; give back what the last restart gave."""

_PER_POD = frozenset({"container-restarts", "index-failures"})
_SUMMED = {"jobset-restarts": ("jobset-restarts", "job-restarts"), "job-restarts": ("jobset-restarts", "job-restarts")}
"""Counters that are compared with their limit together with others."""
_PER_JOB = frozenset({"job-restarts"})
_LASTING = frozenset({"jobset-restarts", "job-restarts", "attempts", "retries"})
"""Counters of the workload, which outlive its pods."""

INDEX_FAILED = "index-failed/"
"""Prefix of the counters of pods whose index has failed for good."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What becomes of a workload after a failure. Names are those of replicas, in their order.

    ``recreated``: pods that end, if they have not, and are recreated; they keep no node. Pods that had succeeded may
    be among them. ``restarted``: pods whose containers start again where they are. ``stopped``: pods that end for good.
    ``failed``: the workload is over; pods that it does not stop go on until they end by themselves. ``delay_ns``: how
    long the controller or the kubelet waits first. ``rule``: the row of the table that decided; ``reason``: why the
    workload is over, as its condition Failed says.
    """

    recreated: tuple[str, ...]
    restarted: tuple[str, ...]
    stopped: tuple[str, ...]
    failed: bool
    counters: Counters
    delay_ns: int
    rule: str
    reason: str = ""


def restart(
    workload: KubeObject,
    replicas: Sequence[WorkloadPod],
    failed: Sequence[str],
    cause: Cause,
    counters: Counters,
    exit_code: int = 1,
    pending: AbstractSet[str] = frozenset(),
) -> Restart:
    """What restarts when the replicas named ``failed`` fail at one time for one cause.

    ``workload``: as :func:`tonnage.workloads.replicas.resolved` gives it, ``replicas``: all its pods. ``exit_code``
    counts when a container exited. ``pending``: replicas that do not run yet. Raises KeyError for a name that
    is not a replica's, TypeError for an object that makes no pods.
    """
    known = {replica.name: replica for replica in replicas}
    state = _State(workload, tuple(replicas), dict(counters))
    for name in sorted(failed, key=list(known).index):
        replica = known[name]
        if name in state.recreated or state.failed:
            continue
        starting = any(one.name in pending for one in replicas if one.group == replica.group)
        state.apply(case_of(workload, replicas, replica, cause, exit_code, starting), replica, cause)
    return state.result(failed)


@dataclass(slots=True)
class _State:
    """A restart as it is worked out, one failed pod after another."""

    workload: KubeObject
    replicas: tuple[WorkloadPod, ...]
    counters: dict[str, int]
    recreated: set[str] = field(default_factory=set)
    restarted: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    failed: bool = False
    by_limit: bool = False
    delay_ns: int = 0
    rule: str = ""
    reason: str = ""

    def apply(self, case: FailedPod, failed: WorkloadPod, cause: Cause) -> None:
        """The consequences of one failed pod, by the first row that matches."""
        self._follow(_rule(case, failed, cause), case, failed, cause)

    def _follow(self, rule: RestartRule, case: FailedPod, failed: WorkloadPod, cause: Cause) -> None:
        self.rule = rule.rule
        if rule.restarts == "fails":
            self._fail(case, failed, "PodFailurePolicy", cause)
            return
        if rule.counter:
            key = _counter_key(rule.counter, case, failed)
            self.counters[key] = self.counters.get(key, 0) + 1
        if self._is_over(rule, case, failed):
            self._beyond(rule, case, failed, cause)
            return
        self._act(rule, case, failed)
        if rule.backoff:
            self._wait(rule, case, failed)

    def _is_over(self, rule: RestartRule, case: FailedPod, failed: WorkloadPod) -> bool:
        limit = case.limits.get(rule.limit)
        if limit is None:
            return False
        if rule.over == "zero":
            return limit == 0
        count = self._count(rule.counter, case, failed)
        return count > limit if rule.over == "above" else count >= max(limit, 1)

    def _count(self, counter: str, case: FailedPod, failed: WorkloadPod) -> int:
        """The counter as its limit sees it: restarts of all pods of the scope, failures of one index alone."""
        if counter in _SUMMED:
            prefixes = tuple(f"{name}/" for name in _SUMMED[counter])
            return sum(count for key, count in self.counters.items() if key.startswith(prefixes))
        if counter == "container-restarts":
            return sum(self.counters.get(f"{counter}/{one.name}", 0) for one in case.members)
        return self.counters.get(_counter_key(counter, case, failed), 0)

    def _beyond(self, rule: RestartRule, case: FailedPod, failed: WorkloadPod, cause: Cause) -> None:
        if rule.beyond == "fails":
            self.by_limit = True
            self._fail(case, failed, _REASONS.get(rule.limit, "BackoffLimitExceeded"), cause)
            return
        other = next(one for one in table.rules() if one.rule == rule.beyond)
        self._follow(other, case, failed, cause)

    def _fail(self, case: FailedPod, failed: WorkloadPod, reason: str, cause: Cause) -> None:
        """The scope has failed: a Job of a JobSet hands over to the JobSet, anything else ends."""
        if case.kind == "Job" and isinstance(self.workload, batch.JobSet):
            self.by_limit = False
            outer = job_set_case(self.workload, self.replicas, failed, reason)
            self.apply(outer, failed, cause)
            return
        self.failed, self.reason = True, reason
        self.stopped = {one.name for one in self.replicas if _ends(self.workload, one, self.by_limit)}

    def _act(self, rule: RestartRule, case: FailedPod, failed: WorkloadPod) -> None:
        """Put the pods that the row means where they belong."""
        if rule.restarts == "container":
            self.restarted.add(failed.name)
        elif rule.restarts == "none":
            self.stopped.add(failed.name)
        elif rule.restarts == "index-fails":
            self.stopped.add(failed.name)
            self.counters[INDEX_FAILED + failed.name] = 1
        else:
            for one in _meant(rule.restarts, self.replicas, failed):
                self._recreate(one)
            if rule.restarts in ("all", "job"):
                self._forget_jobs(rule.restarts, failed)
        if rule.also == "others":
            self.restarted |= {one.name for one in self.replicas if one.name != failed.name}
        elif rule.also:
            self._fail_too(rule)

    def _fail_too(self, rule: RestartRule) -> None:
        """Pods of another role exit because of this one, each by its own row."""
        for one in self.replicas:
            if one.role == rule.also and one.name not in self.recreated and not self.failed:
                case = case_of(self.workload, self.replicas, one, Cause.PERMANENT, 1, False)
                self.apply(case, one, Cause.PERMANENT)
        if not self.failed:
            self.rule = rule.rule

    def _recreate(self, one: WorkloadPod) -> None:
        """A pod that is recreated starts with its restarts at 0."""
        self.recreated.add(one.name)
        for counter in ("container-restarts", "wait"):
            self.counters.pop(f"{counter}/{one.name}", None)

    def _forget_jobs(self, scope: str, failed: WorkloadPod) -> None:
        """Jobs that are recreated have failed nothing yet; what counts for the whole workload stays."""
        mine = {one.name for one in _meant(scope, self.replicas, failed)}
        jobs = {one.labels.get(JOB_NAME, "") for one in self.replicas if one.name in mine}
        for key in list(self.counters):
            counter, _, of = key.partition("/")
            if counter not in _LASTING and (of in mine or of in jobs):
                del self.counters[key]

    def _wait(self, rule: RestartRule, case: FailedPod, failed: WorkloadPod) -> None:
        alone = rule.backoff == "kubelet" or rule.counter in _PER_POD
        key = f"wait/{failed.name if alone else case.scope}"
        self.counters[key] = self.counters.get(key, 0) + 1
        seconds = table.backoffs()[rule.backoff].delay_s(self.counters[key])
        self.delay_ns = max(self.delay_ns, seconds * NS_PER_S)

    def result(self, failed: Sequence[str]) -> Restart:
        if self.failed:
            self.recreated, self.restarted = set(), set()
            self.stopped |= set(failed)
        order = [one.name for one in self.replicas]
        return Restart(
            recreated=tuple(name for name in order if name in self.recreated),
            restarted=tuple(name for name in order if name in self.restarted - self.recreated),
            stopped=tuple(name for name in order if name in self.stopped - self.recreated),
            failed=self.failed,
            counters=self.counters,
            delay_ns=0 if self.failed else self.delay_ns,
            rule=self.rule,
            reason=self.reason,
        )


_REASONS = {"maxFailedIndexes": "MaxFailedIndexesExceeded", "backoffLimit": "BackoffLimitExceeded"}


def _rule(case: FailedPod, failed: WorkloadPod, cause: Cause) -> RestartRule:
    """The row that decides. The table has one for every kind, whatever the policy and the cause."""
    return next(one for one in table.rules() if one.matches(case.kind, case.policy, failed.role, cause.value))


def _counter_key(counter: str, case: FailedPod, failed: WorkloadPod) -> str:
    if counter in _PER_POD:
        return f"{counter}/{failed.name}"
    return f"{counter}/{failed.labels.get(JOB_NAME, case.scope) if counter in _PER_JOB else case.scope}"


def _meant(restarts: str, replicas: Sequence[WorkloadPod], failed: WorkloadPod) -> list[WorkloadPod]:
    """The pods that a row's word means."""
    if restarts == "all":
        return list(replicas)
    if restarts == "task":
        return [one for one in replicas if one.role == failed.role]
    if restarts == "job":
        return [one for one in replicas if (one.role, one.group) == (failed.role, failed.group)]
    if restarts == "group":
        return [one for one in replicas if one.group == failed.group]
    return [failed]


def _ends(workload: KubeObject, one: WorkloadPod, by_limit: bool) -> bool:
    """Whether a failed workload's controller ends the pod, or leaves it to itself.

    Sources: kubeflow/training-operator pkg/controller.v1/common/job.go DeletePodsAndServices (a limit ends all pods,
    whatever cleanPodPolicy says), kubeflow/mpi-operator deleteWorkerPods, ray-project/kuberay shutdownAfterJobFinishes.
    """
    if isinstance(workload, training.KubeflowJob):
        kept = workload.spec.run_policy.clean_pod_policy == "None"
        if isinstance(workload, training.MPIJob):
            return not kept or one.role == "Launcher"
        return by_limit or not kept
    if isinstance(workload, ray.RayJob):
        return workload.spec.shutdown_after_job_finishes or one.role == "submitter"
    return True
