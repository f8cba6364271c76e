"""vLLM servers that never start, whatever GPU they get: by their command line, their model and how many GPUs they have.

Texts and rules: vllm-project/vllm vllm/config (model.py, parallel.py, device.py), vllm/envs.py and the parser of the
server's flags (:mod:`tonnage.inference.vllm_flags`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tonnage.errors import InputError
from tonnage.facts import model_names
from tonnage.facts.labels import GPU, MIG_PREFIX
from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.inventory import content
from tonnage.health.rules import arguments
from tonnage.health.rules.arguments import PARALLEL, crash_blocker
from tonnage.health.setting import Pods, Setting
from tonnage.inference import servers, vllm_flags
from tonnage.inference.config import beyond_context
from tonnage.inference.servers import MODEL, PARTITION, EngineServer, UnknownModel
from tonnage.inference.servers.command_lines import environment
from tonnage.inference.timing import check_tensor_parallel
from tonnage.objects import core

_SPREAD = ("--nnodes", "--headless", "--data-parallel-address", "--data-parallel-start-rank", "--node-rank")
_FURTHER_RANKS = ("--prefill-context-parallel-size", "--data-parallel-size-local")
_RAY_KINDS = ("RayCluster", "RayService", "RayJob")
HUB = "HF_ENDPOINT"
"""Names another place than Hugging Face to get models from: what that has is not known."""
WORK_DIR = "/vllm-workspace"
"""Where the server of vLLM's image runs, and names of folders begin (vllm-project/vllm docker/Dockerfile)."""
_OTHER_DEVICES = ("cpu", "tpu", "neuron", "hpu", "xpu", "openvino")

Check = Callable[[Setting, Pods, EngineServer], Iterator[Blocker]]


def engines(setting: Setting) -> Iterator[Blocker]:
    """Of each server the first cause: what its parser refuses, then its model, then its GPUs."""
    for pods in setting.pods:
        if pods.engine is not None:
            yield from causes(setting, pods, pods.engine)


def causes(setting: Setting, pods: Pods, server: EngineServer) -> list[Blocker]:
    """What is known against one server whatever GPU it gets, up to the first that keeps it from starting."""
    checks: tuple[Check, ...] = (
        arguments.doubled,
        arguments.flags,
        arguments.values,
        _port,
        _without_gpu,
        _model,
        arguments.checkpoint_format,
        _gpus,
        _heads,
        _stages,
        _context,
    )
    found: list[Blocker] = []
    for check in checks:
        found += check(setting, pods, server)
        if starts_not(found):
            break
    return found


def starts_not(found: Iterable[Blocker]) -> bool:
    """Whether one of these keeps all pods from starting."""
    return any(not one.some and one.stage != NO_EFFECT for one in found)


