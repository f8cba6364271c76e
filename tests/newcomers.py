"""A newcomer's hour: what README, tutorials and how-tos say to type, typed in a folder of a newcomer.

The folder has the bundled examples as a clone has them, and a stand-in for what a page takes for given: logs, manifests,
a dump, prices. A cluster and a Prometheus are there too. None of the public traces is needed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import shared_runs
from docs_outputs import PROMETHEUS, REPOSITORY, pages
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.cli import main, runs
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.resources import ALL, NAMESPACES, NODES, PODS, Resource
from tonnage.kube.verbs import Client
from tonnage.objects import tree
from tonnage.simulation.result import Result

WIDTHS = (60, 80, 120)
CONTEXTS = ("prod", "staging")
LONG = ("examples/", "my-surge", "my-scenario/")
"""How scenarios of an hour or more begin."""
_SHELL = re.compile(r"^( *)```sh\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
OTHERS = {"kubectl", "helm", "make", "curl", "podman", "pip", "python", "python3", "export", "source", "for", "done"}
"""First words of lines that are not typed here: programs of others, the installation, what is about the shell."""
ENDED = {"controller": ("--once",)}
"""What commands that run until they are interrupted are given besides, so that they end."""
NOT_HERE = {
    "trace hash requests.jsonl --tokenizer ./Qwen3-8B …": "the tokenizer of a model is not bundled",
    "mig discover": "there is no GPU",
    "agent doctor": "there is no GPU",
    "agent metrics …": "it serves until it is interrupted: tests/cli/test_agent_metrics.py",
    "backtest …": "a run is compared with a Prometheus in tests/live/prometheus",
    "size Qwen/Qwen3-8B --gpu h100 --prometheus …": "tests/cli/test_size_calibrate.py asks a Prometheus",
    "up …": "it warms up for real seconds: tests/hollow and tests/e2e run it",
    "controller --only scheduler --mode apply …": "it writes until it is interrupted: tests/live and tests/e2e",
    "controller --only replicas --mode apply …": "it writes until it is interrupted: tests/live and tests/e2e",
    "controller --only nodes …": "it writes until it is interrupted, or AWS is asked: tests/live and tests/e2e",
    "cuda rollout --context …": "its nodes have a driver of the GPU operator: tests/cli/test_cuda_rollout.py",
    "realloc …": "it changes the cluster: tests/cli/test_realloc.py",
    "compare my-surge --policy now …": "its policies are the reader's own",
}
"""Commands that are not typed here, and why; … stands for whatever follows."""


@dataclass(frozen=True)
class Typed:
    """A line of a page as it is typed: its words, and the file into which the output goes, or none."""

    words: tuple[str, ...]
    into: str = ""

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def command(self) -> str:
        return " ".join(self.words[1:])

    @property
    def plays(self) -> bool:
        """Whether it plays a scenario of an hour or more."""
        played = ("tonnage simulate ", "tonnage compare ", "tonnage scale ")
        return str(self).startswith(played) and any(one.startswith(LONG) for one in self.words)


def newcomers_pages() -> list[Path]:
    """README, tutorials and how-tos that have something to type here."""
    found = [one for one in pages() if one == REPOSITORY / "README.md" or one.parent.name in ("tutorial", "how-to")]
    return [page for page in found if any(typed(page))]


def lines(page: Path) -> Iterator[str]:
    """The lines of a page's shell code: without comments and here-documents, those that go on put together."""
    for match in _SHELL.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(r"<<'EOF'\n.*?\n *EOF\n", "\n", match[2], flags=re.DOTALL).replace("\\\n", " ")
        for line in text.splitlines():
            if line.strip() and not line.strip().startswith("#"):
                yield re.sub(r"\s+# .*$", "", line.strip())


