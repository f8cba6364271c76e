"""Builds the recipe into a cache outside the source tree.

Each module's output is one folder, ``$TONNAGE_E2E_CACHE/<module>-<key>`` (default: ``~/.cache/tonnage/e2e``), where the
key is a hash of all that goes in: sources, go.mod, go.sum, the recipe's entry, Go's version and platform. A folder of
that name is whole: it is made under another name and renamed at the end. One build runs at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e import image, prerequisites
from e2e.recipe import READ, RECIPE, Module, Program

FLAGS = ("-trimpath", "-p=2")
"""``-p=2``: more linkers and compilers at once need more than the 4 GiB of a small CI machine."""
IMAGE_NAMES = ("registry.test/pause:1", "registry.test/workload:1")


class BuildError(Exception):
    """The build failed or cannot begin; the text says why."""


@dataclass(frozen=True, slots=True)
class Built:
    """Where the built modules are, by name."""

    folders: dict[str, Path]

    def program(self, name: str) -> Path:
        """The path of a program. Raises KeyError when nothing built it."""
        for folder in self.folders.values():
            if (folder / "bin" / name).exists():
                return folder / "bin" / name
        raise KeyError(name)

    @property
    def images(self) -> Path:
        """An OCI archive with ``IMAGE_NAMES``."""
        return self.folders["tiny"] / "images.tar"


def cache() -> Path:
    """The folder of all builds."""
    given = os.environ.get("TONNAGE_E2E_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "tonnage" / "e2e"


def key(module: Module) -> str:
    """The hash of all that goes into a module's output."""
    toolchain = subprocess.run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(toolchain + repr((module, FLAGS, IMAGE_NAMES)).encode())
    digest.update(",".join(program.tags for program in module.programs if program.tags).encode())
    sources = [p for p in module.folder.rglob("*") if p.is_file()]
    for path in sorted([*sources, Path(image.__file__)]):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


def built(modules: Sequence[Module] = RECIPE) -> Built | None:
    """What these modules make, if all of it is in the cache; None otherwise."""
    if prerequisites.to_build():
        return None
    folders = {module.name: _folder(module) for module in modules}
    return Built(folders) if all(folder.is_dir() for folder in folders.values()) else None


def build(modules: Sequence[Module] = RECIPE) -> Built:
    """Build what is not in the cache yet; says on stdout what it made and how long it took.

    Raises BuildError when Go is missing or a build fails."""
    if why := prerequisites.to_build():
        raise BuildError(why)
    folders = {module.name: _folder(module) for module in modules}
    if not all(folder.is_dir() for folder in folders.values()):
        cache().mkdir(parents=True, exist_ok=True)
        with _alone():
            for module in modules:
                if not folders[module.name].is_dir():
                    _make(module, folders[module.name])
    return Built(folders)


def download() -> None:
    """Have the Go modules that tests read in Go's cache; what cannot be had is said."""
    for name in READ:
        words = ["go", "mod", "download", "-json", name]
        done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
        if '"Zip"' not in done.stdout:
            print(f"could not download {name}: {(done.stderr or done.stdout).strip()}", flush=True)


def _folder(module: Module) -> Path:
    return cache() / f"{module.name}-{key(module)}"


@contextmanager
def _alone() -> Iterator[None]:
    """One build at a time. The lock goes with the process, however it ends."""
    with (cache() / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build is running; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(module: Module, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    for number, program in enumerate(module.programs, 1):
        with _Progress(f"{module.name} {number}/{len(module.programs)}: {program.name}") as progress:
            _go_build(module, program, partial / "bin" / program.name)
            progress.size = (partial / "bin" / program.name).stat().st_size
    for name, target in module.links:
        (partial / "bin" / name).symlink_to(target)
    for source, pattern, target in module.files:
        _copy(module, source, pattern, partial / target)
    if module.name == "tiny":
        image.write(partial / "images.tar", partial / "bin" / "tiny", IMAGE_NAMES)
    partial.rename(folder)


def _go_build(module: Module, program: Program, out: Path) -> None:
    linker = f"-s -w {module.linker_flags(program)}".strip()
    words = ["go", "build", *FLAGS, "-tags", program.tags, "-ldflags", linker, "-o", str(out), program.package]
    done = subprocess.run(
        words, cwd=module.folder, env=os.environ | {"CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading ")]
        raise BuildError(f"go build {program.package} in {module.folder} failed:\n" + "\n".join(said[-20:]))


def _copy(module: Module, source: str, pattern: str, target: Path) -> None:
    """Files of a Go module that the build has just downloaded, kustomize's own left out."""
    words = ["go", "list", "-m", "-f", "{{.Dir}}", source]
    done = subprocess.run(words, cwd=module.folder, capture_output=True, text=True, check=True)
    target.mkdir(exist_ok=True)
    found = [p for p in sorted(Path(done.stdout.strip()).glob(pattern)) if p.name != "kustomization.yaml"]
    if not found:
        raise BuildError(f"{source} {module.version(source)} has no {pattern}")
    for path in found:
        shutil.copyfile(path, target / path.name)


class _Progress:
    """A line that counts seconds on a terminal; in a pipe only the one with the result."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._begun = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self.size = 0

    def __enter__(self) -> _Progress:
        if sys.stdout.isatty():
            self._thread.start()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        took = time.monotonic() - self._begun
        result = "failed" if failed else f"{self.size / 2**20:.0f} MiB"
        start = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{start}built {self._what}, {took:.0f} s, {result}", flush=True)

    def _tick(self) -> None:
        while not self._done.wait(0.5):
            print(f"\r\033[Kbuilding {self._what}, {time.monotonic() - self._begun:.0f} s", end="", flush=True)
