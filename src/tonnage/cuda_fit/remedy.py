"""What would make an image run on a node, the smallest change first; each is tried with the same check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    if host.driver is None and host.cuda is None and host.arch is not None:
        return _by_code(need, host, fits)
    if fits is None and check.may_lack_code(need, host):
        return tuple(one for one in (_image(need, host), _gpu(need, host)) if one is not None)
    if fits is not False:
        return ()
    found = (_setting(need, host), _package(need, host), _image(need, host), _driver(need, host), _gpu(need, host))
    return tuple(one for one in found if one is not None)


def _by_code(need: Need, host: Host, fits: bool | None) -> tuple[Remedy, ...]:
    """Where nothing is known of the driver, what helps with the newest one for the GPU, and from which driver on."""
    if fits is None and not check.may_lack_code(need, host):
        return ()
    newest = host.with_driver(next((one.written for one in facts.toolkits() if _serves(one, host)), ""))
    if check.fit(need, newest).fits is True:
        return ()
    return tuple(one for one in (_image(need, newest, told=False), _gpu(need, newest)) if one is not None)


def _serves(one: facts.Toolkit, host: Host) -> bool:
    """Whether the toolkit's driver branch knows the GPU."""
    known = facts.architectures().get(host.arch or ())
    first = next((each for each in facts.toolkits() if known is not None and each.cuda == known.first_cuda), None)
    last = known.last_branch if known is not None else None
    return (first is None or one.driver[0] >= first.driver[0]) and (last is None or one.driver[0] <= last)


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


def _image(need: Need, host: Host, *, told: bool = True) -> Remedy | None:
    """``told``: the driver is known; else the one that is assumed may be newer than the node's."""
    repository, _ = facts.split_image(need.image)
    rows = [row for row in facts.image_rows() if row.repository != "*" and _same(repository, row.repository)]
    best = _newest(rows, host)
    if best is not None:
        row, cuda = best
        oldest = (
            None if told else next((one for one in _drivers(host) if _helps(_as_need(row, cuda), _on(host, one))), None)
        )
        from_ = f", with driver R{oldest.driver[0]} ({oldest.written}) or later" if oldest is not None else ""
        return Remedy("image", f"use {repository} {_tags(row, cuda)}{from_}")
    if told and "gpu" in check.fit(need, host).refusals:
        return _image_and_driver(need, host, rows)
    lacks_code = check.may_lack_code(need, host) or "kernels" in check.fit(need, host).refusals
    if lacks_code and host.arch is not None:
        return _built(need, host, host.arch)
    if rows or need.cuda is None or need.kernels:
        return None
    older = next((one.cuda for one in facts.toolkits() if _helps(replace(need, cuda=one.cuda), host)), None)
    return Remedy("image", f"use an image with CUDA {cuda_text(older)} or older") if older else None


def _newest(rows: Sequence[facts.ImageRow], host: Host) -> tuple[facts.ImageRow, Version] | None:
    """The newest version of an image that helps, with the newest CUDA that it is made with."""
    best: tuple[facts.ImageRow, Version] | None = None
    for row, cuda in ((one, cuda) for one in rows for cuda in _versions_of(one)):
        newer = best is None or (row.version_from, cuda) > (best[0].version_from, best[1])
        if newer and _helps(_as_need(row, cuda), host):
            best = row, cuda
    return best


def _drivers(host: Host) -> list[facts.Toolkit]:
    """The drivers of toolkits that know the GPU, oldest first."""
    return [one for one in reversed(facts.toolkits()) if _serves(one, host)]


def _on(host: Host, one: facts.Toolkit) -> Host:
    return host.with_driver(one.written)


def _image_and_driver(need: Need, host: Host, rows: Sequence[facts.ImageRow]) -> Remedy | None:
    """The driver does not know the GPU: an image for the driver that does, where that alone does not help."""
    drivers = _drivers(host)
    if host.arch is None or not drivers or any(_helps(need, _on(host, one)) for one in drivers):
        return None
    repository, _ = facts.split_image(need.image)
    for one in drivers if host.driver and drivers[0].driver > host.driver else reversed(drivers):
        best = _newest(rows, _on(host, one))
        if best is not None:
            return Remedy("image", f"use {repository} {_tags(*best)}, and {_change(one, host)}")
    one = drivers[0] if host.driver and drivers[0].driver > host.driver else drivers[-1]
    built = _built(need, _on(host, one), host.arch)
    return built and Remedy("image", f"{built.text}; and {_change(one, host)}")


def _change(to: facts.Toolkit, host: Host) -> str:
    cuda = f"CUDA {cuda_text(to.cuda)}"
    if host.driver is not None and to.driver[0] < host.driver[0]:
        last_of = host.gpu or "the GPU"
        return f"go back to a driver of R{to.driver[0]} ({to.written} or later, {cuda}), the last for {last_of}"
    return f"upgrade the driver to R{to.driver[0]} ({to.written} or later, {cuda})"


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
        last = next((one for one in reversed(_drivers(host)) if host.driver and one.driver[0] < host.driver[0]), None)
        back = last is not None and "gpu" in check.fit(need, host).refusals and _helps(need, _on(host, last))
        return Remedy("driver", _change(last, host)) if back and last is not None else None
    lowest, named = helping[0], facts.branches()
    text = _change(lowest, host)
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