def typed(page: Path) -> Iterator[Typed]:
    """What of a page is typed here: tonnage, up to a pipe, and what makes folders for it."""
    for line in lines(page):
        words = _first_command(line)
        words[0] = words[0].removeprefix(".venv/bin/")
        into = words.index(">") if ">" in words else len(words)
        made = Typed(tuple(words[:into]), words[into + 1] if words[into:] else "")
        if words[0] in ("cp", "mkdir") or (words[0] == "tonnage" and "$" not in line and not _elsewhere(made.command)):
            yield made


def _elsewhere(command: str) -> bool:
    return any(command.startswith(one[:-1]) if one.endswith("…") else command == one for one in NOT_HERE)


def _first_command(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    words = list(lexer)
    return words[: next((at for at, word in enumerate(words) if word[0] in "|&;"), len(words))]


# ---- what a newcomer has ----


def lay_out(folder: Path) -> None:
    """Put into the folder what a clone has, and a stand-in for each file that a page takes for given."""
    for name in ("examples", "docs", "charts"):
        (folder / name).symlink_to(REPOSITORY / name)
    files = REPOSITORY / "docs" / "files"
    for name in ("your-manifests", "workloads"):
        shutil.copytree(files / "tune-chat" / "manifests", folder / name)
    shutil.copytree(files / "tune-chat", folder / "my-scenario")
    shutil.copytree(files / "scale-history", folder / "manifests")
    (folder / "manifests" / "metrics.txt").rename(folder / "metrics.txt")
    (folder / "manifests" / "pods.yaml").write_text(TEXTS["pods.yaml"], encoding="utf-8")
    surge = folder / "my-surge"
    shutil.copytree(REPOSITORY / "examples" / "traffic-surge", surge)
    cluster = (files / "waiting-cluster.yaml").read_text(encoding="utf-8")
    for name in ("cluster.yaml", "nodes-and-pods.yaml"):
        (folder / name).write_text(f"{cluster}---\n{TEXTS['node.yaml']}---\n{TRAIN}", encoding="utf-8")
    log = b"".join(_log())
    for name in ("requests", "your-log", "mooncake_synthetic_trace"):
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(log))
    for name in ("log.jsonl", "trace.jsonl"):
        (folder / name).write_bytes(log)
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")


