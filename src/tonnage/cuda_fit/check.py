"""Whether an image's CUDA runs on a node: four questions, each with its answer and the reason.

1. ``require``: does the container start, by its NVIDIA_REQUIRE_* expressions?
2. ``gpu``: does the driver know the GPU?
3. ``driver``: does the driver run the image's CUDA: as it is, by minor version compatibility, or by the
   forward-compatibility package?
4. ``kernels``: is there code for the GPU in the image, compiled (SASS) or to be compiled by the driver (PTX)?

Sources: NVIDIA CUDA Compatibility guide; CUDA C++ Programming Guide (binary and PTX compatibility, architecture- and
family-specific targets); NVIDIA/libnvidia-container. Error texts and numbers are those of CUDA (driver_types.h).
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.cuda_fit import require
from tonnage.cuda_fit.host import Host
from tonnage.cuda_fit.need import Kernel, Need
from tonnage.facts import cuda as facts
from tonnage.facts.cuda import Version, cuda_text

EXACT, MINOR, FORWARD = "exact", "minor", "forward"
"""How a driver runs a toolkit's programs: it reports that CUDA version or a later one; it is of the same major release
and above its floor; through the package cuda-compat in the image."""


class Check(Struct, frozen=True):
    """One question. ``fits``: None where too little is known to say. ``note``: fits, but mind this."""

    name: str
    fits: bool | None
    reason: str
    note: str = ""


class Fit(Struct, frozen=True):
    """``fits``: False where any answer is no, else None where any is not known."""

    fits: bool | None
    checks: tuple[Check, ...]
    mode: str = ""

    @property
    def reason(self) -> str:
        """The first answer that decides."""
        return next((one.reason for one in self.checks if one.fits is self.fits), "")

    @property
    def refusals(self) -> frozenset[str]:
        """Names of the questions that are answered no."""
        return frozenset(one.name for one in self.checks if one.fits is False)


@lru_cache(maxsize=4096)
def fit(need: Need, host: Host) -> Fit:
    """All four answers."""
    driver, mode = _driver(need, host)
    checks = (_require(need, host), _gpu(host), driver, _kernels(need, host, mode))
    answers = [one.fits for one in checks]
    return Fit(False if False in answers else None if None in answers else True, checks, mode)


def may_lack_code(need: Need, host: Host) -> bool:
    """Whether the image's CUDA and the GPU are known, and nothing says that the image was built for the GPU."""
    if need.cuda is None or host.arch is None or _toolkit_knows(need, host, host.arch).fits is False:
        return False
    if need.kernels:
        running = [kernel for kernel in need.kernels if _runs(kernel, host.arch)]
        return bool(running) and not any(kernel.sure for kernel in running)
    return _toolkit_knows(need, host, host.arch).fits is None


def _require(need: Need, host: Host) -> Check:
    unknown = ""
    for one in need.requirements:
        found = require.evaluate(one.expression, host)
        if found.invalid is not None:
            text = f"{one.variable}: invalid expression {found.invalid.written!r}: {found.invalid.problem}"
            return Check("require", False, text)
        if found.holds is False and not one.whole:
            unknown = unknown or f"{one.expression} does not hold, other conditions of the image are not known"
        elif found.holds is False:
            first = one.expression.split()[0]
            more = ", and no alternative of it holds" if " " in one.expression.strip() else ""
            return Check("require", False, f"unsatisfied condition: {first}{more}")
        if found.holds is None:
            unknown = unknown or f"{one.variable} depends on what is not known of the node"
    if unknown:
        return Check("require", None, unknown)
    return Check("require", True, "its conditions hold" if need.requirements else "no conditions are known of it")


def _gpu(host: Host) -> Check:
    known = facts.architectures().get(host.arch) if host.arch else None
    if known is None or host.driver is None:
        return Check("gpu", True, "nothing is known against it")
    last, name = known.last_branch, host.gpu or f"compute capability {cuda_text(known.arch)}"
    if last is not None and host.driver[0] > last:
        return Check("gpu", False, f"R{last} is the last driver branch for {known.family} GPUs such as {name}")
    first = next((one for one in facts.toolkits() if one.cuda == known.first_cuda), None)
    if first is not None and host.driver[0] < first.driver[0]:
        return Check("gpu", False, f"{name} needs driver R{first.driver[0]} or later")
    return Check("gpu", True, f"the driver's branch supports {name}")


def _driver(need: Need, host: Host) -> tuple[Check, str]:
    cuda = need.cuda
    if cuda is None:
        return Check("driver", None, "which CUDA the image has is not known"), ""
    if host.cuda is not None and facts.at_least(host.cuda, cuda):
        text = f"the driver runs CUDA {cuda_text(host.cuda)} and older, the image has {cuda_text(cuda)}"
        return Check("driver", True, text), EXACT
    if host.driver is None and host.cuda is None:
        return Check("driver", None, "the driver is not known"), ""
    if host.is_newer:
        if facts.at_least(facts.toolkits()[0].cuda, cuda):
            return Check("driver", True, f"R{host.branch} is newer than CUDA {cuda_text(cuda)}"), EXACT
        return Check("driver", None, f"which CUDA R{host.branch} runs is not known"), ""
    floor = facts.floors().get(cuda[0])
    if floor is not None and _above(host, cuda, floor):
        note = "PTX of a newer toolkit is not compiled, and what needs a newer driver fails"
        if need.compat and host.forward_compat is False:
            note += f"; should the container load its cuda-compat, it fails on {host.gpu} (error 804)"
        text = f"CUDA {cuda_text(cuda)} runs on R{floor[0]} and later by minor version compatibility"
        return Check("driver", True, text, note), MINOR
    return _forward(need, host, cuda)


