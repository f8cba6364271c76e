"""Device plugin or ResourceClaims: for each workload and version of Kubernetes, and why.

The facts are :mod:`tonnage.facts.claim_support`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from tonnage.dra.nvidia import MIG_CLASS
from tonnage.errors import Where
from tonnage.facts import claim_support
from tonnage.facts.claim_support import CLAIMS, CONSUMED, EXTENDED, PARTITION, PARTITIONS, WHOLE, Release
from tonnage.facts.labels import GPU
from tonnage.fleet import asks
from tonnage.health.device_ways.dead import Revival
from tonnage.health.device_ways.pods import PodsToConvert, pods_of
from tonnage.health.device_ways.written import Written, inner, listed, without_owned
from tonnage.objects import core

DYNAMIC_MIG = "DynamicMIG"
KARPENTER, CLUSTER_AUTOSCALER, AUTO_MODE = "karpenter", "cluster-autoscaler", "auto-mode"
_TITLES = {KARPENTER: "Karpenter", CLUSTER_AUTOSCALER: "the Cluster Autoscaler", AUTO_MODE: "EKS Auto Mode"}


class Choice(StrEnum):
    """What serves the devices best."""

    PLUGIN = "device plugin"
    CLAIMS = "claims"
    EITHER = "either"
    NOTHING = "nothing"


class DeviceVerdict(Struct, frozen=True):
    """For one version of Kubernetes."""

    release: Release
    choice: Choice
    reasons: tuple[str, ...]


class DeviceAdvice(Struct, frozen=True):
    """``asks``: what the workload asks for, in words; ``verdicts``: one a version."""

    workload: str
    where: Where
    asks: str
    verdicts: tuple[DeviceVerdict, ...]


class _Asked(NamedTuple):
    """``devices``: WHOLE, PARTITION, or empty where there is nothing that an autoscaler could know. ``refused``: why
    nothing serves it."""

    text: str
    devices: str
    claims: bool = False
    spans: bool = False
    ask: asks.Ask = asks.NOTHING
    refused: str = ""


def releases() -> tuple[Release, ...]:
    """The versions at which an answer may change, and the one before the first of them."""
    known = claim_support.gates()
    found = sorted({on for name in (CLAIMS, EXTENDED, PARTITIONS) if (on := known[name].on) is not None})
    return ((found[0][0], found[0][1] - 1), *found)


def autoscalers(documents: Sequence[Written]) -> tuple[str, ...]:
    """The autoscalers of nodes that the documents speak of."""
    found = set[str]()
    for one in documents:
        if one.kind == "NodePool" and one.version.startswith("karpenter.sh/"):
            found.add(KARPENTER)
        elif one.kind == "NodeClass" and one.version.startswith("eks.amazonaws.com/"):
            found.add(AUTO_MODE)
        elif one.kind == "ClusterConfig":
            if inner(one.content, "autoModeConfig").get("enabled"):
                found.add(AUTO_MODE)
            if one.content.get("managedNodeGroups") or one.content.get("nodeGroups"):
                found.add(CLUSTER_AUTOSCALER)
        elif one.kind == "Deployment" and "cluster-autoscaler" in one.key[1]:
            found.add(CLUSTER_AUTOSCALER)
    return tuple(sorted(found - ({KARPENTER} if AUTO_MODE in found else set())))


def advise(documents: Sequence[Written], versions: Sequence[Release], scaled_by: Sequence[str]) -> list[DeviceAdvice]:
    """The advice for every template of pods that asks for GPUs, in order. ``scaled_by``: the autoscalers
    that launch the nodes; none: nodes are there, or nobody knows."""
    revived = Revival(without_owned(documents)[0]).run()
    classes = asked_classes(revived)
    found = []
    for one in revived:
        for of in pods_of(one):
            asked = _asked(of, classes)
            if asked is not None:
                verdicts = tuple(_verdict(asked, release, scaled_by) for release in versions)
                found.append(DeviceAdvice(one.title, one.where, asked.text, verdicts))
    return found


def asked_classes(documents: Sequence[Written]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The classes that claims ask, by (kind, namespace, name); of a ComputeDomain's template its kind."""
    found: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for one in documents:
        match one.kind:
            case "ResourceClaim":
                found[one.kind, *one.key] = tuple(_asked_classes(inner(one.content, "spec")))
            case "ResourceClaimTemplate":
                found[one.kind, *one.key] = tuple(_asked_classes(inner(one.content, "spec", "spec")))
            case "ComputeDomain":
                name = inner(one.content, "spec", "channel", "resourceClaimTemplate").get("name")
                found["ResourceClaimTemplate", one.key[0], str(name)] = (one.kind,)
    return found


def _asked_classes(spec: dict[str, object]) -> Iterator[str]:
    for one in listed(inner(spec, "devices"), "requests"):
        for way in (inner(one, "exactly"), *listed(one, "firstAvailable")):
            if way.get("deviceClassName"):
                yield str(way["deviceClassName"])


