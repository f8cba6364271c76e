"""What the ResourceClaims of pods ask for, and which claims there are.

An ask is a text: that of a claim which was made for its pod is what it asks for, so that the pods of a template cannot
be told apart; any other is its name. What a pod requests of extended resources is an ask too; which of them a claim has
to serve is another matter on each node.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tonnage.dra import extended
from tonnage.fleet.claim_needs import NO_CLAIMS, ClaimKey, ClaimNeed, PodClaim, pod_claims
from tonnage.objects import core
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, ObjectMeta, OwnerReference
from tonnage.objects.compute_domains import domain_of
from tonnage.objects.dra import (
    EXTENDED_CLAIM,
    POD_CLAIM_NAME,
    V1,
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)

_SHARED, _EXTENDED = "=", "+"
"""Mark, among what a class asks for, a claim that counts by its name, and what is asked of extended resources."""
_LONGEST, _LETTERS, _SUFFIX = 63, "bcdfghjklmnpqrstvwxz2456789", 5
"""Of generated names.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/storage/names/generate.go."""


class ClaimAsks:
    """Claims and templates as they are now, and what pods ask by them.

    ``channels``: the claims for channels of ComputeDomains.

    ``makes``: claims of pods that no API server has are made here, as the resource claim controller would, under the
    name POD-CLAIM. ``allocated``: the claims that have devices. ``news``: pods (namespace, name) whose need may be
    another than it was, but for what their own claims are; ``served``: extended resource → the class that serves
    it."""

    def __init__(self, *, makes: bool) -> None:
        self.makes = makes
        self.allocated: Container[ClaimKey] = ()
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.templates: dict[ClaimKey, ResourceClaimTemplate] = {}
        self.channels: set[ClaimKey] = set()
        self.served: dict[str, str] = {}
        self.news: set[tuple[str, str]] = set()
        self._made: dict[ClaimKey, Mapping[str, str | None]] = {}
        self._held: dict[tuple[str, str], str] = {}
        """Pod → name of the claim for its extended resources, by its status."""
        self._left: dict[tuple[str, str], dict[ClaimKey, str]] = {}
        """Pod → claims that were made for its extended resources, each with the uid of the pod that it is of."""
        self._asked: dict[str, ResourceClaim] = {}
        self._parts: dict[str, dict[str, tuple[DeviceRequest, ...]]] = {}
        self._on: dict[tuple[str, frozenset[str]], str] = {}

    def unallocated(self) -> ClaimAsks:
        """The same claims, those to come too, where none has devices."""
        made = ClaimAsks(makes=self.makes)
        made.claims, made.templates, made.served = self.claims, self.templates, self.served
        made.channels = self.channels
        made._made, made._held, made._left = self._made, self._held, self._left
        made._asked, made._parts, made._on = self._asked, self._parts, self._on
        return made

    # ---- what there is ----

    def see(self, claim: ResourceClaim) -> None:
        """Note a claim."""
        key = key_of(claim)
        self.claims[key] = claim
        if domain_of(claim.spec):
            self.channels.add(key)
        for pod, uid in _owners(claim):
            known = self._left.setdefault(pod, {})
            if known.get(key) != uid:
                known[key] = uid
                self.news.add(pod)

    def forget(self, key: ClaimKey) -> None:
        """The claim is gone."""
        claim = self.claims.pop(key, None)
        self.channels.discard(key)
        for pod, _ in _owners(claim) if claim is not None else ():
            known = self._left.get(pod, {})
            if known.pop(key, None) is not None:
                self.news.add(pod)
            if not known:
                self._left.pop(pod, None)

    def note_pod(self, namespace: str, pod: str, statuses: Iterable[Mapping[str, Any]], extended_claim: str) -> bool:
        """The claims that were made for a pod, by its status; whether that is news."""
        made = {str(one.get("name", "")): one.get("resourceClaimName") for one in statuses}
        if self._made.get((namespace, pod), {}) == made and self._held.get((namespace, pod), "") == extended_claim:
            return False
        self._made.pop((namespace, pod), None)
        self._held.pop((namespace, pod), None)
        if made:
            self._made[namespace, pod] = made
        if extended_claim:
            self._held[namespace, pod] = extended_claim
        self.news.add((namespace, pod))
        return True

    def take_news(self) -> set[tuple[str, str]]:
        """Who is in ``news``; nobody is any more."""
        found, self.news = self.news, set()
        return found

    # ---- what a pod needs ----

    def may_need(self, spec: core.PodSpec) -> bool:
        """Whether a pod with this spec may need claims."""
        return bool(spec.resource_claims) or self._extended(spec)

    def _extended(self, spec: core.PodSpec) -> bool:
        if not self.served:
            return False
        of = ([one.resources.requests, one.resources.limits] for one in (*spec.containers, *spec.init_containers))
        return any(name in self.served for pair in of for amounts in pair for name in amounts)

    def need(self, namespace: str, pod: str, uid: str, spec: core.PodSpec) -> ClaimNeed:
        """What the claims of a pod ask. ``uid``: empty where no API server has it."""
        held = self._held_by(namespace, pod, uid)
        if held is None and not self.may_need(spec):
            return NO_CLAIMS
        keys: list[ClaimKey] = []
        asks: list[str] = []
        for one in pod_claims(spec.resource_claims):
            name = one.claim or self._name_of(namespace, pod, one, makes=self.makes and not uid)
            if name is None:
                if one.name in self._made.get((namespace, pod), {}):
                    continue  # the template asks for nothing: no claim is needed
                return ClaimNeed(f'pod "{namespace}/{pod}": ResourceClaim not created yet', held=held)
            claim = self.claims.get((namespace, name))
            if claim is None:
                return ClaimNeed(f'resourceclaim.resource.k8s.io "{name}" not found', held=held)
            if claim.metadata.deletion_timestamp:
                return ClaimNeed(f'resourceclaim "{name}" is being deleted', held=held)
            key = namespace, name
            keys.append(key)
            asks.append(self._ask(key, claim) if one.template else f"{_SHARED}{namespace}/{name}")
        if self._extended(spec):
            asks += self._extended_ask(spec)
        return ClaimNeed("", tuple(keys), tuple(asks), held)

    def _held_by(self, namespace: str, pod: str, uid: str) -> ClaimKey | None:
        """The claim that there is for the pod's extended resources; its status may still name one that is gone."""
        named = namespace, self._held.get((namespace, pod), "")
        if named in self.claims:
            return named
        left = self._left.get((namespace, pod), {})
        return min((key for key, owner in left.items() if uid and owner == uid), default=None)

    def _name_of(self, namespace: str, pod: str, one: PodClaim, *, makes: bool) -> str | None:
        made = self._made.get((namespace, pod), {})
        if one.name in made or not makes:
            return made.get(one.name)
        template = self.templates.get((namespace, one.template))
        name = f"{pod}-{one.name}"
        if template is None:
            return None
        if (namespace, name) not in self.claims:
            meta = ObjectMeta(
                name=name,
                namespace=namespace,
                labels=template.spec.metadata.labels,
                annotations={POD_CLAIM_NAME: one.name},
                owner_references=[OwnerReference(api_version="v1", kind="Pod", name=pod, controller=True)],
            )
            made_of = ResourceClaim(api_version=V1, kind="ResourceClaim", metadata=meta, spec=template.spec.spec)
            self.see(made_of)
        return name

    def _ask(self, key: ClaimKey, claim: ResourceClaim) -> str:
        return f"{_SHARED}{key[0]}/{key[1]}" if key in self.allocated else self._text(claim)

    def _text(self, claim: ResourceClaim) -> str:
        text = msgspec.json.encode(claim.spec, order="sorted").decode()
        self._asked.setdefault(text, claim)
        return text

    def _extended_ask(self, spec: core.PodSpec) -> list[str]:
        parts = {name: one.requests for name, one in extended.asked(spec, self.served).items() if one.requests}
        if not parts:
            return []
        text = _EXTENDED + msgspec.json.encode(parts, order="sorted").decode()
        self._parts.setdefault(text, parts)
        return [text]

    def mappings(self, spec: core.PodSpec, served: frozenset[str]) -> tuple[core.ContainerExtendedResourceRequest, ...]:
        """Which container has what of the claim for the pod's extended resources, where claims serve these."""
        parts = extended.asked(spec, {name: of for name, of in self.served.items() if name in served})
        return extended.in_order(one for _, one in sorted(parts.items())).mappings

    # ---- what an ask is ----

    def claim_of(self, ask: str) -> ResourceClaim | None:
        """A claim that asks for that; the one of the name, where it counts by its name."""
        if not counts_by_name(ask):
            return self._asked.get(ask)
        namespace, _, name = ask[1:].partition("/")
        return self.claims.get((namespace, name))

    def on_node(self, asks: Sequence[str], served: frozenset[str]) -> tuple[str, ...]:
        """The asks as they are on a node where claims serve these extended resources."""
        if not any(ask.startswith(_EXTENDED) for ask in asks):
            return tuple(asks)
        return tuple(text for ask in asks if (text := self._ask_on(ask, served)))

    def _ask_on(self, ask: str, served: frozenset[str]) -> str:
        if not ask.startswith(_EXTENDED):
            return ask
        known = self._on.get((ask, served))
        if known is None:
            requests = _requests(self._parts[ask], served)
            claim = ResourceClaim(api_version=V1, kind="ResourceClaim", metadata=ObjectMeta(name=""), spec=requests)
            known = self._on[ask, served] = self._text(claim) if requests.devices.requests else ""
        return known

    def extended_claim(
        self, namespace: str, pod: str, uid: str, asks: Sequence[str], served: frozenset[str]
    ) -> ResourceClaim | None:
        """The claim to be made for the extended resources of a pod where claims serve these; None: there is none to
        be. Its name is what the API server would draw for it, drawn by the pod's uid."""
        ask = next((one for one in asks if one.startswith(_EXTENDED)), None)
        spec = _requests(self._parts[ask], served) if ask is not None else None
        if spec is None or not spec.devices.requests:
            return None
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod, uid=uid, controller=True)
        name = _drawn(f"{pod}-extended-resources-", uid or f"{namespace}/{pod}")
        while (namespace, name) in self.claims:
            name += "+"  # one that is held already: no API server takes such a name, nor is it ever asked to
        meta = ObjectMeta(
            name=name, namespace=namespace, annotations={EXTENDED_CLAIM: "true"}, owner_references=[owner]
        )
        return ResourceClaim(api_version=V1, kind="ResourceClaim", metadata=meta, spec=spec)


