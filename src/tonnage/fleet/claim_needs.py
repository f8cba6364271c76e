"""What the ResourceClaims of a pod ask of its node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(frozen=True, slots=True)
class ClaimNeed:
    """What the claims of a pod ask. ``waits``: why the pod is unschedulable while they are as they are. ``keys``: its
    claims. ``asks``: the same as placement tells them apart: a claim made for the pod by what it asks, any other by its
    name. ``held``: the claim that was made for its extended resources, which is of the node that it was made for.
    ``known``: whether anybody looked at them."""

    waits: str = ""
    keys: tuple[ClaimKey, ...] = ()
    asks: tuple[str, ...] = ()
    held: ClaimKey | None = None
    known: bool = True

    @property
    def used(self) -> tuple[ClaimKey, ...]:
        """The claims that the pod uses where it stands."""
        return self.keys if self.held is None else (*self.keys, self.held)


NO_CLAIMS, UNKNOWN_CLAIMS = ClaimNeed(), ClaimNeed(known=False)
"""That of a pod without claims, and that of one of whose claims nobody knows."""


class PlannedDevices(NamedTuple):
    """What the claims of a pod take of a node to come: ``whole`` GPUs and MIG instances (``profiles``: resource and
    number, by name), on the instance ``types`` (by name) whose devices they select."""

    types: tuple[str, ...]
    whole: int = 0
    profiles: tuple[tuple[str, int], ...] = ()


class PodClaim(NamedTuple):
    """A claim as a pod names it: of its own name, or by the template from which it is made."""

    name: str
    claim: str = ""
    template: str = ""


def pod_claims(written: Iterable[Mapping[str, Any]]) -> Iterator[PodClaim]:
    """The claims of a pod by its ``spec.resourceClaims``."""
    for one in written:
        named, template = one.get("resourceClaimName"), one.get("resourceClaimTemplateName")
        yield PodClaim(str(one.get("name", "")), str(named or ""), str(template or ""))
