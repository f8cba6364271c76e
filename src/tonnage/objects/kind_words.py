"""What kubectl takes for a kind: its name, its plural, and its short name."""

from __future__ import annotations

from collections.abc import Collection

SHORT = {
    "cj": "CronJob",
    "cm": "ConfigMap",
    "deploy": "Deployment",
    "ds": "DaemonSet",
    "hpa": "HorizontalPodAutoscaler",
    "lws": "LeaderWorkerSet",
    "pdb": "PodDisruptionBudget",
    "po": "Pod",
    "pvc": "PersistentVolumeClaim",
    "rc": "ReplicationController",
    "rs": "ReplicaSet",
    "smon": "ServiceMonitor",
    "so": "ScaledObject",
    "sts": "StatefulSet",
    "svc": "Service",
    "vcjob": "Job",
}
"""kubectl's short names of kinds."""


def kind_of(word: str, there: Collection[str]) -> str | None:
    """The kind that the word names, in any of kubectl's spellings; None where it names none of those that are there."""
    kind = SHORT.get(word.lower())
    if kind is not None:
        return kind
    spelt = {f"{known.lower()}{end}": known for known in sorted(there) for end in ("", "s", "es")}
    return spelt.get(word.lower(), "Pod" if word.lower() in ("pod", "pods") else None)