def counts_by_name(ask: str) -> bool:
    """Whether the ask is of a claim that counts by its name."""
    return ask.startswith(_SHARED)


def is_extended(claim: ResourceClaim) -> bool:
    """Whether the claim was made for extended resources of a pod."""
    return claim.metadata.annotations.get(EXTENDED_CLAIM) == "true"


def key_of(one: KubeObject) -> ClaimKey:
    """Namespace and name."""
    return one.namespace or DEFAULT_NAMESPACE, one.name


def _owners(claim: ResourceClaim) -> Collection[tuple[tuple[str, str], str]]:
    """The pod, with its uid, for whose extended resources the claim was made."""
    if not is_extended(claim):
        return ()
    owners = (one for one in claim.metadata.owner_references if one.controller and one.kind == "Pod")
    return [((key_of(claim)[0], one.name), one.uid) for one in owners]


def _requests(parts: Mapping[str, tuple[DeviceRequest, ...]], served: Collection[str]) -> ResourceClaimSpec:
    several = [extended.ServedRequests(requests, ()) for name, requests in sorted(parts.items()) if name in served]
    return ResourceClaimSpec(devices=DeviceClaim(requests=list(extended.in_order(several).requests)))


def _drawn(base: str, seed: str) -> str:
    number, letters = zlib.crc32(seed.encode()), []
    for _ in range(_SUFFIX):
        number, at = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[at])
    return base[: _LONGEST - _SUFFIX] + "".join(letters)
