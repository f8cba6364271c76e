"""``make image``: the controllers' image without podman, docker or a registry, from Debian's packages and Python's.

``python -m scripts.image [--out FILE] [--name REPOSITORY:TAG]`` writes an OCI archive, and says how to load it. It
needs apt (Debian or Ubuntu) and pip, both with their usual sources, and no root. Python and what it needs are those of
the machine's own Debian release, laid out without their maintainer scripts: there is no shell and no package manager in
the image. What runs in it, as whom, with which environment and labels, stands in the Containerfile, and so does what is
installed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from e2e import oci

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("python3", "ca-certificates", "tzdata", "libstdc++6")
UNUSED = {"dpkg", "tar", "debconf", "openssl", "readline-common", "media-types"}
"""What depends on nothing but maintainer scripts and interactive use."""
CERTIFICATES = "usr/share/ca-certificates/mozilla"
PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_27", "manylinux_2_28")
"""Wheels for these are taken: Debian 12 has glibc 2.36."""


class Missing(Exception):
    """Something that the image is made with is not on this machine; the text says what."""


def main(arguments: list[str] | None = None) -> int:
    """Write the archive; the exit code: 3 where the machine lacks something."""
    version = _project()["version"]
    parser = argparse.ArgumentParser(prog="python -m scripts.image", description="The image as an OCI archive.")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "tonnage-image.tar")
    parser.add_argument("--name", default=f"ghcr.io/tonnage/tonnage:{version}", help="REPOSITORY:TAG")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*:[\w][\w.-]{0,127}", given.name):
        parser.error(f"--name {given.name}: expected REPOSITORY:TAG")
    try:
        digest = build(given.out, given.name)
        started = smoke(given.out)
    except Missing as why:
        print(f"image: {why}", file=sys.stderr)
        return 3
    print(f"{given.out} ({given.out.stat().st_size / 2**20:.0f} MiB): {given.name}@{digest}")
    print(started)
    print(f"podman load --input {given.out}    # or: kind load image-archive, ctr -n k8s.io images import")
    return 0


def build(out: Path, name: str) -> str:
    """Write the archive; the digest of the image. Raises Missing."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool}: the image is made on Debian or Ubuntu; elsewhere use the Containerfile")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tonnage-image-") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        lay_out(root, Path(folder))
        python = install(root, Path(folder))
        compile_all(root, python)
        settle(root)
        return oci.archive(out, root, config(), [name])


def smoke(archive: Path) -> str:
    """Start the image from its archive with runc, as a pod would: read-only, as its own user, without capabilities and
    network. What came of it. Raises Missing when it does not start."""
    if why := oci.cannot_start():
        return f"not started here: {why}"
    modules = "import boto3, highspy, numpy, tonnage.live.manager as found; print(found.__name__)"
    with oci.bundle(archive) as run:
        for words, wanted in (
            (["tonnage", "--version"], f"tonnage {_project()['version']}"),
            (["tonnage", "controller", "--help"], "--namespace-of-lease"),
            (["python", "-c", modules], "tonnage.live.manager"),
        ):
            done = run(words)
            if done.returncode or wanted not in done.stdout:
                said = f"{done.stdout}{done.stderr}"
                raise Missing(f"{' '.join(words)} ended with {done.returncode} in the image: {said}")
    return "started by runc: it answers, and has what the controllers import"


# ---- Debian's part ----


def lay_out(root: Path, work: Path) -> None:
    """Python and what it needs, from the packages of this machine's Debian release."""
    archives, status = work / "archives", work / "status"
    (archives / "partial").mkdir(parents=True)
    status.write_text("")
    options = {
        "Dir::State::status": status,  # nothing is installed: everything that is needed comes
        "Dir::Cache::archives": archives,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "true",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
    }
    words = ["apt-get", *(f"-o{key}={value}" for key, value in options.items()), "--quiet=2", "--yes"]
    done = _run([*words, "install", "--download-only", *PACKAGES])
    if done.returncode:
        raise Missing(f"apt-get cannot fetch Debian's packages: {_last(done.stderr)} (apt-get update first?)")
    for package in sorted(archives.glob("*.deb")):
        if package.name.partition("_")[0] not in UNUSED:
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)