def _asked(of: PodsToConvert, classes: dict[tuple[str, str, str], tuple[str, ...]]) -> _Asked | None:
    named = listed(of.spec, "resourceClaims")
    if named:
        namespace = of.of.key[0]
        asked: list[str] = []
        for one in named:
            source = {**inner(one, "source"), **one}
            for kind in ("ResourceClaim", "ResourceClaimTemplate"):
                name = source.get("resourceClaimName" if kind == "ResourceClaim" else "resourceClaimTemplateName")
                asked += classes.get((kind, namespace, str(name)), ())
        spans = "ComputeDomain" in asked
        names = ", ".join(dict.fromkeys(one for one in asked if one != "ComputeDomain"))
        words = ["ResourceClaims" + (f" of {names}" if names else ""), *(["a ComputeDomain"] if spans else [])]
        return _Asked(" and ".join(words), PARTITION if MIG_CLASS in asked else WHOLE, claims=True, spans=spans)
    ask, spec = of.ask(), of.read()
    if spec is None or ask == asks.NOTHING:
        return None
    if ask.refused:
        return _Asked("what no scheduler reads", "", ask=ask, refused=ask.refused)
    if ask.shares:
        amount = f"{ask.milli / asks.FULL:g} of a GPU" if ask.kind is asks.Kind.SHARE else "part of a GPU's memory"
        return _Asked(amount, "", ask=ask)
    requested = core.pod_requests(spec)
    devices = ((name, n) for name, n in sorted(requested.items()) if asks.is_device(name) or asks.is_known(name))
    text = ", ".join(f"{name}: {n}" for name, n in devices)
    return _Asked(text, PARTITION if ask.profiles else WHOLE, ask=ask)


# ---- verdicts ----


def _verdict(asked: _Asked, release: Release, scaled_by: Sequence[str]) -> DeviceVerdict:
    choice, reasons = _chosen(asked, release, scaled_by)
    return DeviceVerdict(release, choice, tuple(reasons))


def _chosen(asked: _Asked, release: Release, scaled_by: Sequence[str]) -> tuple[Choice, list[str]]:
    gates = claim_support.gates()
    if asked.refused:
        return Choice.NOTHING, [asked.refused]
    if asked.claims:
        return _for_claims(asked, release, scaled_by)
    if asked.ask.shares:
        consumed = gates[CONSUMED]
        return Choice.PLUGIN, [
            "a scheduler that shares GPUs counts the parts (KAI, HAMi, or Tonnage's); a claim has amounts of a device"
            f" only with {CONSUMED}" + _since(consumed.on, release) + ", and NVIDIA's driver publishes no such devices"
        ]
    if asked.ask.resource == asks.SHARED_GPU:
        return Choice.PLUGIN, ["its replicas are counted; how many pods share a GPU by one claim is not"]
    if asked.ask.resource not in ("", GPU):
        return Choice.PLUGIN, [f"{asked.ask.resource} is not of NVIDIA's driver"]
    if not gates[CLAIMS].is_on(release):
        return Choice.PLUGIN, [f"ResourceClaims are on by default{_since(gates[CLAIMS].on, release)}"]
    refusing = _refusals(asked.devices, scaled_by)
    if refusing:
        return Choice.PLUGIN, refusing
    return _for_partitions(release) if asked.devices == PARTITION else _for_whole(release)


def _for_claims(asked: _Asked, release: Release, scaled_by: Sequence[str]) -> tuple[Choice, list[str]]:
    gates = claim_support.gates()
    if not gates[CLAIMS].is_on(release):
        switched = f"ResourceClaims are on by default{_since(gates[CLAIMS].on, release)}: its pods stay Pending"
        if asked.spans:
            return Choice.NOTHING, [switched, "no device plugin serves NVLink between nodes"]
        return Choice.NOTHING, [switched, "request nvidia.com/gpu or nvidia.com/mig-… of the device plugin"]
    reasons = _refusals(asked.devices, scaled_by)
    reasons = [f"nodes have to be there: {one}" for one in reasons]
    if asked.spans:
        reasons.insert(0, "no device plugin serves NVLink between nodes")
    if asked.devices == PARTITION and not gates[PARTITIONS].is_on(release):
        reasons.append(
            f"MIG devices have to be made beforehand: {PARTITIONS} is on{_since(gates[PARTITIONS].on, release)}"
        )
    return Choice.CLAIMS, reasons or ["claims are on, and nothing stands against them"]


def _for_whole(release: Release) -> tuple[Choice, list[str]]:
    gate = claim_support.gates()[EXTENDED]
    if gate.is_on(release):
        return Choice.EITHER, [
            f"{EXTENDED} is on: the DeviceClass of NVIDIA's driver serves {GPU}, without a change of the manifest"
        ]
    return Choice.PLUGIN, [
        "it serves whole GPUs as they are asked for;"
        f" {EXTENDED}, by which a DeviceClass does, is on{_since(gate.on, release)}"
    ]


def _for_partitions(release: Release) -> tuple[Choice, list[str]]:
    gate, dynamic = claim_support.gates()[PARTITIONS], claim_support.driver_gates()[DYNAMIC_MIG]
    if not gate.is_on(release):
        return Choice.PLUGIN, [
            f"claims get MIG devices that are there already; {PARTITIONS}, by which GPUs are partitioned for them, is"
            f" on{_since(gate.on, release)}"
        ]
    return Choice.CLAIMS, [
        "GPUs are partitioned when a claim is allocated, not before",
        f"NVIDIA's gate {dynamic.name} is {dynamic.stage} and {'on' if dynamic.on else 'off'} by default",
    ]


def _since(on: Release | None, release: Release) -> str:
    if on is None:
        return " in no version so far"
    return f" from {on[0]}.{on[1]} on" if on > release else ""


def _refusals(devices: str, scaled_by: Sequence[str]) -> list[str]:
    """Why no autoscaler launches nodes for such devices; none: one does, or there is none to."""
    known = claim_support.autoscalers()
    rows = [known[name, devices] for name in scaled_by if (name, devices) in known]
    if not rows or any(one.launches for one in rows):
        return []
    return [f"{_TITLES[one.name]} launches no nodes for claims: {one.why}" for one in rows]
