"""Pods that ask a device plugin, as pods with ResourceClaims; those that name claims as no pod does any more."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tonnage.dra import extended
from tonnage.dra.nvidia import DRIVER, GPU_CLASS, MIG_CLASS
from tonnage.errors import InputError
from tonnage.facts import gpus, mig
from tonnage.facts.labels import GPU, GPU_PRODUCT, MIG_PREFIX, product_of
from tonnage.facts.mig import MigProfile
from tonnage.fleet import asks
from tonnage.health.device_ways.written import Note, Written, inner, listed, part, word
from tonnage.objects import core, dra
from tonnage.objects.decode import without_nulls
from tonnage.objects.nvidia_device_configs import API_VERSION
from tonnage.objects.templates import pod_specs
from tonnage.workloads.admission.claim_quotas import PER_CLASS, REQUESTED

_CLAIM = "gpus"
"""The claim as pods that are converted call it."""
_LONGEST_NAME = 63
_SINGLE = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_KAI = (asks.FRACTION, asks.FRACTION_MEMORY, asks.FRACTION_DEVICES)
_MPS_GATE = "NVIDIA's driver shares by MPS only with its gate MPSSupport"


class PodsToConvert(NamedTuple):
    """Pods of one template. ``field``: of their spec; ``above``: what that stands in; ``pods``: how many there are,
    None: not known."""

    of: Written
    field: str
    above: dict[str, Any]
    spec: dict[str, Any]
    number: int

    @property
    def pods(self) -> int | None:
        """How many pods there are, where the object says so."""
        if self.of.kind == "Pod":
            return 1
        replicas = without_nulls(inner(self.of.content, "spec")).get("replicas", 1)
        return replicas if self.of.kind in _SINGLE and isinstance(replicas, int) else None

    @property
    def annotations(self) -> dict[str, str]:
        """Of the pods."""
        written = without_nulls({"annotations": inner(self.above, "metadata", "annotations")})
        return {name: str(value) for name, value in written["annotations"].items()}

    def read(self) -> core.PodSpec | None:
        """The spec, None where it cannot be read as one."""
        try:
            return msgspec.convert(without_nulls(self.spec), core.PodSpec, strict=False)
        except msgspec.ValidationError:
            return None

    def ask(self) -> asks.Ask:
        """What the pods ask of devices."""
        spec = self.read()
        if spec is None:
            return asks.NOTHING
        try:
            return asks.read(spec, core.pod_requests(spec), self.annotations)
        except ValueError:
            return asks.NOTHING

    @property
    def gpu(self) -> gpus.Gpu | None:
        """The GPU that the pods select by its label, where it is known."""
        label = inner(self.spec, "nodeSelector").get(GPU_PRODUCT)
        try:
            return gpus.get(product_of(str(label))[0]) if label else None
        except InputError:
            return None


def pods_of(one: Written) -> Iterator[PodsToConvert]:
    """The pods of an object, whatever its kind."""
    for number, (field, above, spec) in enumerate(pod_specs(one.content, "", {})):
        yield PodsToConvert(one, field, above, spec, number)


class Conversion:
    """Converts the documents of one input, which may name each other."""

    def __init__(self, documents: Sequence[Written]) -> None:
        self._documents = [Written(copy.deepcopy(one.content), one.where) for one in documents]
        self.notes: list[Note] = []
        self._made: list[Written] = []
        self._claims = {one.key: one for one in self._documents if one.kind == "ResourceClaim"}
        self._templates = {one.key: one for one in self._documents if one.kind == "ResourceClaimTemplate"}
        self._names = {*self._claims, *self._templates}
        self._used = {key for one in self._documents for of in pods_of(one) for key in _named(of)}

    def run(self) -> list[Written]:
        """The documents, with the claims that were made before those that use them."""
        found: list[Written] = []
        for one in self._documents:
            self._made = []
            for of in pods_of(one):
                self._flatten(of)
                self._devices(of)
            if one.kind == "ResourceQuota":
                self._quota(one)
            elif one.kind == "LimitRange":
                self._defaults(one)
            found += [*self._made, one]
        return found

    # ---- pods that name claims ----

    def _flatten(self, of: PodsToConvert) -> None:
        for one in listed(of.spec, "resourceClaims"):
            source = one.pop("source", None)
            if isinstance(source, dict):
                one |= source
                self._say(of, f"resourceClaims {one.get('name')}: its source is written beside its name")
            template = word(one, "resourceClaimTemplateName")
            if template and (of.of.key[0], template) not in self._templates:
                self._adopt(of, one, template)

    def _adopt(self, of: PodsToConvert, one: dict[str, Any], template: str) -> None:
        """A template that is not there: the one claim beside it that nobody uses is what was meant."""
        namespace = of.of.key[0]
        unused = [
            each
            for key, each in sorted(self._claims.items())
            if key[0] == namespace and key not in self._used and each.where.file == of.of.where.file
        ]
        missing = f"the ResourceClaimTemplate {template} is not among the files"
        if len(unused) != 1:
            self._lose(of, f"{missing}: its pods stay Pending")
            return
        (found,) = unused
        if _is_shared(found):
            one.pop("resourceClaimTemplateName")
            one["resourceClaimName"] = found.key[1]
            self._lose(of, f"{missing}: its pods share the ResourceClaim {found.key[1]}, which nobody else uses")
            return
        meta = {"name": template, "namespace": namespace}
        made = {"apiVersion": dra.V1, "kind": "ResourceClaimTemplate", "metadata": meta}
        self._made.append(Written({**made, "spec": {"spec": found.content.get("spec", {})}}, found.where))
        self._templates[namespace, template] = found
        self._lose(of, f"{missing}: it is made from the ResourceClaim {found.key[1]}, which nobody uses")

    # ---- pods that ask a device plugin ----

    def _devices(self, of: PodsToConvert) -> None:
        ask, spec = of.ask(), of.read()
        if spec is None or ask == asks.NOTHING:
            return
        if ask.refused:
            self._lose(of, f"is left as it is: {ask.refused}")
        elif ask.shares:
            self._share(of, ask)
        elif ask.resource == asks.SHARED_GPU:
            self._replicas(of, spec)
        elif ask.resource in ("", GPU):
            self._whole(of, spec)
        else:
            self._lose(of, f"is left as it is: {ask.resource} is none of the resources that NVIDIA's driver serves")

    def _whole(self, of: PodsToConvert, spec: core.PodSpec) -> None:
        names = {name for one in (*spec.containers, *spec.init_containers) for name in core.container_requests(one)}
        classes = {name: MIG_CLASS if name.startswith(MIG_PREFIX) else GPU_CLASS for name in names if _is_served(name)}
        computed = sorted(name for name in names if name.startswith(MIG_PREFIX) and "c." in name)
        if computed:
            self._lose(of, f"is left as it is: NVIDIA's driver has no compute instances ({computed[0]})")
            return
        parts = extended.asked(spec, classes)
        asked = extended.in_order(one for _, one in sorted(parts.items()))
        resource_of = {one.request_name: one.resource_name for one in asked.mappings}
        requests = [_request(one, resource_of[one.name]) for one in asked.requests]
        count = sum(one["exactly"].get("count", 1) for one in requests)
        if count > dra.MOST_RESULTS:
            self._lose(of, f"is left as it is: it asks for {count} devices, and a claim has {dra.MOST_RESULTS} at most")
            return
        uses: dict[str, list[str]] = {}
        for one in asked.mappings:
            uses.setdefault(one.container_name, []).append(one.request_name)
        template = self._template(of, {"requests": requests}, uses, set(classes))
        said = ", ".join(f"{name}: {n}" for name, n in sorted(core.pod_requests(spec).items()) if name in classes)
        self._say(of, f"{said} are devices of the ResourceClaimTemplate {template}")

    def _replicas(self, of: PodsToConvert, spec: core.PodSpec) -> None:
        if (of.pods or 0) > dra.MOST_CONSUMERS or of.pods is None:
            why = "how many pods it has is not known" if of.pods is None else f"a claim has {dra.MOST_CONSUMERS} users"
            self._lose(of, f"{asks.SHARED_GPU} is left as it is: {why}")
            return
        sharing = {"strategy": "TimeSlicing"}
        self._shared_claim(of, GPU_CLASS, sharing, {asks.SHARED_GPU}, _askers(spec, asks.SHARED_GPU))
        self._lose(
            of,
            f"{asks.SHARED_GPU}: its {of.pods} pods share one GPU, and with nobody else; how many may is not counted",
        )

    def _share(self, of: PodsToConvert, ask: asks.Ask) -> None:
        named = _wanted(ask)
        resources = {GPU, *asks.VIRTUAL}
        profile = _covering(of.gpu, ask)
        if ask.count != 1:
            self._lose(of, f"{named} is left as it is: of {ask.count} devices")
        elif profile is not None:
            expression = f"device.attributes['{DRIVER}'].profile == '{profile.name}'"
            exactly = {"deviceClassName": MIG_CLASS, "selectors": [{"cel": {"expression": expression}}]}
            request = {"name": "gpu", "exactly": exactly}
            uses = {str(of.spec["containers"][0].get("name")): ["gpu"]}
            self._template(of, {"requests": [request]}, uses, resources)
            parts = f"{profile.compute_slices} of {profile.of_compute_slices} compute and"
            parts += f" {profile.memory_slices} of {profile.of_memory_slices}"
            self._lose(of, f"{named} is the MIG profile {profile.name}, which has {parts} memory slices, and no more")
        elif ask.kind is asks.Kind.SHARE and of.pods is not None and of.pods * ask.milli <= asks.FULL:
            limits = {"defaultActiveThreadPercentage": ask.milli * 100 // asks.FULL}
            sharing = {"strategy": "MPS", "mpsConfig": limits}
            self._shared_claim(of, GPU_CLASS, sharing, resources, [str(of.spec["containers"][0].get("name"))])
            self._lose(of, f"{named}: its pods share one GPU by MPS, which limits threads, not memory; {_MPS_GATE}")
        else:
            self._lose(
                of,
                f"{named} is left as it is: NVIDIA's driver counts no parts of a GPU but MIG devices; with a"
                f" nodeSelector {GPU_PRODUCT} of a GPU that can be partitioned the profile is known",
            )

    def _shared_claim(
        self,
        of: PodsToConvert,
        device_class: str,
        sharing: Mapping[str, Any],
        resources: set[str],
        containers: Sequence[str],
    ) -> None:
        parameters = {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": dict(sharing)}
        devices = {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class}}],
            "config": [{"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": parameters}}],
        }
        spec = {"devices": devices}
        self._make(of, "ResourceClaim", "resourceClaimName", spec, {one: [] for one in containers})
        self._strip(of, resources)

    def _template(
        self, of: PodsToConvert, devices: Mapping[str, Any], uses: Mapping[str, list[str]], resources: set[str]
    ) -> str:
        """Its name."""
        spec = {"spec": {"devices": dict(devices)}}
        name = self._make(of, "ResourceClaimTemplate", "resourceClaimTemplateName", spec, uses)
        self._strip(of, resources)
        return name

    def _make(
        self,
        of: PodsToConvert,
        kind: str,
        field: str,
        spec: Mapping[str, Any],
        uses: Mapping[str, Sequence[str]],
    ) -> str:
        """The claim or template, whose name is returned, and the pods that use it by the ``field``: containers with the
        requests that they use; none: all."""
        namespace = of.of.key[0]
        name = next(one for one in _names(of) if (namespace, one) not in self._names)
        self._names.add((namespace, name))
        taken = {word(one, "name") for one in listed(of.spec, "resourceClaims")}
        claim = next(one for one in _numbered(_CLAIM) if one not in taken)
        meta = {"name": name, "namespace": namespace}
        self._made.append(
            Written({"apiVersion": dra.V1, "kind": kind, "metadata": meta, "spec": dict(spec)}, of.of.where)
        )
        of.spec["resourceClaims"] = [*listed(of.spec, "resourceClaims"), {"name": claim, field: name}]
        for one in _containers(of.spec):
            requests = uses.get(str(one.get("name")))
            if requests is not None:
                claims = [{"name": claim, "request": request} for request in requests] or [{"name": claim}]
                resources = part(one, "resources")
                resources["claims"] = [*listed(resources, "claims"), *claims]
        return name

    def _strip(self, of: PodsToConvert, resources: set[str]) -> None:
        """The pods ask the device plugin no more."""
        for one in _containers(of.spec):
            for field in ("requests", "limits"):
                amounts = inner(one, "resources", field)
                if amounts.keys() & resources:
                    left = {name: amount for name, amount in amounts.items() if name not in resources}
                    one["resources"].pop(field)
                    one["resources"] |= {field: left} if left else {}
        if any(name in of.annotations for name in _KAI):
            meta = part(of.above, "metadata")
            annotations = part(meta, "annotations")
            for name in _KAI:
                annotations.pop(name, None)
            if not annotations:
                meta.pop("annotations")

    # ---- quotas ----

    def _quota(self, one: Written) -> None:
        spec = one.content.get("spec")
        hard = spec.get("hard") if isinstance(spec, dict) else None
        if not isinstance(hard, dict):
            return
        if (amount := hard.get(REQUESTED + GPU)) is not None:
            hard.setdefault(GPU_CLASS + PER_CLASS, amount)
            self._note(one, f"{REQUESTED}{GPU}: {amount} counts devices of the class {GPU_CLASS} too")
        for name in sorted(name for name in hard if name.startswith(REQUESTED + MIG_PREFIX)):
            text = f"{name} counts no claims: a quota of the class {MIG_CLASS} counts MIG devices of all profiles"
            self._note(one, text, lost=True)

    def _defaults(self, one: Written) -> None:
        """Containers that ask for nothing get what a LimitRange says, also those that use claims."""
        for limit in listed(one.content.get("spec"), "limits"):
            defaults = {**inner(limit, "defaultRequest"), **inner(limit, "default")}
            for name in sorted(name for name in defaults if _is_served(str(name))):
                text = f"its default {name}: {defaults[name]} is given to containers beside their claims: remove it"
                self._note(one, text, lost=True)

    def _note(self, one: Written, text: str, *, lost: bool = False) -> None:
        self.notes.append(Note(one.title, one.where, text, lost))

    def _say(self, of: PodsToConvert, text: str) -> None:
        self._note(of.of, text)

    def _lose(self, of: PodsToConvert, text: str) -> None:
        self._note(of.of, text, lost=True)


def _is_served(resource: str) -> bool:
    return resource == GPU or resource.startswith(MIG_PREFIX)


def _containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for field in ("initContainers", "containers"):
        yield from listed(spec, field)


def _request(one: dra.DeviceRequest, resource: str) -> dict[str, Any]:
    assert one.exactly is not None
    exactly: dict[str, Any] = {"deviceClassName": one.exactly.device_class_name}
    if resource.startswith(MIG_PREFIX):
        text = f"device.attributes['{DRIVER}'].profile == '{profile_of(resource)}'"
        exactly["selectors"] = [{"cel": {"expression": text}}]
    if one.exactly.count != 1:
        exactly["count"] = one.exactly.count
    return {"name": one.name, "exactly": exactly}


def profile_of(resource: str) -> str:
    """The MIG profile of a resource: of ``nvidia.com/mig-1g.5gb.me`` it is ``1g.5gb+me``."""
    known = (one for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False) if one.resource == resource)
    return next((one.name for one in known), resource.removeprefix(MIG_PREFIX))


def _names(of: PodsToConvert) -> Iterator[str]:
    """What a claim of these pods may be called, the best first: workloads of several kinds may have one name."""
    own = of.of.key[1] or word(inner(of.of.content, "metadata"), "generateName").rstrip("-.")
    kind, number = of.of.kind.lower(), f"-{of.number}" if of.number else ""
    if own:
        yield _cut(own, f"-{_CLAIM}{number}")
    for suffix in _numbered(f"-{kind}-{_CLAIM}{number}" if own else f"{kind}-{_CLAIM}{number}"):
        yield _cut(own, suffix)


def _cut(name: str, suffix: str) -> str:
    return name[: max(0, _LONGEST_NAME - len(suffix))].rstrip("-.") + suffix


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def _askers(spec: core.PodSpec, resource: str) -> list[str]:
    return [one.name for one in (*spec.init_containers, *spec.containers) if core.container_requests(one).get(resource)]


def _wanted(ask: asks.Ask) -> str:
    if ask.kind is asks.Kind.SHARE:
        return f"{ask.milli / asks.FULL:g} of a GPU"
    return f"{ask.percent} % of a GPU's memory" if ask.percent else f"{ask.mib} MiB of a GPU"


def _covering(gpu: gpus.Gpu | None, ask: asks.Ask) -> MigProfile | None:
    """The smallest profile that has so much memory."""
    if gpu is None:
        return None
    part = ask.milli if ask.kind is asks.Kind.SHARE else 10 * ask.percent
    for one in sorted(mig.profiles(gpu.name), key=lambda one: (one.memory_slices, one.compute_slices)):
        enough = asks.FULL * one.memory_slices >= part * one.of_memory_slices
        if enough and one.usable_mib(gpu) >= ask.mib:
            return one
    return None


def _named(of: PodsToConvert) -> Iterator[tuple[str, str]]:
    for one in listed(of.spec, "resourceClaims"):
        name = word(one, "resourceClaimName") or word(inner(one, "source"), "resourceClaimName")
        if name:
            yield of.of.key[0], name


def _is_shared(claim: Written) -> bool:
    """Whether the devices of a claim are meant to be shared: its configuration says how."""
    configs = listed(inner(claim.content, "spec", "devices"), "config")
    return any(inner(one, "opaque", "parameters", "sharing") for one in configs)
