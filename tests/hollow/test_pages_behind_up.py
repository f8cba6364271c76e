"""What README and the tutorial show of kubectl and of the controllers, beside the same cluster: its columns, its names, what
it refuses and why, the node that it launches and its price. Ages, counts and random names are another run's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import yaml

import kube_programs
import shared_runs
from docs_outputs import REPOSITORY
from hollow.up_in_step import UpInStep
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.http import Server
from tonnage.decisions import Decision, Outcome
from tonnage.simulation import run, scenario

README = REPOSITORY / "README.md"
TUTORIAL = REPOSITORY / "docs" / "tutorial" / "kubectl-on-your-laptop.md"
BATCH = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
LATER = re.compile(r"(node/|nodeclaim/)?gpu-(inference|spot)-pool-\d{5}|(pod/)?batch-.*|web-.*")
"""Names of what the reader makes, or the controllers launch, on the way."""
HASHED = re.compile(r"^(.*-serving)-[0-9a-f]{8,10}-[a-z0-9]{5}$")


@dataclass(frozen=True)
class Shown:
    """A table on a page, and the command whose output it is."""

    page: Path
    command: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.stem}: {self.command}"


@dataclass
class Decided:
    """Implements Observer: keeps what was decided."""

    seen: list[tuple[str, Decision]] = field(default_factory=list)

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        self.seen.append((loop, decision))

    def ticked(self, loop: str, seconds: float, taken: int) -> None: ...

    def failed(self, loop: str, error: Exception) -> None:
        raise error


def sections(page: Path) -> Iterator[tuple[list[str], str]]:
    """The lines of shell code and the output that follows it."""
    text = page.read_text(encoding="utf-8")
    for shell, output in re.findall(r"```sh\n([^`]*)```\n\n```text\n([^`]*)```", text):
        yield [re.sub(r"\s+#.*", "", line) for line in shell.splitlines()], output


def tables() -> Iterator[Shown]:
    for page in (README, TUTORIAL):
        for shell, output in sections(page):
            commands = [line for line in shell if line.startswith("kubectl get") and " -w" not in line]
            found = [part.splitlines() for part in output.split("\n\n") if re.match(r"NAME |LAST SEEN ", part)]
            for command in commands:
                kinds = re.findall(r"deployments|replicasets|nodeclaims|nodes|pods|events", command)
                for _ in kinds[: len(found)]:
                    yield Shown(page, command, tuple(found.pop(0)))


TABLES = list(tables())


@dataclass
class Cluster:
    """The surge's cluster, what is decided on it, and kubectl."""

    up: UpInStep
    decided: Decided
    config: Path

    def kubectl(self, *words: str) -> str:
        """What it prints, errors included."""
        list(self.up.events("", ""))  # those that are on their way are written
        environment = os.environ | kube_programs.QUICK_START | {"KUBECONFIG": str(self.config)}
        command = [str(kube_programs.kubectl()), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kube_programs.kubectl()
    made = run.set_up(scenario.load(REPOSITORY / "examples" / "traffic-surge"), "slo")
    decided = Decided()
    with UpInStep(made, decided) as up, Server(up.api) as server:
        config = kubeconfig.write(tmp_path_factory.mktemp("kube") / "config", server.url)
        (batch,) = BATCH.findall(TUTORIAL.read_text(encoding="utf-8"))
        up.apply(yaml.safe_load(batch))
        up.run_for(60)
        yield Cluster(up, decided, config)


def test_every_table_on_the_pages_is_compared() -> None:
    assert len(TABLES) == sum(
        len(re.findall(r"^NAME |^LAST SEEN ", output, re.MULTILINE))
        for page in (README, TUTORIAL)
        for _, output in sections(page)
    )
    assert len(TABLES) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("shown", TABLES, ids=str)
def test_a_table_has_the_columns_and_names_that_kubectl_prints(cluster: Cluster, shown: Shown) -> None:
    printed = cluster.kubectl(*shlex.split(shown.command)[1:]).splitlines()
    header, *rows = shown.lines
    if "replicasets" not in shown.command:  # none is there until the reader makes some
        assert header.split() in [line.split() for line in printed if re.match(r"NAME |LAST SEEN ", line)]
    there = {name(line.split()[0]): line.split() for line in printed if line.strip()}
    at = header.split().index("NAME") if "NAME" in header.split() else None
    versions = {line.split()[header.split().index("VERSION")] for line in rows if "VERSION" in header and line != "…"}
    for row in (line for line in rows if line != "…" and at is not None):
        assert name(row.split()[0]) in there or LATER.fullmatch(row.split()[0]), row
    assert all(any(version in words for words in there.values()) for version in versions)


def name(written: str) -> str:
    """Without what is drawn at random."""
    return HASHED.sub(r"\1", written)


@pytest.mark.slow
def test_the_pending_pod_is_told_what_the_tutorial_says_and_gets_the_node_with_its_price(cluster: Cluster) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    (said,) = set(re.findall(r"(0/3 nodes are available: .*)", text))
    assert said in cluster.kubectl("describe", "pod", "-l", "app=batch")
    (launched,) = re.findall(r"provisioner  (launch .*? for 1 pod)  \[Applied\]  (.*)", text)
    found = [one for loop, one in cluster.decided.seen if loop == "provisioner"]
    assert launched in [(one.summary(), one.reason.text()) for one in found]


@pytest.mark.slow
def test_what_is_refused_is_refused_in_the_words_of_the_tutorial(cluster: Cluster) -> None:
    ((shell, output),) = [one for one in sections(TUTORIAL) if "kubectl explain" in one[0][0]]
    cluster.kubectl("create", "deployment", "web", "--image=x")
    cluster.up.run_for(20)
    said = [cluster.kubectl(*shlex.split(line)[1:]).strip() for line in shell if "explain" not in line]
    assert [" ".join(one.split()) for one in said] == [" ".join(one.split()) for one in output.strip().splitlines()]
    (explain,) = [line for line in shell if "explain" in line]
    assert "consolidateAfter" in cluster.kubectl(*shlex.split(explain)[1:])


@pytest.mark.slow
def test_what_the_policy_says_of_the_surge_are_the_figures_that_it_gives() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    shown = re.findall(r"slo +scale Deployment (\S+) from \d+ to \d+  \[Applied\]  (.*?) \[(.*?)(?:, …)?\]", text)
    given = [one for one in shared_runs.short_surge("slo").decisions if one.loop == "slo"]
    assert shown and given
    for workload, verdict, evidence in shown:
        assert any(one.target.endswith(workload) for one in given)
        figures = {key for one in given if one.verdict == verdict for key, _ in one.evidence}
        assert {part.partition("=")[0].strip() for part in evidence.split(",")} <= figures, (workload, verdict)


def test_the_clock_of_the_tutorial_is_that_of_its_speed() -> None:
    """The surge comes no earlier than so many minutes of the reader's after the start."""
    (surge,) = scenario.load(REPOSITORY / "examples" / "traffic-surge").traffic[0].surges
    speed = int(re.findall(r"--speed (\d+)", TUTORIAL.read_text(encoding="utf-8"))[0])
    assert 2 <= min(np.atleast_1d(surge.start_s)) / 60 / speed < 3
