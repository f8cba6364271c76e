"""CUDA toolkits, drivers, GPU architectures and images: which needs which.

Tables: ``data/cuda_toolkits.csv`` (the driver that came with each CUDA version), ``data/cuda_floors.csv`` (minor
version compatibility), ``data/cuda_branches.csv``, ``data/cuda_architectures.csv``, ``data/cuda_gpus.csv``,
``data/cuda_images.csv`` and ``data/cuda_image_requirements.csv`` (NVIDIA_REQUIRE_CUDA of the nvidia/cuda images).
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.facts import gpus as cards
from tonnage.facts import names, tables

Version = tuple[int, ...]
"""Numbers of a version, most significant first."""

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


def parse_version(text: str, field: str = "", like: str = "535.161.08") -> Version:
    """``"535.161.08"`` as ``(535, 161, 8)``. Raises InputError for anything but numbers joined by dots."""
    plain = text.strip()
    if not is_version(plain):
        hint = f"expected numbers joined by dots, like {like}"
        raise InputError.at(f"{text!r} is not a version", field=field, hint=hint)
    return _numbers(plain)


def is_version(text: str) -> bool:
    """Whether the text is numbers joined by dots, none of more than nine digits."""
    return _VERSION.fullmatch(text) is not None


def cuda_text(version: Version) -> str:
    """A CUDA version or compute capability as it is written: ``12.4``."""
    return ".".join(str(number) for number in (*version, 0)[:2])


def at_least(version: Version, other: Version) -> bool:
    """Whether ``version`` is ``other`` or newer; what is not written counts as 0."""
    length = max(len(version), len(other))
    return _padded(version, length) >= _padded(other, length)


class Toolkit(Struct, frozen=True):
    """One CUDA toolkit. ``driver``: the Linux driver that came with it, the lowest one that it is released for;
    ``written``: as text. All releases of that branch report this CUDA version."""

    cuda: Version
    driver: Version
    written: str
    source: str


class Branch(Struct, frozen=True):
    """One driver branch. ``designation`` and ``end_of_life`` (year-month) are empty where not known."""

    number: int
    designation: str
    end_of_life: str
    source: str


class Architecture(Struct, frozen=True):
    """One compute capability. ``first_cuda``: the toolkit that added it, None where older than the tables;
    ``last_cuda`` and ``last_branch``: the last toolkit and driver branch for it, None while supported."""

    arch: Version
    family: str
    first_cuda: Version | None
    last_cuda: Version | None
    last_branch: int | None
    source: str


class CudaGpu(Struct, frozen=True):
    """What decides about CUDA on one GPU model. ``forward_compat``: whether the forward-compatibility packages run on
    it, ``mig``: whether it can be partitioned; None where not known. ``brands``: what NVIDIA_REQUIRE_CUDA may see as
    its brand, depending on the driver's and the container toolkit's age; empty where not known. ``products``: how its
    nvidia.com/gpu.product begins."""

    name: str
    aliases: tuple[str, ...]
    products: tuple[str, ...]
    arch: Version
    forward_compat: bool | None
    brands: frozenset[str]
    mig: bool | None
    source: str


class ImageFacts(Struct, frozen=True):
    """What is known of an image by its name. ``archs``: architectures its kernels are built for, as in
    TORCH_CUDA_ARCH_LIST, with ``?`` behind those that reports differ about; ``toolkit`` for CUDA's own libraries, which
    are built for all that their toolkit knows; empty where not known. ``compat``: whether it brings the
    forward-compatibility package of its CUDA version, None where not known. ``require``: its NVIDIA_REQUIRE_CUDA, empty
    where it has none or nothing is known of it; ``whole``: there are no alternatives beside those. ``assumed``: the
    CUDA version is read off the tag by a convention, not known of this repository. ``repository``: as in the table."""

    repository: str
    cuda: Version
    archs: str
    compat: bool | None
    require: str
    whole: bool
    assumed: bool
    source: str


class ImageRow(Struct, frozen=True):
    """One row of ``data/cuda_images.csv``. The tag's group ``version`` is from ``version_from`` to below
    ``version_below``; ``cuda`` is that of its group ``cuda`` where it has one."""

    repository: str
    tag: re.Pattern[str]
    version_from: Version
    version_below: Version
    cuda: Version
    archs: str
    compat: bool | None
    requires: bool
    source: str

    def require(self, cuda: Version) -> tuple[str, bool]:
        """NVIDIA_REQUIRE_CUDA with this CUDA version, and whether all its alternatives are known."""
        if not self.requires:
            return "", True
        found = image_requirement(cuda)
        return (found, True) if found else (f"cuda>={cuda_text(cuda)}", False)


@lru_cache(maxsize=1)
def toolkits() -> tuple[Toolkit, ...]:
    """Every toolkit, newest first."""
    rows = tables.rows("cuda_toolkits.csv")
    made = [Toolkit(_numbers(r["cuda"]), _numbers(r["driver"]), r["driver"], r["source"]) for r in rows]
    return tuple(sorted(made, key=lambda one: one.cuda, reverse=True))


@lru_cache(maxsize=1)
def floors() -> dict[int, Version]:
    """CUDA major release → lowest driver for minor version compatibility."""
    return {int(row["cuda_major"]): _numbers(row["driver"]) for row in tables.rows("cuda_floors.csv")}


@lru_cache(maxsize=1)
def branches() -> dict[int, Branch]:
    """Driver branches by number."""
    rows = tables.rows("cuda_branches.csv")
    return {int(r["branch"]): Branch(int(r["branch"]), r["designation"], r["end_of_life"], r["source"]) for r in rows}


def newest_branch() -> int:
    """The newest driver branch whose CUDA version is known."""
    return toolkits()[0].driver[0]


def driver_cuda(driver: Version) -> Version | None:
    """The CUDA version that a driver reports; None where it is older or of a newer branch than the table. All releases
    of a branch report the same, those before the toolkit's own too (R550 from 550.40.07 on reports 12.4)."""
    if driver[0] > newest_branch():
        return None
    return next((one.cuda for one in toolkits() if driver[0] >= one.driver[0]), None)


