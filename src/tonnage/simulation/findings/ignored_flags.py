"""What a vLLM server is asked for that simulated engines do not do: said where the flag stands."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Finding, Ref
from tonnage.health.setting import Setting
from tonnage.inference import servers
from tonnage.inference.servers import EngineServer
from tonnage.machines.cluster import SimulatedCluster

_RANKS = {
    "--pipeline-parallel-size": "stages of a pipeline are not simulated: the engine is one of a single stage",
    "--data-parallel-size": "data-parallel ranks are not simulated: the engine is one rank, and serves as much",
}
"""Flags whose values from 2 on count."""
_FLAGS = {
    "--decode-context-parallel-size": "context parallelism is not simulated",
    "--enable-dbo": "overlapping of two batches is not simulated",
    "--enable-expert-parallel": "expert parallelism is not simulated: weights are split as without it",
    "--enable-lora": "adapters are not simulated: they take no memory and no time",
    "--kv-offloading-size": "KV cache in host memory is simulated where the scenario's traffic has tiers",
    "--long-prefill-token-threshold": "long prompts wait like others",
    "--num-gpu-blocks-override": "the KV cache is as large as memory allows",
    "--scheduling-policy": "requests are taken in the order of their arrival",
    "--speculative-config": "speculative decoding is not simulated: a step gives one token a sequence",
}
_WITHOUT_EFFECT = (None, "0", "1", "fcfs", "false", "False")
"""Values with which these flags do what engines do without them."""


def ignored_flags(setting: Setting, cluster: SimulatedCluster) -> Iterator[Finding]:
    """A finding for each flag of a server with traffic that would change how fast it is, and does not here."""
    serving = {(one.namespace, one.kind, one.name) for one in cluster.workloads.values() if one.service is not None}
    for pods in setting.pods:
        if (pods.ref.namespace or "default", pods.ref.kind, pods.ref.name) not in serving:
            continue
        server = servers.find(pods.spec)
        for flag, why in _told(server) if server is not None else ():
            assert server is not None
            ref = Ref(pods.ref.kind, pods.ref.name, pods.ref.namespace)
            yield Finding("engine-flag-not-simulated", "warning", ref, pods.where(server.field(flag)), f"{flag}: {why}")


def _told(server: EngineServer) -> Iterator[tuple[str, str]]:
    sizes = {
        "--pipeline-parallel-size": server.args.pipeline_parallel_size,
        "--data-parallel-size": server.args.data_parallel_size,
    }
    yield from ((flag, _RANKS[flag]) for flag, size in sizes.items() if size > 1)
    yield from ((flag, why) for flag, why in _FLAGS.items() if server.value(flag) not in _WITHOUT_EFFECT)