def settle(root: Path) -> None:
    """What maintainer scripts would do, and what is of no use at run time."""
    found = sorted((root / CERTIFICATES).glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(one.read_text() for one in found))
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for file, line in _accounts():
        with (root / file).open("a") as there:
            there.write(f"{line}\n")
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for unused in ("usr/share/doc", "usr/share/man", "usr/share/lintian", "usr/share/locale", "var/lib", "var/cache"):
        keep = root / unused
        if unused == "usr/share/doc":  # licences stay
            for one in keep.rglob("*"):
                if one.is_file() and one.name != "copyright":
                    one.unlink()
        else:
            shutil.rmtree(keep, ignore_errors=True)


# ---- Tonnage's part ----


def install(root: Path, work: Path) -> str:
    """Tonnage and what it needs, in an environment at /opt/tonnage; Python's version as in ``3.11``. Raises Missing."""
    (program,) = (one for one in (root / "usr/bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", one.name))
    version = program.name.removeprefix("python")
    home = root / "opt/tonnage"
    site = home / f"lib/python{version}/site-packages"
    (home / "bin").mkdir(parents=True)
    (home / "bin/python").symlink_to(f"/usr/bin/{program.name}")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(work), str(ROOT)])
    if done.returncode:
        raise Missing(f"pip cannot build the wheel: {_last(done.stderr)}")
    (wheel,) = work.glob("tonnage-*.whl")
    machine = os.uname().machine
    platforms = [f"--platform={one}_{machine}" for one in PLATFORMS]
    extras = _arguments()["EXTRAS"]
    where = [f"--target={site}", "--no-compile", f"--python-version={version}", "--only-binary=:all:", *platforms]
    done = _run([*pip, "install", *where, f"{wheel}[{extras}]" if extras else str(wheel)])
    if done.returncode:
        raise Missing(f"pip cannot fetch what Tonnage needs: {_last(done.stderr)}")
    shutil.rmtree(site / "bin", ignore_errors=True)
    for where_from in site.glob("*.dist-info/direct_url.json"):  # a folder of this machine
        where_from.unlink()
    for name, entry in _project()["scripts"].items():
        module, _, function = entry.partition(":")
        script = home / "bin" / name
        script.write_text(
            f"#!/opt/tonnage/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    return version


def compile_all(root: Path, version: str) -> None:
    """The image is read-only at run time: what Python would compile then is compiled now. Raises Missing."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != version:
        raise Missing(f"Debian's Python is {version}, this is {sys.version}; make image PYTHON=python{version}")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for part in ("usr/lib", "opt/tonnage/lib"):
        compileall.compile_dir(
            root / part, quiet=2, force=True, invalidation_mode=mode, stripdir=str(root), prependdir="/", workers=0
        )


# ---- the Containerfile's part ----


def config() -> dict[str, Any]:
    """What the Containerfile says of the container: its last stage, as the image specification has it."""
    found: dict[str, Any] = {"Env": [], "Labels": {}, "ExposedPorts": {}}
    for name, rest in _stage():
        if name == "ENV":
            found["Env"] += [_filled(word) for word in rest.split()]
        elif name == "LABEL":
            found["Labels"] |= {key: _filled(value) for key, value in re.findall(r'([\w.]+)="([^"]*)"', rest)}
        elif name == "EXPOSE":
            found["ExposedPorts"][f"{rest}/tcp"] = {}
        elif name in ("ENTRYPOINT", "CMD"):
            found[name.title()] = json.loads(rest)
        elif name == "USER":
            found["User"] = rest
        elif name == "WORKDIR":
            found["WorkingDir"] = rest
    return found


def _stage() -> list[tuple[str, str]]:
    """The instructions of the last stage, continued lines joined."""
    text = (ROOT / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    split = [(name, rest) for name, _, rest in (line.partition(" ") for line in joined)]
    last = max(number for number, (name, _) in enumerate(split) if name == "FROM")
    return split[last + 1 :]


def _accounts() -> list[tuple[str, str]]:
    """The lines that the last stage adds to files in /etc."""
    text = " ".join(rest for name, rest in _stage() if name == "RUN")
    return [(file.lstrip("/"), line) for line, file in re.findall(r"echo '([^']*)' >> (/etc/\w+)", text)]


def _arguments() -> dict[str, str]:
    """Build arguments and their defaults."""
    text = (ROOT / "Containerfile").read_text()
    return dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.M))


def _filled(text: str) -> str:
    """With build arguments and the PATH of an image that has none."""
    values = {**_arguments(), "REVISION": _revision(), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], text)


def _revision() -> str:
    done = _run(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    return done.stdout.strip() if not done.returncode else _arguments()["REVISION"]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project | {"version": project.get("version") or _arguments()["VERSION"]}


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2]


if __name__ == "__main__":
    sys.exit(main())
