"""Pods and what a workload stamps them from.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go (ValidatePodSpec and below).
"""

from __future__ import annotations

from fractions import Fraction

from tonnage.objects.core import (
    Affinity,
    Container,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Probe,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
    is_pod_level,
)
from tonnage.objects.validate.common import INT64_MAX, LISTED, PROTOCOLS, TAINT_EFFECTS, UNLISTED, Report, Rule

_STANDARD = ("cpu", "memory", "ephemeral-storage")
_SPREAD = ("DoNotSchedule", "ScheduleAnyway")
_NODE_INCLUSION = ("Honor", "Ignore")


def pod(obj: Pod, report: Report) -> None:
    pod_spec("spec", obj.spec, report)


def pod_spec(field: str, spec: PodSpec, report: Report) -> None:
    """Everything below a pod's ``spec``, which stands at ``field``."""
    _containers(field, spec, report)
    report.labels(f"{field}.nodeSelector", spec.node_selector)
    report.one_of(f"{field}.restartPolicy", spec.restart_policy, ("Always", "OnFailure", "Never"))
    report.within(f"{field}.terminationGracePeriodSeconds", spec.termination_grace_period_seconds, 0, INT64_MAX)
    for index, toleration in enumerate(spec.tolerations):
        _toleration(f"{field}.tolerations[{index}]", toleration, report)
    if spec.affinity is not None:
        _affinity(f"{field}.affinity", spec.affinity, report)
    for index, constraint in enumerate(spec.topology_spread_constraints):
        _spread(f"{field}.topologySpreadConstraints[{index}]", constraint, report)
    gates = [gate.name for gate in spec.scheduling_gates]
    report.unique(f"{field}.schedulingGates[{{}}].name", gates, "a scheduling gate of this name")
    for name, written in spec.overhead.items():
        report.quantity(f"{field}.overhead.{name}", written)
    if spec.resources is not None:
        for name in {**spec.resources.requests, **spec.resources.limits}:
            if not is_pod_level(name):
                hint = "ask for it in a container"
                report.add(f"{field}.resources", f"{name} cannot be requested for the pod as a whole", hint)
        _resources(f"{field}.resources", spec.resources, report)


def _containers(field: str, spec: PodSpec, report: Report) -> None:
    if not spec.containers:
        report.add(f"{field}.containers", "a pod needs at least one container", "list it under containers")
    names = []
    for part, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            path = f"{field}.{part}[{index}]"
            _container(path, container, report)
            if container.name in names:
                report.add(f"{path}.name", f'"{container.name}": a container of this name stands twice', "rename one")
            names.append(container.name)


def _container(path: str, container: Container, report: Report) -> None:
    report.matches(f"{path}.name", container.name, Rule.LABEL)
    if not container.image:
        report.add(f"{path}.image", "the field is missing", "the API server requires it")
    for index, port in enumerate(container.ports):
        report.within(f"{path}.ports[{index}].containerPort", port.container_port, 1, 65535)
        report.one_of(f"{path}.ports[{index}].protocol", port.protocol, PROTOCOLS)
        if port.name:
            report.matches(f"{path}.ports[{index}].name", port.name, Rule.PORT_NAME)
    report.unique(f"{path}.ports[{{}}].name", [port.name for port in container.ports], "a port of this name")
    for index, variable in enumerate(container.env):
        if not variable.name or "=" in variable.name:
            report.refuse(f"{path}.env[{index}].name", variable.name, "a name without '='")
    _probe(f"{path}.livenessProbe", container.liveness_probe, report, success_once=True)
    _probe(f"{path}.startupProbe", container.startup_probe, report, success_once=True)
    _probe(f"{path}.readinessProbe", container.readiness_probe, report, success_once=False)
    _resources(f"{path}.resources", container.resources, report)


def _probe(path: str, probe: Probe | None, report: Report, *, success_once: bool) -> None:
    if probe is None:
        return
    report.within(f"{path}.initialDelaySeconds", probe.initial_delay_seconds, 0)
    report.within(f"{path}.timeoutSeconds", probe.timeout_seconds, 0)
    report.within(f"{path}.periodSeconds", probe.period_seconds, 0)
    report.within(f"{path}.failureThreshold", probe.failure_threshold, 0)
    if success_once and probe.success_threshold not in (0, 1):
        report.refuse(f"{path}.successThreshold", probe.success_threshold, "1", "only readiness may need several")
    report.within(f"{path}.successThreshold", probe.success_threshold, 0)


def _resources(path: str, resources: ResourceRequirements, report: Report) -> None:
    limits = {name: _amount(f"{path}.limits.{name}", name, q, report) for name, q in resources.limits.items()}
    for name, written in resources.requests.items():
        field = f"{path}.requests.{name}"
        request, limit = _amount(field, name, written, report), limits.get(name)
        shared = _is_native(name) and not name.startswith("hugepages-")
        if request is None:
            continue
        if name not in limits:
            if not shared:
                message = f"{name} has a request and no limit: Limit must be set for non overcommitable resources"
                report.add(field, message, f"add limits with {name}: {written}")
        elif limit is not None and shared and request > limit:
            report.refuse(field, written, f"at most the limit of {resources.limits[name]}")
        elif limit is not None and not shared and request != limit:
            report.refuse(field, written, f"the limit's {resources.limits[name]}", f"{name} cannot be overcommitted")


