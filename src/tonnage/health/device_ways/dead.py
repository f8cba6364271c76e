"""Objects of resource.k8s.io that are served no more, as those of v1 that ask for the same; the rest is named.

Sources: kubernetes/kubernetes v1.30 staging/src/k8s.io/api/resource/v1alpha2/types.go; NVIDIA/k8s-dra-driver of 2024,
api/nvidia.com/resource/gpu/v1alpha1 (parameters); what published guides write that never was a field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tonnage.dra.nvidia import DRIVER, GPU_CLASS, MIG_CLASS
from tonnage.health.device_ways.written import Note, Written, inner, leaves, listed
from tonnage.objects import dra, dra_versions
from tonnage.objects.nvidia_device_configs import API_VERSION

_ALPHA = (f"{dra.GROUP}/v1alpha1", f"{dra.GROUP}/v1alpha2")
_PARAMETERS = ("GpuClaimParameters", "MigDeviceClaimParameters")
_OF_NVIDIA = ("gpu.nvidia.com/", "gpu.resource.nvidia.com/", "nas.gpu.resource.nvidia.com/")
_REQUEST = "gpu"
_INTERVALS = ("Default", "Short", "Medium", "Long")
_SELECTED = ("productName", "brand", "architecture", "uuid")
_STATES = "a claim of v1 has no phase: it is allocated where status.allocation is, which the scheduler writes"


class _Asked(NamedTuple):
    """What parameters ask for. ``devices``: how many; ``sharing``: of the driver's configuration; ``rest``: fields that
    are said no more."""

    profile: str = ""
    devices: int = 1
    selectors: tuple[str, ...] = ()
    sharing: dict[str, Any] | None = None
    rest: tuple[str, ...] = ()


class Revival:
    """Converts the documents of one input, which may name each other."""

    def __init__(self, documents: Sequence[Written]) -> None:
        self._documents = documents
        self.notes: list[Note] = []
        self._classes = {one.key[1]: one for one in documents if one.kind == "ResourceClass"}
        self._parameters = {(one.kind, *one.key): one for one in documents if one.kind in _PARAMETERS}

    def run(self) -> list[Written]:
        """The documents that are left."""
        return [made for one in self._documents for made in self._converted(one)]

    def _converted(self, one: Written) -> Iterator[Written]:
        if not one.kind or not one.version:
            said = ", ".join(sorted(map(str, one.content))) or "nothing"
            states = f"; {_STATES}" if "status" in one.content else ""
            self._lose(one, f"is no object, as it has no apiVersion and kind but {said}: left out{states}")
        elif one.version in _ALPHA:
            yield from self._of_alpha(one)
        elif one.version.startswith(_OF_NVIDIA):
            self._of_nvidia(one)
        elif one.version.startswith(f"{dra.GROUP}/") and one.version != dra.V1 and one.kind != "DeviceTaintRule":
            flat = one.with_content(apiVersion=dra.V1BETA1) if one.version.endswith("v1alpha3") else one
            self._say(one, f"{one.version} is written as {dra.V1}")
            yield Written({**dra_versions.as_v1(dict(flat.content)), "apiVersion": dra.V1}, one.where)
        else:
            yield one

    def _of_alpha(self, one: Written) -> Iterator[Written]:
        match one.kind:
            case "ResourceClaim" | "ResourceClaimTemplate":
                yield self._claim(one)
            case "ResourceClass":
                yield from self._class(one)
            case _:
                self._lose(one, f"left out: {dra_versions.refused(one.content) or 'nothing in v1 stands for it'}")

    def _of_nvidia(self, one: Written) -> None:
        if one.kind in _PARAMETERS:
            self._say(one, "taken into the claims that name it")
        elif one.kind == "ResourceSlice":
            self._lose(one, f"left out: slices are {dra.GROUP} objects without a namespace, which the driver publishes")
            for device in listed(inner(one.content, "spec"), "devices"):
                for path, value in leaves(inner(device, "timeSlicing"), "timeSlicing"):
                    self._lose(one, _no_replicas(path, value))
        else:
            self._lose(one, f"left out: NVIDIA's driver has no {one.kind} any more")

    # ---- classes ----

    def _class(self, one: Written) -> Iterator[Written]:
        """Classes of NVIDIA's come with the driver; of others one is made of the driver's name."""
        driver, name = str(one.content.get("driverName") or ""), one.key[1]
        for field in ("parametersRef", "parametersSchema", "structuredParameters", "suitableNodes"):
            if field in one.content:
                self._lose(one, f"{field} is said no more: what a claim may ask for is in its requests")
        if _is_nvidia(name, driver):
            own = MIG_CLASS if _word(name) == "mig" else GPU_CLASS
            self._say(one, f"left out: the DeviceClass {own} comes with NVIDIA's driver, which is called {DRIVER}")
            return
        selector = {"cel": {"expression": f"device.driver == {_text(driver)}"}}
        meta = {**inner(one.content, "metadata"), "name": name.replace("/", ".")}
        made = {"apiVersion": dra.V1, "kind": "DeviceClass", "metadata": meta, "spec": {"selectors": [selector]}}
        self._say(one, f"written as DeviceClass {meta['name']}: every device of the driver {driver}")
        yield Written(made, one.where)

    # ---- claims ----

    def _claim(self, one: Written) -> Written:
        is_template = one.kind == "ResourceClaimTemplate"
        spec = inner(one.content, "spec", "spec") if is_template else inner(one.content, "spec")
        name = str(spec.get("resourceClassName") or "")
        asked = self._asked(one, spec)
        of = self._classes.get(name)
        driver = str(of.content.get("driverName") or "") if of is not None else ""
        sharing = asked.sharing
        if _is_nvidia(name, driver):
            own = MIG_CLASS if asked.profile or _word(name) == "mig" else GPU_CLASS
            if sharing is None and _word(name).replace("-", "") in ("timeslice", "timeslicing"):
                sharing = {"strategy": "TimeSlicing"}
        else:
            own = name.replace("/", ".")
        if own == MIG_CLASS and sharing is not None:
            sharing = {name: value for name, value in sharing.items() if name != "timeSlicingConfig"}
        profile = asked.profile or (_default_profile(of) if own == MIG_CLASS else "")
        selectors = [*([f"device.attributes['{DRIVER}'].profile == '{profile}'"] if profile else []), *asked.selectors]
        exactly: dict[str, Any] = {"deviceClassName": own}
        if selectors:
            exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
        if asked.devices != 1:
            exactly["count"] = asked.devices
        devices: dict[str, Any] = {"requests": [{"name": _REQUEST, "exactly": exactly}]}
        if sharing is not None:
            kind = "MigDeviceConfig" if own == MIG_CLASS else "GpuConfig"
            opaque = {"driver": DRIVER, "parameters": {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}}
            devices["config"] = [{"requests": [_REQUEST], "opaque": opaque}]
        self._say(one, f"asks the DeviceClass {own} for {_words(asked.devices, profile)}" + _shared(sharing))
        for text in asked.rest:
            self._lose(one, text)
        if "status" in one.content:
            self._lose(one, f"status is left out: {_STATES}")
        if spec.get("allocationMode"):
            self._lose(one, f"allocationMode {spec['allocationMode']}: claims are allocated when a pod is scheduled")
        made = {"spec": {"devices": devices}} if is_template else {"devices": devices}
        if is_template and inner(one.content, "spec", "metadata"):
            made = {"metadata": inner(one.content, "spec", "metadata"), **made}
        meta = inner(one.content, "metadata")
        return Written({"apiVersion": dra.V1, "kind": one.kind, "metadata": meta, "spec": made}, one.where)

    def _asked(self, one: Written, spec: Mapping[str, Any]) -> _Asked:
        ref = inner(spec, "parametersRef")
        if not ref:
            return _Asked()
        kind, name = str(ref.get("kind") or ""), str(ref.get("name") or "")
        found = self._parameters.get((kind, one.key[0], name))
        if found is None:
            return _Asked(rest=(f"the {kind} {name} is not among the files: what it asks for is not known",))
        own, rest = inner(found.content, "spec"), list[str]()
        profile = str(own.get("profile") or inner(own, "mig").get("profile") or "")
        count = own.get("count", inner(own, "mig").get("count", 1))
        selectors = []
        for field, value in inner(own, "selector").items():
            if field in _SELECTED and isinstance(value, str):
                selectors.append(_selector(field, value))
            else:
                rest.append(f"{kind} {name}: selector.{field} is not converted: write it in CEL")
        sharing = self._sharing(f"{kind} {name}", inner(own, "sharing"), rest)
        known = {"profile", "count", "mig", "selector", "sharing"}
        rest += [f"{kind} {name}: {path} is said no more" for path, _ in leaves(own) if path.split(".")[0] not in known]
        rest += [
            f"{kind} {name}: mig.{path} is said no more"
            for path, _ in leaves(inner(own, "mig"))
            if path not in ("profile", "count")
        ]
        return _Asked(profile, count if isinstance(count, int) else 1, tuple(selectors), sharing, tuple(rest))

    def _sharing(self, named: str, own: Mapping[str, Any], rest: list[str]) -> dict[str, Any] | None:
        strategy = own.get("strategy")
        if strategy not in ("TimeSlicing", "MPS"):
            if strategy:
                rest.append(f"{named}: sharing.strategy {strategy}: expected TimeSlicing or MPS")
            return None
        made: dict[str, Any] = {"strategy": strategy}
        interval = inner(own, "timeSlicingConfig").get("timeSlice") or inner(own, "timeSlicingConfig").get("interval")
        if interval in _INTERVALS:
            made["timeSlicingConfig"] = {"interval": interval}
        if inner(own, "mpsConfig"):
            made["mpsConfig"] = inner(own, "mpsConfig")
        return made

    def _say(self, one: Written, text: str) -> None:
        self.notes.append(Note(one.title, one.where, text))

    def _lose(self, one: Written, text: str) -> None:
        self.notes.append(Note(one.title, one.where, text, lost=True))


def _word(name: str) -> str:
    return name.rpartition("/")[2]


def _is_nvidia(name: str, driver: str) -> bool:
    return any(text.split("/")[0].endswith("nvidia.com") for text in (name, driver) if text)


def _default_profile(of: Written | None) -> str:
    """The profile of a class that a guide gives a schema with a default."""
    properties = inner(of.content, "parametersSchema", "openAPIV3Schema", "properties") if of is not None else {}
    return next((str(one["default"]) for one in properties.values() if isinstance(one, dict) and "default" in one), "")


def _no_replicas(path: str, value: object) -> str:
    if path.endswith("replicas"):
        return f"{path} {value} is said no more: pods share a GPU by naming one ResourceClaim, 256 of them at most"
    return f"{path} {value} is said no more: the interval of time-slicing is one of {', '.join(_INTERVALS)}"


def _selector(field: str, value: str) -> str:
    attribute = f"device.attributes['{DRIVER}'].{field}"
    if "*" not in value and "?" not in value:
        return f"{attribute} == {_text(value)}"
    parts = (".*" if letter == "*" else "." if letter == "?" else _escaped(letter) for letter in value.lower())
    return f"{attribute}.lowerAscii().matches({_text('^' + ''.join(parts) + '$')})"


def _escaped(letter: str) -> str:
    return letter if letter.isalnum() or letter in " _-" else f"[{letter}]"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _words(count: int, profile: str) -> str:
    what = f"MIG device of the profile {profile}" if profile else "device"
    return f"{count} {what}" + ("s" if count != 1 and not profile else "")


def _shared(sharing: Mapping[str, Any] | None) -> str:
    return f", shared by {sharing['strategy']}" if sharing is not None else ""
