"""Label keys of affinity and topology spread, which a new pod has merged into its selectors by its labels.

Source: kubernetes/kubernetes v1.36 pkg/registry/core/pod/strategy.go (mutatePodAffinity,
mutateTopologySpreadConstraints). What is not of the form that is expected is left to validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]


def merge(pod: JsonObject) -> None:
    """Merge them, in place; for a pod that is made, once."""
    labels, spec = pod["metadata"].get("labels"), pod.get("spec")
    if not isinstance(labels, dict) or not isinstance(spec, dict):
        return
    for term in (*_terms(spec), *_dicts(spec.get("topologySpreadConstraints"))):
        selector = term.get("labelSelector")
        if not isinstance(selector, dict):
            continue
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            keys = term.get(field)
            for key in keys if isinstance(keys, list) else ():
                if isinstance(key, str) and key in labels:
                    wanted = {"key": key, "operator": operator, "values": [labels[key]]}
                    selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), wanted]


def _terms(spec: JsonObject) -> Iterator[JsonObject]:
    affinity = next(_dicts([spec.get("affinity")]), None)
    for group in _dicts([affinity.get("podAffinity"), affinity.get("podAntiAffinity")] if affinity else []):
        for wish in _dicts(group.get("preferredDuringSchedulingIgnoredDuringExecution")):
            yield from _dicts([wish.get("podAffinityTerm")])
        yield from _dicts(group.get("requiredDuringSchedulingIgnoredDuringExecution"))


def _dicts(written: object) -> Iterator[JsonObject]:
    yield from (one for one in written if isinstance(one, dict)) if isinstance(written, list) else ()
