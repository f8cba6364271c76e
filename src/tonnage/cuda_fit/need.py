"""What an image needs of a node, by its name, its environment and what a user says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import cuda as facts
from tonnage.facts.cuda import Version

REQUIRE = "NVIDIA_REQUIRE_"
REQUIRE_CUDA = "NVIDIA_REQUIRE_CUDA"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
_TOOLKIT = "toolkit"
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
_CUDA_VERSION = "CUDA_VERSION"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What Go's strconv.ParseBool takes for true."""
_ARCH = re.compile(r"(?:sm_|compute_)?(?P<major>[0-9]{1,3}?)\.?(?P<minor>[0-9])(?P<kind>[af]?)(?P<ptx>\+PTX)?")


class Kernel(Struct, frozen=True):
    """Code for one compute capability. ``kind``: ``a`` runs on that one alone, ``f`` on its family, empty on it and on
    later ones of the same major. ``ptx``: the driver can also compile it for later GPUs. ``sure``: False where reports
    differ on whether it is there."""

    arch: Version
    kind: str = ""
    ptx: bool = False
    sass: bool = True
    sure: bool = True

    @property
    def text(self) -> str:
        """As in TORCH_CUDA_ARCH_LIST: ``9.0a``, ``12.0+PTX``; ``compute_9.0`` for PTX alone."""
        written = f"{facts.cuda_text(self.arch)}{self.kind}"
        return (written + "+PTX" if self.ptx else written) if self.sass else f"compute_{written}"


class NvidiaRequire(Struct, frozen=True):
    """An NVIDIA_REQUIRE_* expression. ``stated``: a person wrote it into the pod or the command; else the image has it
    by what is known of it. ``whole``: there are no alternatives beside those in ``expression``."""

    variable: str
    expression: str
    stated: bool = True
    whole: bool = True


class Need(Struct, frozen=True):
    """``cuda``: version of its CUDA runtime, None if not known. ``kernels``: empty if not known. ``compat``: whether it
    brings the forward-compatibility package of its CUDA version; None if not known. ``sure``: the CUDA version is known
    of this image, not read off its tag by convention. ``toolkit``: it has CUDA's own libraries alone, which are built
    for all that their toolkit knows."""

    image: str
    cuda: Version | None = None
    kernels: tuple[Kernel, ...] = ()
    compat: bool | None = None
    requirements: tuple[NvidiaRequire, ...] = ()
    sure: bool = True
    source: str = ""
    toolkit: bool = False

    @property
    def known(self) -> bool:
        """Whether there is anything to hold against a node."""
        return self.cuda is not None or bool(self.kernels) or bool(self.requirements)


@lru_cache(maxsize=1024)
def kernels_of(written: str) -> tuple[Kernel, ...]:
    """The kernels of a list such as ``8.0 9.0a 12.0+PTX`` or ``sm_90;compute_90``, separators space, comma, semicolon.

    Raises InputError for an entry that is not an architecture."""
    found = []
    for entry in re.split(r"[\s,;]+", written.strip()):
        match = _ARCH.fullmatch(entry)
        if match is None:
            hint = "expected entries like 8.0, 9.0a, 12.0+PTX or sm_90"
            raise InputError.at(f"{entry!r} is not an architecture", field="--image-archs", hint=hint)
        alone = entry.startswith("compute_")
        arch = (int(match["major"]), int(match["minor"]))
        found.append(Kernel(arch, match["kind"], ptx=alone or bool(match["ptx"]), sass=not alone))
    return tuple(found)


def of_image(image: str, environment: Mapping[str, str] | None = None) -> Need:
    """What an image needs, with the variables that a container sets over the image's own.

    The container toolkit reads every NVIDIA_REQUIRE_* but NVIDIA_REQUIRE_JETPACK*, unless NVIDIA_DISABLE_REQUIRE is
    true; CUDA_VERSION stands in where NVIDIA_REQUIRE_CUDA is empty, also the image's own, which those that begin at
    nvidia/cuda have (NVIDIA/nvidia-container-toolkit internal/config/image/cuda_image.go)."""
    environment = environment or {}
    found = facts.image(image)
    made = Need(image) if found is None else _known(image, found)
    requirements = () if environment.get(DISABLE) in _TRUE else _requirements(environment, found)
    return replace(made, requirements=requirements)


def _known(image: str, found: facts.ImageFacts) -> Need:
    kernels = listed(found.archs)
    toolkit = found.archs == _TOOLKIT
    return Need(image, found.cuda, kernels, found.compat, (), not found.assumed, found.source, toolkit)


def listed(archs: str) -> tuple[Kernel, ...]:
    """The kernels of a cell of ``data/cuda_images.csv``: see :class:`~tonnage.facts.cuda.ImageFacts`."""
    if not archs or archs == _TOOLKIT:
        return ()
    entries = archs.split()
    found = kernels_of(" ".join(entry.rstrip("?") for entry in entries))
    return tuple(replace(one, sure=not entry.endswith("?")) for one, entry in zip(found, entries, strict=True))


def _requirements(environment: Mapping[str, str], found: facts.ImageFacts | None) -> tuple[NvidiaRequire, ...]:
    stated = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(REQUIRE) and not name.startswith(_JETPACK)
    }
    made = [NvidiaRequire(name, value) for name, value in stated.items() if value.strip()]
    if REQUIRE_CUDA not in stated and found is not None and found.require:
        made.append(NvidiaRequire(REQUIRE_CUDA, found.require, stated=False, whole=found.whole))
    elif not stated.get(REQUIRE_CUDA):
        own = facts.cuda_text(found.cuda) if found is not None and found.require else ""
        if legacy := _legacy(environment.get(_CUDA_VERSION, own)):
            made.append(NvidiaRequire(_CUDA_VERSION, legacy, stated=_CUDA_VERSION in environment))
    return tuple(made)


def _legacy(version: str) -> str:
    match = re.fullmatch(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.[0-9]+)*", version)
    return f"cuda>={match[1]}.{match[2] or 0}" if match else ""
