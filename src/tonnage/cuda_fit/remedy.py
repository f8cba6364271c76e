"""What would make an image run on a node, the smallest change first; each is tried with the same check."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tonnage.cuda_fit import check
from tonnage.cuda_fit.host import Host
from tonnage.cuda_fit.need import DISABLE, REQUIRE_CUDA, Need, NvidiaRequire, kernels_of, listed
from tonnage.facts import cuda as facts
from tonnage.facts.cuda import Version, cuda_text

_AT_MOST = 3


class Remedy(Struct, frozen=True):
    """One change that helps. ``kind``: setting, package, image, driver or gpu."""

    kind: str
    text: str


def remedies(need: Need, host: Host) -> tuple[Remedy, ...]:
    """Changes that help, one of a kind, in the order of what they cost; none where it fits or too little is known.
    Where only the image's code for the GPU is not certain, an image that is known to have it."""
    fits = check.fit(need, host).fits
    if fits is None and check.may_lack_code(need, host):
        return tuple(one for one in (_image(need, host), _gpu(need, host)) if one is not None)
    if fits is not False:
        return ()
    found = (_setting(need, host), _package(need, host), _image(need, host), _driver(need, host), _gpu(need, host))
    return tuple(one for one in found if one is not None)


def _helps(need: Need, host: Host) -> bool:
    """Of conditions alone no more can be said than that they hold."""
    fits = check.fit(need, host).fits
    return fits is True or (fits is None and need.cuda is None)


def _setting(need: Need, host: Host) -> Remedy | None:
    refused = check.fit(need, host).refusals
    if refused != {"require"} or check.fit(replace(need, requirements=()), host).fits is not True:
        return None
    return Remedy("setting", f"set {DISABLE}=true: the driver runs this CUDA all the same, the image's list omits it")


def _package(need: Need, host: Host) -> Remedy | None:
    if need.cuda is None or need.compat or not _helps(replace(need, compat=True), host):
        return None
    return Remedy("package", f"install cuda-compat-{need.cuda[0]}-{need.cuda[1]} in the image")


def _image(need: Need, host: Host) -> Remedy | None:
    repository, _ = facts.split_image(need.image)
    rows = [row for row in facts.image_rows() if row.repository != "*" and _same(repository, row.repository)]
    best: tuple[Version, Version, str] | None = None
    for row, cuda in ((one, cuda) for one in rows for cuda in _versions_of(one)):
        tried = _as_need(row, cuda)
        if (best is None or (row.version_from, cuda) > best[:2]) and _helps(tried, host):
            best = (row.version_from, cuda, _tags(row, cuda))
    if best is not None:
        return Remedy("image", f"use {repository} {best[2]}")
    lacks_code = check.may_lack_code(need, host) or "kernels" in check.fit(need, host).refusals
    if lacks_code and host.arch is not None:
        return _built(need, host, host.arch)
    if rows or need.cuda is None or need.kernels:
        return None
    older = next((one.cuda for one in facts.toolkits() if _helps(replace(need, cuda=one.cuda), host)), None)
    return Remedy("image", f"use an image with CUDA {cuda_text(older)} or older") if older else None


def _built(need: Need, host: Host, arch: Version) -> Remedy | None:
    """An image of anyone's that is built for the GPU, with the newest CUDA of both its architecture and the driver."""
    built = kernels_of(cuda_text(arch))
    tried = (replace(need, cuda=one.cuda, kernels=built, requirements=()) for one in facts.toolkits())
    known = facts.architectures().get(arch)
    last = known.last_cuda if known is not None else None
    fitting = (one.cuda for one in tried if one.cuda and not (last and one.cuda > last) and _helps(one, host))
    newest = next(fitting, last)
    name = f"{host.gpu} ({cuda_text(arch)})" if host.gpu else cuda_text(arch)
    limit = f", with CUDA {cuda_text(newest)} or older" if newest is not None else ""
    own = f"; if this one is, say so: --image-archs {cuda_text(arch)}" if check.may_lack_code(need, host) else ""
    return Remedy("image", f"use an image that is built for {name}{limit}{own}")


def _same(repository: str, known: str) -> bool:
    return repository == known or repository.endswith("/" + known)


def _versions_of(row: facts.ImageRow) -> Iterator[Version]:
    if row.cuda:
        yield row.cuda
    elif row.repository == "nvidia/cuda":
        yield from (one.cuda for one in facts.toolkits())


def _as_need(row: facts.ImageRow, cuda: Version) -> Need:
    expression, whole = row.require(cuda)
    requirements = (NvidiaRequire(REQUIRE_CUDA, expression, stated=False, whole=whole),) if expression else ()
    return Need("", cuda, listed(row.archs), row.compat, requirements, toolkit=row.archs == "toolkit")


def _tags(row: facts.ImageRow, cuda: Version) -> str:
    versions = ""
    if row.version_from:
        versions = f"from {_dotted(row.version_from)}"
    if row.version_below:
        versions += f" to below {_dotted(row.version_below)}"
    suffix = f" with cu{cuda[0]}{cuda[1]} in the tag" if row.version_from and "cuda>" in row.tag.pattern else ""
    return f"{versions or cuda_text(cuda)}{suffix}" + (f" (CUDA {cuda_text(cuda)})" if versions else "")


def _dotted(version: Version) -> str:
    return ".".join(str(number) for number in version)


def _driver(need: Need, host: Host) -> Remedy | None:
    """The lowest branch above the present one that helps, and beside it those that have more for them."""
    tried = [one for one in reversed(facts.toolkits()) if not host.driver or one.driver[0] > host.driver[0]]
    helping = [one for one in tried if _helps(need, host.with_driver(one.written))]
    if not helping:
        return None
    lowest, named = helping[0], facts.branches()
    text = f"upgrade the driver to R{lowest.driver[0]} ({lowest.written} or later, CUDA {cuda_text(lowest.cuda)})"
    if check.fit(need, host.with_driver(lowest.written)).mode == check.FORWARD:
        text += ", where the image's cuda-compat serves"
    further: dict[facts.Toolkit, list[str]] = {}
    for one in helping:
        if check.fit(need, host.with_driver(one.written)).mode != check.FORWARD:
            further.setdefault(one, []).append("needs no cuda-compat")
            break
    for one in helping:
        branch = named.get(one.driver[0])
        if branch is not None and branch.designation == "long-term support":
            further.setdefault(one, []).append("is a long-term support branch")
            break
    for one, merits in further.items():
        if one is not lowest:
            text += f"; R{one.driver[0]} ({one.written}) {' and '.join(merits)}"
    return Remedy("driver", text)


def _gpu(need: Need, host: Host) -> Remedy | None:
    if not check.fit(need, host).refusals & {"kernels", "gpu"} and not check.may_lack_code(need, host):
        return None
    fitting = []
    for one in facts.gpus():
        other = replace(host, gpu=one.name, arch=one.arch, brands=one.brands, forward_compat=one.forward_compat)
        if one.forward_compat and _helps(need, other):
            fitting.append((one.arch, one.name))
    if not fitting:
        return None
    nearest = sorted(fitting, key=lambda one: (_distance(one[0], host.arch), one[1]))[:_AT_MOST]
    return Remedy("gpu", f"use another GPU: {', '.join(f'{name} ({cuda_text(arch)})' for arch, name in nearest)}")


def _distance(arch: Version, other: Version | None) -> int:
    return abs(10 * arch[0] + arch[1] - (10 * other[0] + other[1])) if other else 0
