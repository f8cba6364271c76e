"""Karpenter's EC2NodeClasses.

Source: aws/karpenter-provider-aws pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml (v1.14.3). That its
values are of their fields' types is seen before, by the CRD's table in ``api/api_types.csv``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tonnage.facts.labels import EC2_NODE_CLASS, NODE_POOL
from tonnage.objects.decode import without_nulls
from tonnage.objects.karpenter import EC2NodeClass
from tonnage.objects.validate.common import Report

_FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
_ALIASES = {name.lower(): name for name in _FAMILIES if name != "Custom"}
_VOLUMES = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
_SIZE = re.compile(
    r"(?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|(?:[1-9]||[1-5][0-7]|58)Ti|(?:[1-9]||[1-5][0-9]|6[0-3]|64)T"
)
_QUANTITY = (
    r"(?:\+|-)?(?:(?:[0-9]+(?:\.[0-9]*)?)|(?:\.[0-9]+))(?:(?:[KMGTPE]i)|[numkMGTPE]|(?:[eE](?:\+|-)?(?:[0-9.]+)))?"
)
_AMOUNT = re.compile(_QUANTITY)
_THRESHOLD = re.compile(rf"(?:\d{{1,2}}(?:\.\d{{1,2}})?|100(?:\.0{{1,2}})?)%|(?:{_QUANTITY})?")
_SIGNALS = ("memory", "nodefs", "nodefs.inodesFree", "imagefs", "imagefs.inodesFree", "pid")
_EVICTIONS = tuple(name if "." in name else f"{name}.available" for name in _SIGNALS)
_RESERVED = ("cpu", "memory", "ephemeral-storage", "pid")
_OWN_TAGS = (
    "eks:eks-cluster-name",
    NODE_POOL,
    "karpenter.sh/nodeclaim",
    EC2_NODE_CLASS,
)
_CLUSTER_TAG = "kubernetes.io/cluster"
_TIMEOUTS = {"tcpEstablishedTimeout": (60, 432_000), "udpStreamTimeout": (60, 180), "udpTimeout": (30, 60)}
_MOST_TERMS, _MOST_TAGS, _MOST_MAPPINGS, _MOST_INTERFACES, _LONGEST_ALIAS = 30, 20, 50, 150, 30
_TERMS = {
    "amiSelectorTerms": ("tags", "id", "name", "alias", "ssmParameter"),
    "subnetSelectorTerms": ("tags", "id"),
    "securityGroupSelectorTerms": ("tags", "id", "name"),
    "capacityReservationSelectorTerms": ("tags", "id", "instanceMatchCriteria"),
}
"""Of which each term has at least one."""
_IDS = {
    "amiSelectorTerms": re.compile(r"ami-[0-9a-z]+"),
    "subnetSelectorTerms": re.compile(r"subnet-[0-9a-z]+"),
    "securityGroupSelectorTerms": re.compile(r"sg-[0-9a-z]+"),
    "capacityReservationSelectorTerms": re.compile(r"^cr-[0-9a-z]+$"),
}


def ec2_node_class(obj: EC2NodeClass, report: Report) -> None:
    """Everything that is wrong with a node class whose values are of their fields' types."""
    spec = without_nulls(report.written["spec"])
    if ("role" in spec) == ("instanceProfile" in spec):
        report.add("spec.role", "expected either role or instanceProfile", "set exactly one of them")
    for field in ("role", "instanceProfile"):
        if spec.get(field) == "":
            report.refuse(f"spec.{field}", "", "a name", "leave it out or name one")
    for field in _TERMS:
        if field in spec or field != "capacityReservationSelectorTerms":
            _terms(field, spec.get(field) or [], report)
    _images(spec, report)
    _volumes(spec.get("blockDeviceMappings") or [], report)
    _tags("spec.tags", spec.get("tags") or {}, report)
    _kubelet(spec.get("kubelet") or {}, report)
    _network(spec, report)
    _choices(spec, report)