def _log(requests: int = 120) -> Iterator[bytes]:
    """A log of sessions that share prompts, one line a request."""
    rng = Random(0)
    for at in range(requests):
        ids = [*range(8), *range(100 + 10 * (at % 6), 100 + 10 * (at % 6) + 2 + at // 12)]
        tokens = 512 * len(ids) - rng.randrange(500)
        line = {"timestamp": 700 * at, "input_length": tokens, "output_length": rng.randrange(20, 90), "hash_ids": ids}
        yield json.dumps(line).encode() + b"\n"


TEXTS = {
    "AzureLLMInferenceTrace_conv.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    + "".join(
        f"2023-11-16 18:{15 + at // 30:02}:{2 * at % 60:02}.0000000,{200 + at * 37 % 900},{40 + at * 13 % 300}\n"
        for at in range(240)
    ),
    "mine.csv": "gpu,concurrency,input_tokens,output_tokens,tpot_ms\nh100,8,1024,256,14\nh100,16,1024,256,16\n",
    "my-prices.csv": "instance_type,usd_per_hour\ng6e.12xlarge,6.82\n",
    "node.yaml": """\
apiVersion: v1
kind: Node
metadata:
  name: card-1
  labels:
    kubernetes.io/hostname: card-1
    nvidia.com/cuda.driver-version.full: 535.161.08
    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
    nvidia.com/gpu.count: "8"
    nvidia.com/gpu.present: "true"
    nvidia.com/mig.capable: "true"
status:
  allocatable: {cpu: "96", memory: 1000Gi, pods: "110", nvidia.com/gpu: "8"}
  capacity: {cpu: "96", memory: 1000Gi, pods: "110", nvidia.com/gpu: "8"}
  conditions: [{type: Ready, status: "True"}]
""",
    "pods.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 8
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec: {containers: [{name: chat, image: chat, resources: {limits: {nvidia.com/gpu: 1}}}]}
""",
    "cluster-autoscaler.yaml": """\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: prod, region: us-east-1}
managedNodeGroups: [{name: gpu, instanceType: g6e.12xlarge, minSize: 0, maxSize: 8, desiredCapacity: 0}]
""",
}

TRAIN = """\
apiVersion: v1
kind: Pod
metadata: {name: train-0}
spec: {containers: [{name: train, image: acme/trainer:7, resources: {limits: {nvidia.com/gpu: 16}}}]}
"""
SLICED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "notebook", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}],
    },
}


def make_cluster() -> Api:
    """A cluster with what pages ask about: the surge's objects, pods that wait, claims for devices."""
    api = Api()
    client = Client(InProcess(api))
    define_missing_kinds(client)
    kinds = {(one.api_version, one.kind): one for one in ALL}
    files = REPOSITORY / "docs" / "files"
    for path in (
        *sorted((REPOSITORY / "examples" / "traffic-surge" / "manifests" / "corrected").glob("*.yaml")),
        files / "waiting-cluster.yaml",
        files / "device-claims.yaml",
        files / "pods-with-claims.yaml",
    ):
        for body in yaml.load_all(path.read_text(encoding="utf-8"), Loader=tree.LOADER):
            for one in body["items"] if body["kind"] == "List" else [body]:
                if kind := kinds.get((one["apiVersion"], one["kind"])):  # all but a scheduler's Topology
                    _create(client, kind, one)
    client.create(NODES, yaml.load(TEXTS["node.yaml"], Loader=tree.LOADER))
    client.create(PODS, SLICED, "default")
    return api


def _create(client: Client, kind: Resource, body: dict[str, Any]) -> None:
    namespace = body["metadata"].get("namespace", "default") if kind.namespaced else ""
    if namespace and namespace not in {one["metadata"]["name"] for one in client.list(NAMESPACES)}:
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    client.create(kind, body, namespace)


def write_config(path: Path, url: str) -> None:
    """A kubeconfig with the contexts that pages name."""
    kubeconfig.write(path, url)
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    context = config["contexts"][0]
    config["contexts"] += [context | {"name": name} for name in CONTEXTS]
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


# ---- typing ----


@dataclass(frozen=True)
class Answer:
    """What a line left behind."""

    code: int
    out: str
    err: str


_PLAYED: dict[str, list[Result]] = {}


def _played(made: Callable[..., list[Result]], jobs: Sequence[runs.RunRequest], *, quiet: bool) -> list[Result]:
    """The results of runs; those of the same command are the same at any width."""
    asked = repr(jobs)
    if asked not in _PLAYED:
        _PLAYED[asked] = made(jobs, quiet=quiet)
    return _PLAYED[asked]


def type_in(line: Typed, folder: Path, prometheus: str) -> Answer:
    """Type a line in the folder, on a pipe as wide as ``COLUMNS``."""
    if line.words[0] == "mkdir":
        (folder / line.words[-1]).mkdir(parents=True)
        shutil.copytree(folder / "your-manifests", folder / line.words[-1], dirs_exist_ok=True)
        return Answer(0, "", "")
    if line.words[0] == "cp":
        shutil.copytree(folder / line.words[2], folder / line.words[3], dirs_exist_ok=True)
        return Answer(0, "", "")
    words = [word.replace(PROMETHEUS, prometheus) for word in line.words[1:]]
    words += [one for one in ENDED.get(words[0], ()) if one not in words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as around:
        for context in (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            shared_runs.on_the_command_line(),
        ):
            around.enter_context(context)
        patch = around.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(runs, "run_all", partial(_played, runs.run_all))
        try:
            main(words)
        except SystemExit as ended:
            assert isinstance(ended.code, int)
            code = ended.code
    if line.into:
        (folder / line.into).write_text(out.getvalue(), encoding="utf-8")
    return Answer(code, out.getvalue(), err.getvalue())