def _amount(field: str, name: str, written: str | int | float, report: Report) -> Fraction | None:
    """The quantity of a container's resource; None when it is refused."""
    bare = "/" not in name
    if bare and name not in _STANDARD and not name.startswith("hugepages-"):
        hint = "extended resources have a domain, e.g. nvidia.com/gpu"
        report.add(field, f'"{name}": not a resource that a container can ask for', hint)
    elif not bare and (not Rule.QUALIFIED.holds(name) or name.startswith("requests.")):
        report.refuse(field, name, "the name of an extended resource, e.g. nvidia.com/gpu")
    value = report.quantity(field, written)
    if value is not None and not _is_native(name) and value.denominator != 1:
        hint = "share a GPU by time-slicing, MPS or MIG, or ask for a whole one"
        report.refuse(field, written, f"a whole number of {name}", hint)
        return None
    return value


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _toleration(path: str, toleration: Toleration, report: Report) -> None:
    if toleration.key:
        report.matches(f"{path}.key", toleration.key, Rule.QUALIFIED)
    elif toleration.operator != "Exists":
        report.refuse(f"{path}.operator", toleration.operator, "Exists, as there is no key", "name a key")
    if toleration.effect:
        report.one_of(f"{path}.effect", toleration.effect, TAINT_EFFECTS)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        report.refuse(f"{path}.effect", toleration.effect, "NoExecute, as there are tolerationSeconds")
    if report.one_of(f"{path}.operator", toleration.operator or "Equal", ("Equal", "Exists")):
        if toleration.operator == "Exists" and toleration.value:
            report.refuse(f"{path}.value", toleration.value, "no value beside Exists", "remove it or use Equal")
        else:
            report.matches(f"{path}.value", toleration.value, Rule.LABEL_VALUE)


def _affinity(path: str, affinity: Affinity, report: Report) -> None:
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    node = affinity.node_affinity
    if node is not None:
        if node.required_during_scheduling_ignored_during_execution is not None:
            terms = node.required_during_scheduling_ignored_during_execution.node_selector_terms
            field = f"{path}.nodeAffinity.{required}.nodeSelectorTerms"
            if not terms:
                report.add(field, "expected at least one term", "no term matches no node")
            for index, term in enumerate(terms):
                _node_term(f"{field}[{index}]", term, report)
        for index, wish in enumerate(node.preferred_during_scheduling_ignored_during_execution):
            field = f"{path}.nodeAffinity.{preferred}[{index}]"
            report.within(f"{field}.weight", wish.weight, 1, 100)
            _node_term(f"{field}.preference", wish.preference, report)
    for name, part in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if part is not None:
            for index, pod_term in enumerate(part.required_during_scheduling_ignored_during_execution):
                _pod_term(f"{path}.{name}.{required}[{index}]", pod_term, report)
            for index, weighted in enumerate(part.preferred_during_scheduling_ignored_during_execution):
                _weighted(f"{path}.{name}.{preferred}[{index}]", weighted, report)


def _weighted(path: str, weighted: WeightedPodAffinityTerm, report: Report) -> None:
    report.within(f"{path}.weight", weighted.weight, 1, 100)
    _pod_term(f"{path}.podAffinityTerm", weighted.pod_affinity_term, report)


def _pod_term(path: str, term: PodAffinityTerm, report: Report) -> None:
    report.matches(f"{path}.topologyKey", term.topology_key, Rule.QUALIFIED)
    report.selector(f"{path}.labelSelector", term.label_selector)
    report.selector(f"{path}.namespaceSelector", term.namespace_selector)
    for index, namespace in enumerate(term.namespaces):
        report.matches(f"{path}.namespaces[{index}]", namespace, Rule.LABEL)


def _node_term(path: str, term: NodeSelectorTerm, report: Report) -> None:
    for index, wanted in enumerate(term.match_expressions):
        field = f"{path}.matchExpressions[{index}]"
        report.matches(f"{field}.key", wanted.key, Rule.QUALIFIED)
        if report.one_of(f"{field}.operator", wanted.operator, (*LISTED, *UNLISTED, "Gt", "Lt")):
            report.operator_values(field, wanted.operator, wanted.values)
    for index, wanted in enumerate(term.match_fields):
        field = f"{path}.matchFields[{index}]"
        report.one_of(f"{field}.key", wanted.key, ("metadata.name",))
        if report.one_of(f"{field}.operator", wanted.operator, LISTED) and len(wanted.values) != 1:
            report.add(
                f"{field}.values",
                f"expected exactly one value, not {len(wanted.values)}",
                "name one node a term",
            )


def _spread(path: str, constraint: TopologySpreadConstraint, report: Report) -> None:
    report.within(f"{path}.maxSkew", constraint.max_skew, 1)
    report.matches(f"{path}.topologyKey", constraint.topology_key, Rule.QUALIFIED)
    report.required(f"{path}.whenUnsatisfiable")
    report.one_of(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _SPREAD)
    report.one_of(f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _NODE_INCLUSION)
    report.one_of(f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _NODE_INCLUSION)
    report.selector(f"{path}.labelSelector", constraint.label_selector)
    report.within(f"{path}.minDomains", constraint.min_domains, 1)
    if constraint.min_domains is not None and constraint.when_unsatisfiable != "DoNotSchedule":
        report.refuse(f"{path}.minDomains", constraint.min_domains, "no minDomains unless DoNotSchedule")
    if constraint.match_label_keys and constraint.label_selector is None:
        report.add(f"{path}.matchLabelKeys", "matchLabelKeys needs a labelSelector", "add one or remove it")