def _terms(field: str, terms: list[dict[str, Any]], report: Report) -> None:
    if not 1 <= len(terms) <= _MOST_TERMS:
        message = f"{len(terms)} terms: expected 1 to {_MOST_TERMS}"
        report.add(f"spec.{field}", message, "name what to select")
    for number, term in enumerate(terms):
        path = f"spec.{field}[{number}]"
        if not any(name in term for name in _TERMS[field]):
            report.add(path, "the term selects nothing", f"give it one of {', '.join(_TERMS[field])}")
        if "id" in term and not _IDS[field].search(term["id"]):
            report.refuse(f"{path}.id", term["id"], f"an id such as {_IDS[field].pattern.strip('^$')}")
        tags = term.get("tags") or {}
        if len(tags) > _MOST_TAGS:
            report.add(f"{path}.tags", f"{len(tags)} tags: expected at most {_MOST_TAGS}", "name fewer")
        for key, value in tags.items():
            if not key or not value:
                report.add(f"{path}.tags", "a tag without a key or a value", 'any value is "*"')
    alone = [number for number, term in enumerate(terms) if "id" in term and len(term) > 1]
    every = field != "amiSelectorTerms"  # there the rule is broken by any of them, elsewhere only by all
    if alone and (not every or len(alone) == len(terms)):
        report.add(f"spec.{field}[{alone[0]}].id", "an id is combined with other fields", "an id says it all")
    for number, term in enumerate(terms):
        path = f"spec.{field}[{number}]"
        if "instanceMatchCriteria" in term:
            report.one_of(f"{path}.instanceMatchCriteria", term["instanceMatchCriteria"], ("open", "targeted"))
        owner = term.get("ownerID")
        if owner is not None and not re.fullmatch("[0-9]{12}", owner):
            report.refuse(f"{path}.ownerID", owner, "an account of 12 digits")


def _images(spec: Mapping[str, Any], report: Report) -> None:
    terms = spec.get("amiSelectorTerms") or []
    family = spec.get("amiFamily")
    if family is not None:
        report.one_of("spec.amiFamily", family, _FAMILIES)
    for number, term in enumerate(terms):
        alias, path = term.get("alias"), f"spec.amiSelectorTerms[{number}].alias"
        if alias is None:
            continue
        name, _, version = alias.partition("@")
        if not re.fullmatch("[a-zA-Z0-9]+@.+", alias) or name not in _ALIASES or len(alias) > _LONGEST_ALIAS:
            report.refuse(path, alias, "family@version, e.g. al2023@latest")
        elif name.startswith("windows") and version != "latest":
            report.refuse(path, alias, f"{name}@latest", "of Windows there is no other")
        elif family not in (None, "Custom", _ALIASES[name]) and family in _FAMILIES:
            report.refuse("spec.amiFamily", family, f"{_ALIASES[name]} or Custom with the alias {alias}")
        if len(terms) > 1 or any(other in term for other in ("id", "tags", "name", "owner")):
            report.add(path, "an alias is combined with other terms", "an alias must be the only term")
    if family is None and not any("alias" in term for term in terms):
        report.add("spec.amiFamily", "the field is missing", "it is needed without an alias")


def _volumes(mappings: list[dict[str, Any]], report: Report) -> None:
    if len(mappings) > _MOST_MAPPINGS:
        message = f"{len(mappings)} mappings: expected at most {_MOST_MAPPINGS}"
        report.add("spec.blockDeviceMappings", message, "remove some")
    if sum(one.get("rootVolume") is True for one in mappings) > 1:
        report.add(
            "spec.blockDeviceMappings", "several mappings are rootVolume", "mark the one with the kubelet's data"
        )
    for number, one in enumerate(mappings):
        ebs, path = one.get("ebs"), f"spec.blockDeviceMappings[{number}].ebs"
        if ebs is None:
            continue
        if "volumeType" in ebs:
            report.one_of(f"{path}.volumeType", ebs["volumeType"], _VOLUMES)
        size = ebs.get("volumeSize")
        if size is not None and not _SIZE.fullmatch(size):
            report.refuse(f"{path}.volumeSize", size, "1Gi to 58Ti, e.g. 200Gi")
        if "volumeSize" not in ebs and "snapshotID" not in ebs:
            report.add(path, "neither volumeSize nor snapshotID", "give one of them")
        rate = ebs.get("volumeInitializationRate")
        report.within(f"{path}.volumeInitializationRate", rate, 100, 300)
        if rate is not None and not ebs.get("snapshotID"):
            report.add(f"{path}.volumeInitializationRate", "it needs snapshotID", "name the snapshot or remove it")


def _tags(path: str, tags: Mapping[str, str], report: Report) -> None:
    for key in tags:
        if not key:
            report.add(path, "a tag without a key", "name it")
        elif key in _OWN_TAGS or key.startswith(_CLUSTER_TAG):
            report.refuse(f"{path}.{key}", key, "a tag that Karpenter and EKS do not set themselves")