def _above(host: Host, cuda: Version, floor: Version) -> bool:
    if host.driver is not None:
        return facts.at_least(host.driver, floor)
    return host.cuda is not None and host.cuda[0] == cuda[0]


def _forward(need: Need, host: Host, cuda: Version) -> tuple[Check, str]:
    """Through the forward-compatibility package, which runs on data center GPUs and the branches that it names."""
    reports = f"the driver runs CUDA {cuda_text(host.cuda)} at most" if host.cuda else "the driver is too old"
    short = f"{reports}, the image has {cuda_text(cuda)} (error 35: driver version is insufficient)"
    package = f"cuda-compat-{cuda[0]}-{cuda[1]}"
    branches = facts.compat_branches(cuda)
    if host.forward_compat is False:
        return Check("driver", False, f"{short}; {package} does not run on {host.gpu} (error 804)"), ""
    if host.branch is not None and branches is not None and host.branch not in branches:
        listed = ", ".join(f"R{number}" for number in sorted(branches))
        return Check("driver", False, f"{short}; {package} runs on {listed} only"), ""
    if need.compat is False:
        return Check("driver", False, f"{short}; {package} is not in the image"), ""
    if host.branch is None or branches is None or host.forward_compat is None or need.compat is None:
        return Check("driver", None, f"{short}, unless {package} helps, which is not known here"), ""
    text = f"{package} in the image brings CUDA {cuda_text(cuda)} to R{host.branch} on data center GPUs"
    note = "the container toolkit must load it (hook enable-cuda-compat, or the legacy runtime mode)"
    return Check("driver", True, text, note), FORWARD


def _kernels(need: Need, host: Host, mode: str) -> Check:
    arch = host.arch
    if arch is None:
        return Check("kernels", None, "the GPU is not known")
    if not need.kernels:
        return _toolkit_knows(need, host, arch)
    listed = " ".join(kernel.text for kernel in need.kernels if kernel.sure)
    running = [kernel for kernel in need.kernels if _runs(kernel, arch)]
    if any(kernel.sure for kernel in running):
        return Check("kernels", True, f"built for {listed}: among them code that {cuda_text(arch)} runs")
    if running:
        return Check("kernels", None, f"reports differ on whether it is built for {running[0].text}")
    if any(kernel.ptx and not kernel.kind and kernel.arch <= arch for kernel in need.kernels):
        if mode == MINOR and need.cuda is not None:
            return _newer_ptx(need, host, need.cuda)
        note = "the driver compiles at the first load, which takes time"
        return Check("kernels", True if mode else None, f"built for {listed}: PTX serves {cuda_text(arch)}", note)
    reason = f"no kernel image is available for {cuda_text(arch)} (error 209): built for {listed}"
    return Check("kernels", False, reason)


def _newer_ptx(need: Need, host: Host, cuda: Version) -> Check:
    """PTX of a toolkit that is newer than the driver: only the forward-compatibility package can compile it."""
    reason = "PTX has to be compiled, and the driver is older than the image's CUDA (error 222)"
    helped, package = _forward(need, host, cuda)[0].fits, f"cuda-compat-{cuda[0]}-{cuda[1]}"
    if helped:
        return Check("kernels", True, f"{package} in the image compiles its PTX", "the container toolkit must load it")
    return Check("kernels", helped, reason if helped is False else f"{reason}, unless {package} helps")


def _toolkit_knows(need: Need, host: Host, arch: Version) -> Check:
    known = facts.architectures().get(arch)
    if need.cuda is None or known is None:
        return Check("kernels", None, "which architectures the image is built for is not known")
    name = f"{host.gpu or known.family} ({cuda_text(arch)})"
    if known.last_cuda is not None and need.cuda > known.last_cuda:
        reason = f"CUDA {cuda_text(need.cuda)} has no code for {name}; {cuda_text(known.last_cuda)} was the last"
        return Check("kernels", False, reason)
    if need.cuda > facts.toolkits()[0].cuda:
        return Check("kernels", None, f"which GPUs CUDA {cuda_text(need.cuda)} can build for is not known")
    if known.first_cuda is not None and need.cuda < known.first_cuda:
        reason = f"CUDA {cuda_text(need.cuda)} cannot build for {name}, {cuda_text(known.first_cuda)} is the first"
        return Check("kernels", None, reason + "; it runs only what carries PTX")
    can = f"CUDA {cuda_text(need.cuda)} can build for {name}"
    if need.toolkit:
        return Check("kernels", True, f"{can}, and its libraries are", "what is built upon it is not known")
    return Check("kernels", None, f"{can}, but whether this image was built for it is not known")


def _runs(kernel: Kernel, arch: Version) -> bool:
    """Whether compiled code runs there: the same major and no later minor; ``a`` on the very same, ``f`` in the family,
    which is the same major from its minor on."""
    if not kernel.sass:
        return False
    if kernel.kind == "a":
        return kernel.arch == arch
    return kernel.arch[0] == arch[0] and kernel.arch[1] <= arch[1]