@lru_cache(maxsize=1)
def architectures() -> dict[Version, Architecture]:
    """Architectures by compute capability."""
    made = {}
    for row in tables.rows("cuda_architectures.csv"):
        arch = _numbers(row["arch"])
        cuda = [_numbers(row[name]) if row[name] else None for name in ("first_cuda", "last_cuda")]
        branch = tables.whole(row["last_branch"])
        made[arch] = Architecture(arch, row["family"], cuda[0], cuda[1], branch, row["source"])
    return made


@lru_cache(maxsize=1)
def gpus() -> tuple[CudaGpu, ...]:
    """Every GPU of the table, by name."""
    return tuple(sorted((_gpu(row) for row in tables.rows("cuda_gpus.csv")), key=lambda gpu: gpu.name))


def gpu(name: str) -> CudaGpu:
    """The GPU of this name, alias or product label. Raises InputError with near names if there is none."""
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    for one in gpus():
        if plain in (one.name, *one.aliases):
            return one
    found = gpu_of_product(name) or _of_card(name)
    if found is None:
        raise names.unknown("GPU", name, [one.name for one in gpus()], hint="GPU names are like l40s, a100, h100")
    return found


def _of_card(name: str) -> CudaGpu | None:
    """By a name that ``data/gpus.csv`` has for the card."""
    try:
        return gpu_of_product(cards.get(name).product)
    except InputError:
        return None


@lru_cache(maxsize=1024)
def gpu_of_product(product: str) -> CudaGpu | None:
    """The GPU whose nvidia.com/gpu.product this is, a MIG slice's and a shared one's too; None if not known."""
    plain = product.strip().lower().replace(" ", "-")
    best: tuple[int, CudaGpu] | None = None
    for one in gpus():
        for begin in one.products:
            if (plain + "-").startswith(begin.lower() + "-") and (best is None or len(begin) > best[0]):
                best = (len(begin), one)
    return best[1] if best else None


