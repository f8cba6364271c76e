"""SGLang and TensorRT-LLM servers: flags that the simulated engine does not follow, and more ranks than GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.decisions import Finding, Ref
from tonnage.fleet.asks import is_device
from tonnage.health.setting import Pods
from tonnage.inference.servers import other_servers
from tonnage.inference.servers.other_servers import TITLES, OtherServer
from tonnage.objects import core

_NODES = ("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr", "--gpus-per-node")
_GROUPS = ("LeaderWorkerSet", "MPIJob", "RayCluster", "RayJob", "RayService")


def unread_flags(found: Sequence[Pods]) -> Iterator[Finding]:
    """For each such server its flags that matter and are not read, and those that are not known here."""
    for pods in found:
        server = other_servers.find(pods.spec)
        if server is None or pods.engine is not None:
            continue
        of = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace)
        title = TITLES[server.engine]
        for flag, at in server.line.unread:
            message = f"{title}'s {flag} is not read: the engine runs as without it"
            yield Finding("engine-flag-unread", "info", of, pods.where(server.field(at)), message)
        for flag, at in server.line.unknown:
            message = f"no flag {flag} of {title} is known here: the engine runs as without it"
            yield Finding("engine-flag-unread", "info", of, pods.where(server.field(at)), message)


def too_few_gpus(found: Sequence[Pods]) -> Iterator[Finding]:
    """For each such server that runs in one pod, as all its ranks must have a GPU there: TP × PP × DP is more than the
    pod has. With data-parallel attention the ranks of DP are among those of TP."""
    for pods in found:
        server = other_servers.find(pods.spec)
        if server is None or pods.engine is not None or server.line.problem or _goes_on_elsewhere(pods, server):
            continue
        asked = core.container_requests(server.container)
        resource, has = next(((name, n) for name, n in sorted(asked.items()) if n and is_device(name)), ("", 0))
        args, within = server.line.args, _given(server, "--enable-dp-attention")
        needed = args.gpus // (args.data_parallel_size if within else 1)
        if not has or needed <= has:
            continue
        of = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace)
        message = (
            f"{TITLES[server.engine]} needs {needed} GPUs, one for each of its ranks, and has {has}: it never starts"
        )
        help_ = f"request {resource}: {needed}, or lower the sizes of tensor, pipeline and data parallelism"
        where = pods.where(f"containers[{server.index}].resources.limits.{resource}")
        yield Finding("gpus-below-parallelism", "error", of, where, message, help=help_)


def _goes_on_elsewhere(pods: Pods, server: OtherServer) -> bool:
    """Whether ranks may be in other pods: one of several nodes, a group of pods, or started by mpirun."""
    words = (*server.container.command, *server.container.args)
    launched = any(name in word for word in words for name in ("mpirun", "srun", "llmapi-launch", "ray start"))
    return launched or pods.object.kind in _GROUPS or any(_given(server, flag) for flag in _NODES)


def _given(server: OtherServer, flag: str) -> bool:
    return any(word.text.partition("=")[0].replace("_", "-") == flag for word in server.words)
