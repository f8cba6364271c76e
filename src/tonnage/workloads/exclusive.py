"""One topology domain for each Job of a JobSet, or group of a LeaderWorkerSet, and no other Job or group in it.

The webhooks write this into the pods: all of one Job (group, subgroup) get a label with its key; its leader gets pod
affinity to pods of that key and anti-affinity to pods of any other. The others are sent after their leader; here the
gang's rule keeps them in one domain, whether they come with it or after it. Sources: kubernetes-sigs/jobset
pkg/webhooks/pod_mutating_webhook.go, kubernetes-sigs/lws pkg/webhooks/pod_webhook.go.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from tonnage.objects import core

ANY_NAMESPACE = core.LabelSelector()


def key_of(*names: str) -> str:
    """The key of a Job or group by its names, the namespace first."""
    return hashlib.sha1("/".join(names).encode(), usedforsecurity=False).hexdigest()


def alone_in_domain(
    spec: core.PodSpec, label: str, key: str, topology_key: str, namespaces: core.LabelSelector | None
) -> core.PodSpec:
    """The pod with affinity to pods that have this key as ``label``, and anti-affinity to those that have another one.
    ``namespaces``: selects those in which such pods are looked for; None: the pod's own."""
    mine = core.LabelSelectorRequirement(key=label, operator="In", values=[key])
    others = [
        core.LabelSelectorRequirement(key=label, operator="Exists"),
        core.LabelSelectorRequirement(key=label, operator="NotIn", values=[key]),
    ]
    affinity = spec.affinity or core.Affinity()
    near = affinity.pod_affinity or core.PodAffinity()
    apart = affinity.pod_anti_affinity or core.PodAntiAffinity()
    terms = [
        core.PodAffinityTerm(
            topology_key=topology_key,
            label_selector=core.LabelSelector(match_expressions=wanted),
            namespace_selector=namespaces,
        )
        for wanted in ([mine], others)
    ]
    required = near.required_during_scheduling_ignored_during_execution
    forbidden = apart.required_during_scheduling_ignored_during_execution
    near = replace(near, required_during_scheduling_ignored_during_execution=[*required, terms[0]])
    apart = replace(apart, required_during_scheduling_ignored_during_execution=[*forbidden, terms[1]])
    return replace(spec, affinity=replace(affinity, pod_affinity=near, pod_anti_affinity=apart))