@lru_cache(maxsize=1)
def image_rows() -> tuple[ImageRow, ...]:
    """The rows of known images, in the order in which they are asked."""
    return tuple(
        ImageRow(
            repository=row["repository"],
            tag=re.compile(row["tag"]),
            version_from=_numbers(row["version_from"]),
            version_below=_numbers(row["version_below"]),
            cuda=_numbers(row["cuda"]),
            archs=row["archs"],
            compat=_yes_no(row["compat"]),
            requires=row["requires"] == "yes",
            source=row["source"],
        )
        for row in tables.rows("cuda_images.csv")
    )


@lru_cache(maxsize=4096)
def image(reference: str) -> ImageFacts | None:
    """What is known of an image such as ``vllm/vllm-openai:v0.20.0``, also behind a mirror; None if nothing is."""
    repository, tag = split_image(reference)
    for row in image_rows():
        known = repository == row.repository or repository.endswith("/" + row.repository) or row.repository == "*"
        match = row.tag.fullmatch(tag) if known and tag else None
        if match is None:
            continue
        groups = match.groupdict()
        cuda = _packed(groups.get("cuda") or "")
        version = _numbers(groups.get("version") or "")
        if cuda and row.cuda and cuda[:2] != row.cuda[:2]:
            continue
        if row.version_from and not at_least(version, row.version_from):
            continue
        if row.version_below and at_least(version, row.version_below):
            continue
        cuda = (cuda or row.cuda)[:2]
        require, whole = row.require(cuda)
        assumed = row.repository == "*"
        return ImageFacts(row.repository, cuda, row.archs, row.compat, require, whole, assumed, row.source)
    return None


def split_image(reference: str) -> tuple[str, str]:
    """Repository and tag of an image; without Docker Hub's host, digest and, where there is none, tag."""
    name = reference.strip().partition("@")[0]
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository = head + slash + last
    for host in ("docker.io/", "index.docker.io/", "registry-1.docker.io/"):
        repository = repository.removeprefix(host)
    return repository, tag


@lru_cache(maxsize=1)
def _requirements() -> dict[Version, tuple[list[str], list[str]]]:
    rows = tables.rows("cuda_image_requirements.csv")
    return {_numbers(row["cuda"]): (row["brands"].split(), row["branches"].split()) for row in rows}


@lru_cache(maxsize=64)
def image_requirement(cuda: Version) -> str:
    """NVIDIA_REQUIRE_CUDA of the nvidia/cuda images of this version; empty where not known."""
    found = _requirements().get(cuda[:2])
    if found is None:
        return ""
    terms = [f"cuda>={cuda_text(cuda)}"]
    for written in found[1]:
        branch, _, only = written.partition(":")
        brands = [only] if only else found[0]
        terms += [f"brand={brand},driver>={branch},driver<{int(branch) + 1}" for brand in brands]
    return " ".join(terms)


def compat_branches(cuda: Version) -> frozenset[int] | None:
    """Driver branches that the package cuda-compat of this CUDA version runs on; None where not known."""
    found = _requirements().get(cuda[:2])
    return None if found is None else frozenset(int(written.partition(":")[0]) for written in found[1])


def _gpu(row: dict[str, str]) -> CudaGpu:
    return CudaGpu(
        name=row["name"],
        aliases=tuple(row["aliases"].split()),
        products=tuple(row["products"].split()),
        arch=_numbers(row["arch"]),
        forward_compat=_yes_no(row["forward_compat"]),
        brands=frozenset(row["brands"].split()),
        mig=_yes_no(row["mig"]),
        source=row["source"],
    )


def _yes_no(cell: str) -> bool | None:
    return {"yes": True, "no": False}.get(cell)


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in text.split(".")) if text else ()


def _packed(text: str) -> Version:
    """``12.4`` or ``124`` as (12, 4)."""
    return _numbers(text) if "." in text or not text else (int(text[:-1]), int(text[-1]))


def _padded(version: Version, length: int) -> Version:
    return version + (0,) * (length - len(version))
