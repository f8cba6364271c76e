"""From a Deployment, StatefulSet or ReplicaSet to its workload in the simulated cluster, with its LLM server."""

from __future__ import annotations

import re

import msgspec

from tonnage.errors import InputError
from tonnage.facts.models import ModelShape
from tonnage.health.setting import Setting
from tonnage.inference import servers
from tonnage.inference.config import weight_bytes
from tonnage.inference.servers import UnknownModel
from tonnage.inference.starting import is_eager
from tonnage.inference.vllm_args import VllmArgs
from tonnage.objects import apps, core
from tonnage.objects.needs import ClaimVolume, PodNeeds, Volume
from tonnage.objects.templates import templates
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.objects import Server, Workload
from tonnage.workloads import stateful
from tonnage.workloads.volumes.book import Volumes
from tonnage.workloads.volumes.weights import source

_NONE: servers.Shapes = {}
NO_PREFIX_CACHING = "--no-enable-prefix-caching"
"""vLLM keeps and shares prefixes unless told otherwise."""
SHUTDOWN = re.compile(r"--shutdown[-_]timeout[= ](\d+)")


def workload_for(owner: apps.Replicated, setting: Setting, cluster: SimulatedCluster) -> Workload:
    """The workload of an object that makes pods and has no controller of its own here."""
    namespace, pod, lets_in = owner.namespace or "default", owner.spec.template, cluster.admission
    made = next(templates(owner), None)
    needs = made.needs if made is not None else PodNeeds()
    given = setting.variables.filled(namespace, pod.spec, needs)
    admitted = msgspec.structs.replace(pod, spec=lets_in.completed(namespace, pod.spec))
    numbered = None
    if isinstance(owner, apps.StatefulSet):
        spec = msgspec.structs.replace(owner.spec, template=admitted)
        numbered = msgspec.structs.replace(owner, spec=spec)
        needs = _with_claims(owner, needs)
    return Workload(
        namespace,
        owner.name,
        admitted,
        owner.spec.replicas,
        _with_weights(server_of(given, setting.shapes), namespace, needs, cluster.volumes),
        refused=next(iter(lets_in.refusals(namespace, pod.spec)), None),
        stateful=numbered,
        kind=owner.kind,
    )


def _with_claims(owner: apps.StatefulSet, needs: PodNeeds) -> PodNeeds:
    """Of its first pod: the claims that it gets take the place of volumes that are called alike."""
    pod = stateful.pod_name(owner.name, stateful.first(owner))
    own = {name: ClaimVolume(claim_name=claim) for name, claim in stateful.claim_names(owner, pod).items()}
    made = [Volume(name=name, persistent_volume_claim=claim) for name, claim in own.items()]
    others = (volume for volume in needs.volumes if volume.name not in own)
    return msgspec.structs.replace(needs, volumes=[*made, *others])


def server_of(spec: core.PodSpec, shapes: servers.Shapes = _NONE) -> Server | None:
    """The LLM server of a pod; None where it has none, or one with a model of which nothing is known, or with weights
    in host memory: that is any container. One whose model does not exist, or whose command line cannot be read, never
    starts. ``shapes``: of models beside those in the table, by their names."""
    found = servers.find(spec, shapes)
    if found is None or not found.args.model or found.known is None:
        return None
    args, shape = found.args, found.known
    unknown = isinstance(shape, UnknownModel) and not shape.never
    if not found.problem and (unknown or any(_flag(word.text) in _NOT_SIMULATED for word in found.words)):
        return None
    timeout = SHUTDOWN.search(" ".join(word.text for word in found.words))
    return Server(
        args,
        _weights(args, shape),
        found.args.model,
        int(timeout[1]) if timeout else 0,
        prefix_caching=not any(word.replace("_", "-") == NO_PREFIX_CACHING for word in args.ignored),
        refused=found.problem.message if found.problem else shape.message if isinstance(shape, UnknownModel) else "",
        container=found.index,
        eager=is_eager(found),
        shape=found.shape,
    )


_NOT_SIMULATED = ("--cpu-offload-gb", "--cpu-offload-params")


def _flag(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _with_weights(server: Server | None, namespace: str, needs: PodNeeds, volumes: Volumes) -> Server | None:
    """The server with the claim on which its weights lie."""
    if server is not None and server.container < len(needs.containers):
        container = needs.containers[server.container]
        folder = server.model if server.model.startswith("/") else ""
        server.weights = source(volumes, namespace, container, needs.volumes, folder)
    return server


def _weights(args: VllmArgs, shape: ModelShape | UnknownModel) -> int:
    """Bytes of the weights; 0 where nothing is known of the model, or of the format."""
    if isinstance(shape, UnknownModel):
        return 0
    try:
        return shape.weight_bytes(weight_bytes(args.dtype, args.quantization, shape))
    except InputError:
        return 0
