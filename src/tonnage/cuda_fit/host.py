"""What of a node decides about CUDA: its driver and its GPU, as flags or labels of GPU feature discovery say.

Labels: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery (nvidia.com/cuda.driver-version.full and its parts, the
older cuda.driver.{major,minor,rev}, cuda.runtime*, gpu.compute.*, gpu.product).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import cuda as facts
from tonnage.facts.cuda import Version
from tonnage.facts.labels import NVIDIA

_DRIVER = (
    ("cuda.driver-version.major", "cuda.driver-version.minor", "cuda.driver-version.revision"),
    ("cuda.driver.major", "cuda.driver.minor", "cuda.driver.rev"),
)
_RUNTIME = (
    ("cuda.runtime-version.major", "cuda.runtime-version.minor"),
    ("cuda.runtime.major", "cuda.runtime.minor"),
)
_COMPUTE = ("gpu.compute.major", "gpu.compute.minor")
_WRITTEN = ("gpu.product", "cuda.driver-version.full", "cuda.runtime-version.full")
LABELS = tuple(NVIDIA + key for keys in (_WRITTEN, _COMPUTE, *_DRIVER, *_RUNTIME) for key in keys)
"""All labels that :func:`of_labels` looks at."""


class Host(Struct, frozen=True):
    """One node, or one GPU behind one driver. None and empty: not known.

    ``driver``: its version. ``cuda``: the CUDA version that the driver reports. ``arch``: compute capability. ``gpu``:
    name of the GPU. ``brands``: what its brand may read as. ``forward_compat``: whether forward-compatibility packages
    run on the GPU. ``written``: the driver's version as it stands there.
    """

    driver: Version | None = None
    cuda: Version | None = None
    arch: Version | None = None
    gpu: str = ""
    brands: frozenset[str] = frozenset()
    forward_compat: bool | None = None
    written: str = ""

    @property
    def branch(self) -> int | None:
        """The driver's branch: 535 of 535.161.08."""
        return self.driver[0] if self.driver else None

    @property
    def is_newer(self) -> bool:
        """Whether the CUDA version is not known because the driver's branch is newer than all known ones."""
        return self.cuda is None and self.driver is not None and self.driver[0] > facts.newest_branch()

    def with_driver(self, written: str) -> Host:
        """The same node with another driver. Raises InputError for what is not a version."""
        driver = facts.parse_version(written, "driver")
        return replace(self, driver=driver, cuda=facts.driver_cuda(driver), written=written.strip())


def of(driver: str = "", gpu: str = "", arch: str = "", labelled: Host | None = None) -> Host:
    """A node by what a user names of it, over what is known by its labels. ``gpu``: a name, alias or product label.

    Raises InputError for a GPU that is not known, what is not a version, and a compute capability that is not the
    GPU's.
    """
    made = labelled or Host()
    if gpu:
        made = _with_gpu(made, facts.gpu(gpu))
    if arch:
        capability = _capability(arch)
        if made.arch not in (None, capability):
            assert made.arch is not None
            name = gpu or made.gpu or "the node by its labels"
            message = f"{name} has compute capability {facts.cuda_text(made.arch)}, not {arch}"
            raise InputError.at(message, field="--arch", hint="leave one of the two out")
        made = replace(made, arch=capability)
    if driver and facts.parse_version(driver, "--driver") != made.driver:
        made = made.with_driver(driver)
    return made


def _capability(arch: str) -> Version:
    found = facts.parse_version(arch, "--arch", "9.0")
    if len(found) > 2 or found[0] > 2 * max(facts.architectures())[0]:
        raise InputError.at(f"{arch!r} is not a compute capability", field="--arch", hint="expected one like 9.0")
    return (*found, 0)[:2]


def of_labels(labels: Mapping[str, str]) -> Host:
    """A node by its labels. What is missing or no number is not known; nothing is raised."""
    own = {key.removeprefix(NVIDIA): labels[key] for key in LABELS if key in labels}
    made = Host()
    found = facts.gpu_of_product(own.get("gpu.product", ""))
    if found is not None:
        made = _with_gpu(made, found)
    elif own.get("gpu.product"):
        made = replace(made, gpu=own["gpu.product"])
    arch = _joined(own, _COMPUTE, 2)
    if arch:
        made = replace(made, arch=facts.parse_version(arch))
    driver = _version_text(own.get("cuda.driver-version.full", "")) or next(
        (text for keys in _DRIVER if (text := _joined(own, keys, 1))), ""
    )
    if driver:
        made = made.with_driver(driver)
    runtime = next((text for keys in _RUNTIME if (text := _joined(own, keys, 2))), "")
    runtime = runtime or _version_text(own.get("cuda.runtime-version.full", ""))
    return replace(made, cuda=facts.parse_version(runtime)) if runtime else made


def has_gpu(labels: Mapping[str, str]) -> bool:
    """Whether labels of GPU feature discovery stand there that say anything of a driver or a GPU."""
    return of_labels(labels) != Host()


def _with_gpu(host: Host, gpu: facts.CudaGpu) -> Host:
    return replace(host, gpu=gpu.name, arch=gpu.arch, brands=gpu.brands, forward_compat=gpu.forward_compat)


def _joined(labels: Mapping[str, str], keys: tuple[str, ...], least: int) -> str:
    """The numbers of these labels joined by dots, up to the first that is missing; empty if fewer than ``least``."""
    parts = []
    for key in keys:
        value = labels.get(key, "")
        if "." in value or not facts.is_version(value):
            break
        parts.append(value)
    return ".".join(parts) if len(parts) >= least else ""


def _version_text(text: str) -> str:
    return text if facts.is_version(text) else ""