def _port(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """A Service called ``vllm``: the kubelet sets VLLM_PORT to its address, which vLLM reads as a number.

    Source: vllm/envs.py, get_vllm_port; Kubernetes documentation, "Service: environment variables"."""
    if pods.template.needs.enable_service_links is False or "VLLM_PORT" in {v.name for v in server.container.env}:
        return
    service = setting.inventory.find("Service", "vllm", pods.namespace)
    if not isinstance(service, core.Service) or service.spec.cluster_ip == "None" or not service.spec.ports:
        return
    if service.spec.type == "ExternalName":
        return
    address = f"tcp://10.96.0.1:{service.spec.ports[0].port}"
    yield crash_blocker(
        pods,
        "service-link-vllm-port",
        f"containers[{server.index}].name",
        "the Service vllm in the same namespace sets VLLM_PORT to its address in each container, and vLLM reads that "
        "as its own port",
        "set enableServiceLinks: false in the pod's spec, or give the Service another name",
        f"ValueError: VLLM_PORT '{address}' appears to be a URI. This may be caused by a Kubernetes service discovery "
        "issue,check the warning in: https://docs.vllm.ai/en/stable/serving/env_vars.html",
    )


def _without_gpu(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """A server that asks for no accelerator of any kind."""
    if accelerators(pods, server) or not wants_gpu(pods, server):
        return
    yield crash_blocker(
        pods,
        "engine-without-gpu",
        f"containers[{server.index}].resources",
        "the engine requests no GPU: its pod lands on any node and finds no device there",
        f"add limits: {{nvidia.com/gpu: {server.args.gpus}}} to the container's resources",
        "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to "
        "turn on verbose logging to help debug the issue.",
    )


def wants_gpu(pods: Pods, server: EngineServer) -> bool:
    """Whether the server runs on GPUs, and gets them as a resource: not by a claim, nor all those of its node."""
    if server.value("--device") in _OTHER_DEVICES or environment(server.container).get("NVIDIA_VISIBLE_DEVICES"):
        return False
    image = server.container.image.lower()
    marks = ("cpu", "tpu", "neuron", "hpu", "gaudi", "xpu", "-sim")
    return not (pods.spec.resource_claims or any(mark in image for mark in marks))


def accelerators(pods: Pods, server: EngineServer) -> dict[str, int]:
    """What the server's container asks for of devices, by resource; a fraction of a GPU counts as one."""
    found = {}
    for name, amount in core.container_requests(server.container).items():
        if "/" in name and amount and not name.startswith("vpc.amazonaws.com/") and "rdma" not in name:
            found[name] = amount
    annotations = pods.template.metadata.annotations
    if not found and ("gpu-fraction" in annotations or "gpu-memory" in annotations):
        found[GPU] = int(annotations.get("gpu-fraction-num-devices", "1") or 1)
    return found


def held(pods: Pods, server: EngineServer) -> tuple[str, int]:
    """(resource, how many) of the GPUs or MIG instances that the server has; empty where it has none that is known."""
    for name, amount in accelerators(pods, server).items():
        if name.startswith(MIG_PREFIX) or name.endswith(("/gpu", "/gpu.shared")):
            return name, amount
    return "", 0


def _model(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    found, name, field = server.known, server.args.model or "", server.field(MODEL)
    if found is None:
        return
    unknown = isinstance(found, UnknownModel)
    local = isinstance(found, UnknownModel) and found.local
    redirected = HUB in {variable.name for variable in server.container.env}
    why, meant = ("", "")
    if isinstance(found, UnknownModel) and found.never:
        why, help_ = found.message, found.hint
    elif name.startswith("/") and not _mounted(pods, server, name):
        why = f"no volume is mounted at {name}, and the image of vLLM has no models"
        help_ = "mount a volume with the model there, or give the name that it has at Hugging Face"
    elif not local and not name.startswith("/") and not _mounted(pods, server, f"{WORK_DIR}/{name}"):
        why, meant = model_names.no_organisation(name)
        help_ = f"did you mean {meant}?" if meant else "names are those of Hugging Face, like Qwen/Qwen3-8B"
        why = why and f"unknown model {name!r}: {why}"
    if why:
        listed = "is not a valid model identifier listed on 'https://huggingface.co/models'"
        said = f"OSError: {name} is not a local folder and {listed}"
        some = not server.certain or redirected
        yield crash_blocker(pods, "model-unknown", field, why, help_, said, some=some)
    elif unknown:
        assert isinstance(found, UnknownModel)
        message = f"{found.message}: whether it fits and how fast it is cannot be said"
        yield crash_blocker(pods, "model-not-simulated", field, message, found.hint, "", some=True)


def _mounted(pods: Pods, server: EngineServer, path: str) -> bool:
    """Whether the folder may be there: a volume is mounted at it or above, or the image may have it."""
    mounts = pods.template.needs.containers[server.index].volume_mounts
    below = any((path + "/").startswith(mount.mount_path.rstrip("/") + "/") for mount in mounts)
    words = (*server.container.command, *server.container.args)
    made = sum(word.count(path) for word in words) > 1  # a script may fetch it before the server starts
    return below or made or not vllm_flags.is_official(vllm_flags.repository(server.container.image))


def _gpus(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    resource, has = held(pods, server)
    if not has or server.open & set(PARALLEL) or any(server.value(flag) is not None for flag in _FURTHER_RANKS):
        return
    needed, instances = server.args.gpus, resource.startswith(MIG_PREFIX)
    group = _group(pods)
    if _spread(pods, server) and group <= 1 and pods.object.kind != "LeaderWorkerSet":
        return  # who knows what else is of its Ray cluster; that of a group has the group
    sizes = zip(("TP", "PP", "DP"), arguments.sizes(server), strict=True)
    product = " × ".join(f"{label} {n}" for label, n in sizes if n > 1) or "TP 1"
    limits = f"containers[{server.index}].resources.limits.{resource}"
    if instances and needed > 1:
        message = servers.too_few(server.args, has, instances=True)
        help_ = "use whole GPUs (nvidia.com/gpu), or one larger instance and --tensor-parallel-size 1"
        yield crash_blocker(
            pods, "gpus-below-parallelism", server.field(*PARALLEL), message, help_, _world(needed, has)
        )
    elif needed > has * max(1, group):
        of = f"{has * group} of its {group} pods" if group > 1 else f"{has}"
        yield crash_blocker(
            pods,
            "gpus-below-parallelism",
            server.field(*PARALLEL),
            f"the engine needs {needed} GPUs ({product}), and has {of}",
            f"request {resource}: {-(-needed // max(1, group))}, or lower the product of --tensor-parallel-size, "
            "--pipeline-parallel-size and --data-parallel-size to what it has",
            _world(needed, has),
        )
    elif needed < has and group <= 1:
        yield Blocker(
            "gpus-unused-by-engine",
            NO_EFFECT,
            pods.ref,
            pods.where(limits),
            f"the engine uses {needed} of the {has} GPUs that its pod holds ({product}): "
            "the others are paid for and idle",
            f"request {resource}: {needed}, or set --tensor-parallel-size "
            f"{has // max(1, needed // arguments.sizes(server)[0])}",
        )


def _world(needed: int, has: int) -> str:
    return f"ValueError: World size ({needed}) is larger than the number of available GPUs ({has}) in this node."


def _group(pods: Pods) -> int:
    """How many pods a group of a LeaderWorkerSet has; 1 for anything else."""
    if pods.object.kind != "LeaderWorkerSet":
        return 1
    template: Any = content(pods.object).get("spec", {}).get("leaderWorkerTemplate", {})
    size = template.get("size", 1) if isinstance(template, dict) else 1
    return size if isinstance(size, int) and size > 0 else 1


def _spread(pods: Pods, server: EngineServer) -> bool:
    """Whether the engine may use GPUs of other pods: through Ray, or as one of several nodes."""
    if pods.object.kind in _RAY_KINDS or server.value("--distributed-executor-backend") == "ray":
        return True
    if server.value("--data-parallel-backend") == "ray" or any(server.value(flag) is not None for flag in _SPREAD):
        return True
    return any("ray start" in word or "ray_" in word for word in (*server.container.command, *server.container.args))


def _heads(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    model, tp = server.shape, server.args.tensor_parallel_size
    if model is None or "--tensor-parallel-size" in server.open:
        return
    try:
        check_tensor_parallel(model, tp)
    except InputError as error:
        possible = ", ".join(str(n) for n in (1, 2, 4, 8, 16) if model.heads % n == 0)
        dealt = f"must be divisible by tensor parallel size ({tp})."
        said = f"ValueError: Total number of attention heads ({model.heads}) {dealt}"
        field = server.field("--tensor-parallel-size")
        message, help_ = error.problems[0].message, f"set --tensor-parallel-size to one of {possible}"
        yield crash_blocker(pods, "tensor-parallel-heads", field, message, help_, said)


def _stages(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """A partition into pipeline stages that is not of the model's layers.

    Source: vllm/distributed/utils.py, get_pp_indices."""
    model, given, stages = server.shape, server.args.pipeline_layers, server.args.pipeline_parallel_size
    if model is None or not given or "--pipeline-parallel-size" in server.open:
        return
    if len(given) == stages and sum(given) == model.layers:
        return
    written = ",".join(map(str, given))
    if len(given) != stages:
        said = f"ValueError: len(partitions)={len(given)} does not match pp_size={stages}."
    else:
        said = f"ValueError: sum(partitions)={sum(given)} does not match num_hidden_layers={model.layers}."
    message = f"{PARTITION} is {written}, but there are {stages} pipeline stages and {model.layers} layers"
    help_ = f"give {stages} numbers that add up to {model.layers}"
    yield crash_blocker(pods, "engine-flag-value", f"containers[{server.index}].env", message, help_, said)


def _context(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """--max-model-len beyond the model's own context, whatever the memory."""
    model, wanted = server.shape, server.args.max_model_len
    if model is None or wanted is None or not model.context_tokens or server.args.context_extended:
        return
    if wanted > model.context_tokens:
        refused = beyond_context(model, wanted)
        problem, field = refused.problems[0], server.field("--max-model-len")
        yield crash_blocker(pods, "max-model-len-above-model", field, problem.message, problem.hint, refused.said)