def _kubelet(kubelet: Mapping[str, Any], report: Report) -> None:
    path = "spec.kubelet"
    for field in ("maxPods", "podsPerCore"):
        report.within(f"{path}.{field}", kubelet.get(field), 0)
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    report.within(f"{path}.imageGCHighThresholdPercent", high, 0, 100)
    report.within(f"{path}.imageGCLowThresholdPercent", low, 0, 100)
    if high is not None and low is not None and high <= low:
        report.refuse(f"{path}.imageGCHighThresholdPercent", high, f"more than imageGCLowThresholdPercent, {low}")
    for field in ("kubeReserved", "systemReserved"):
        for name, amount in (kubelet.get(field) or {}).items():
            if name not in _RESERVED:
                report.refuse(f"{path}.{field}.{name}", name, f"one of {', '.join(_RESERVED)}")
            if not _AMOUNT.fullmatch(amount) or amount.startswith("-"):
                report.refuse(f"{path}.{field}.{name}", amount, "a quantity of at least 0")
    soft, grace = kubelet.get("evictionSoft"), kubelet.get("evictionSoftGracePeriod")
    for field, given in (
        ("evictionHard", kubelet.get("evictionHard")), ("evictionSoft", soft), ("evictionSoftGracePeriod", grace),
    ):  # fmt: skip
        for name, amount in (given or {}).items():
            if name not in _EVICTIONS:
                report.refuse(f"{path}.{field}.{name}", name, f"one of {', '.join(_EVICTIONS)}")
            if field != "evictionSoftGracePeriod" and not _THRESHOLD.fullmatch(amount):
                report.refuse(f"{path}.{field}.{name}", amount, "a quantity or a percentage, e.g. 5%")
    for field, one, other, others in (
        ("evictionSoft", soft, "evictionSoftGracePeriod", grace),
        ("evictionSoftGracePeriod", grace, "evictionSoft", soft),
    ):
        for name in one or {}:
            if name not in (others or {}):
                report.add(f"{path}.{field}.{name}", f"{other} does not have it", "give both or neither")


def _network(spec: Mapping[str, Any], report: Report) -> None:
    interfaces = spec.get("networkInterfaces") or []
    path = "spec.networkInterfaces"
    if len(interfaces) > _MOST_INTERFACES:
        report.add(path, f"{len(interfaces)} interfaces: expected at most {_MOST_INTERFACES}", "remove some")
    for number, one in enumerate(interfaces):
        for field in ("deviceIndex", "interfaceType", "networkCardIndex"):
            if field not in one:
                report.add(f"{path}[{number}].{field}", "the field is missing", "the API server requires it")
        for field in ("deviceIndex", "networkCardIndex"):
            report.within(f"{path}[{number}].{field}", one.get(field), 0)
        if "interfaceType" in one:
            report.one_of(f"{path}[{number}].interfaceType", one["interfaceType"], ("interface", "efa-only"))
    if interfaces and ("interface", 0, 0) not in list(map(_place, interfaces)):
        report.add(path, "no primary interface", "add interfaceType: interface with both indexes 0")
    places = Counter(place[1:] for place in map(_place, interfaces))
    efas = Counter(place[1] for place in map(_place, interfaces) if place[0] == "efa-only")
    if any(count > 1 for count in (*places.values(), *efas.values())):
        report.add(
            path, "two interfaces at one place, or two EFAs on one card", "give each its own deviceIndex or card"
        )
    tracking = spec.get("connectionTracking")
    if tracking is not None:
        if not any(name in tracking for name in _TIMEOUTS):
            report.add("spec.connectionTracking", "no timeout is set", f"set one of {', '.join(_TIMEOUTS)}")
        for name, (low, high) in _TIMEOUTS.items():
            report.within(f"spec.connectionTracking.{name}", tracking.get(name), low, high)
    group = spec.get("placementGroupSelector")
    if group is not None:
        if ("name" in group) == ("id" in group):
            report.add("spec.placementGroupSelector", "expected either name or id", "set exactly one of them")
        if "id" in group and not re.fullmatch("pg-[0-9a-z]+", group["id"]):
            report.refuse("spec.placementGroupSelector.id", group["id"], "an id such as pg-0123")
        if group.get("name") == "":
            report.refuse("spec.placementGroupSelector.name", "", "a name")


def _place(one: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return one.get("interfaceType"), one.get("networkCardIndex"), one.get("deviceIndex")


def _choices(spec: Mapping[str, Any], report: Report) -> None:
    for path, value, allowed in _enumerated(spec):
        if value is not None:
            report.one_of(path, value, allowed)
    metadata = spec.get("metadataOptions") or {}
    report.within("spec.metadataOptions.httpPutResponseHopLimit", metadata.get("httpPutResponseHopLimit"), 1, 64)
    report.within("spec.ipPrefixCount", spec.get("ipPrefixCount"), 0)


def _enumerated(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    metadata, cpu = spec.get("metadataOptions") or {}, spec.get("cpuOptions") or {}
    switch = ("enabled", "disabled")
    yield "spec.instanceStorePolicy", spec.get("instanceStorePolicy"), ("RAID0",)
    yield "spec.metadataOptions.httpEndpoint", metadata.get("httpEndpoint"), switch
    yield "spec.metadataOptions.httpProtocolIPv6", metadata.get("httpProtocolIPv6"), switch
    yield "spec.metadataOptions.httpTokens", metadata.get("httpTokens"), ("required", "optional")
    yield "spec.cpuOptions.nestedVirtualization", cpu.get("nestedVirtualization"), switch
