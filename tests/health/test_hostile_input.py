"""Input that nobody means well with gets an answer: soon, with a documented exit code, and nothing that steers a terminal."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

import pytest

from cli.cli_builders import Ran, tonnage
from deep_seeds import deep
from fuzz.fuzz_budget import seeds
from health import hostile
from health.broken_sets import good
from tonnage.cli.terminal import visible

COMMANDS = ("check", "simulate", "why")
SECONDS = 5.0
"""Of CPU time, after the first answer of a process: that one also reads the program."""
DEEP = 1_000
"""Inputs of each command in a deep run."""
DEEP_FOLDER = "a/b/c"
"""So that a path of ../../.. in an input leads to that input alone."""
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
NAMES = ("deploy/model", "model", "inference/model", "job/finetune", "svc/model", "\x1b[31m")


@pytest.fixture(scope="module")
def warmed() -> list[str]:
    """The commands that this process has answered."""
    return []


@pytest.fixture(autouse=True)
def warm(tmp_path: Path, capfd: pytest.CaptureFixture[str], warmed: list[str]) -> None:
    """The program is read before any answer is timed."""
    if warmed:
        return
    warmed += COMMANDS
    set_ = good()[0].write(tmp_path / "warm")
    for command, asked in (("check", [set_]), ("simulate", [set_]), ("why", ["deploy/model", set_])):
        tonnage(capfd, command, *asked)


def answer(command: str, rng: Random, made: hostile.Made, folder: Path, capfd: pytest.CaptureFixture[str]) -> Ran:
    paths = made(rng, folder)
    asked = {"check": paths, "simulate": [*paths[:1]], "why": [rng.choice(NAMES), *paths]}[command]
    begun = time.process_time()
    done = tonnage(capfd, command, *asked)
    assert time.process_time() - begun < SECONDS
    assert done.code in (0, 1, 2), done.err
    assert done.code == 0 or done.out or done.err
    assert not STEERS.search(done.out + done.err)
    assert len(done.err) < 200_000
    return done


@pytest.mark.parametrize("seeds", [(0, 1), *deep([(2, 3)])], ids=lambda seeds: f"from-{seeds[0]}")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("made", list(hostile.kinds()), ids=lambda made: made.__name__.strip("_"))
def test_every_kind_is_answered(
    command: str, made: hostile.Made, seeds: tuple[int, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in seeds[:1] if made is hostile.much else seeds:
        answer(command, Random(seed), made, tmp_path / f"{seed}" / DEEP_FOLDER, capfd)


@pytest.mark.fuzz
@pytest.mark.parametrize("command", COMMANDS)
def test_any_is_answered(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    codes = {0: 0, 1: 0, 2: 0}
    for seed in seeds(deep=DEEP):
        rng = Random(seed)
        try:
            codes[answer(command, rng, hostile.any_kind(rng), tmp_path / f"{seed}" / DEEP_FOLDER, capfd).code] += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
    with capfd.disabled():
        print(f" {command}: {sum(codes.values())} inputs, by exit code {codes}", end="")
    assert codes[2]


def test_what_a_file_says_is_shown_and_does_not_act() -> None:
    assert visible("\x1b[31mred\x9b2J\x7f\r\x00") == "\\x1b[31mred\\x9b2J\\x7f\\x0d\\x00"
    assert visible("a\tb\nc é 中 🙂") == "a\tb\nc é 中 🙂"
    assert visible("\u202egnp.exe\u2066") == "\\u202egnp.exe\\u2066"


MARKUP = """\
apiVersion: v1
kind: Pod
metadata: {name: model, annotations: {"a/b": c}}
spec:
  schedulerName: "[link=http://evil.example]x[/link]\\x1b]0;t\\x07:boom:\\x9b2J"
  containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_markup_and_escapes_in_a_field_are_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pod.yaml").write_text(MARKUP)
    text = "".join(tonnage(capfd, "check", tmp_path / "pod.yaml").out.split())
    assert "[link=http://evil.example]x[/link]\\x1b]0;t:boom:\\x9b2J" in text  # rich itself drops bells
    as_json = tonnage(capfd, "check", tmp_path / "pod.yaml", "-o", "json").out
    assert "\\u001b]0;t\\u0007:boom:\\u009b2J" in as_json


def pods_of(kind: str, spec: str) -> str:
    return f"apiVersion: {'apps/v1' if kind == 'Deployment' else 'batch/v1'}\nkind: {kind}\nmetadata: {{name: m}}\nspec:\n  {spec}\n"


TEMPLATE = "template: {metadata: {labels: {a: b}}, spec: {restartPolicy: POLICY, containers: [{name: c, image: x}]}}"


@pytest.mark.parametrize(
    ("kind", "numbers", "field"),
    [
        ("Deployment", "replicas: 2147483647\n  selector: {matchLabels: {a: b}}", "replicas"),
        ("Job", "parallelism: 2147483647\n  completions: 2147483647", "parallelism"),
        ("Job", "parallelism: 1\n  completions: 150001", "completions"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_more_pods_than_any_cluster_has_are_refused_at_their_number(
    command: str, kind: str, numbers: str, field: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = "Always" if kind == "Deployment" else "Never"
    file = tmp_path / "set" / "x.yaml"
    file.parent.mkdir()
    file.write_text(pods_of(kind, f"{numbers}\n  {TEMPLATE.replace('POLICY', policy)}"))
    done = tonnage(capfd, command, *(["m"] if command == "why" else []), file.parent)
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if field in text)
    assert done.code == 2
    assert done.err.startswith(f"error: {file}:{line}:spec.{field}: ")
    assert "pods, expected at most 150,000" in done.err
