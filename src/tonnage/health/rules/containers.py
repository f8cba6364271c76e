"""Containers that cannot be what they are written as: their command, the user that they run as, where they write.

Sources: kubernetes/kubernetes pkg/kubelet/kuberuntime/security_context.go (verifyRunAsNonRoot),
containerd (StartError), POSIX sh -c, Python tempfile (where it looks), vllm-project/vllm docker/Dockerfile (user root).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tonnage.health.blocker import CRASHING, CREATING, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.inference import vllm_flags
from tonnage.inference.servers.command_lines import SHELLS, environment
from tonnage.objects import core
from tonnage.objects.needs import ContainerNeeds
from tonnage.workloads.volumes.weights import folder_of, mounted_at

_PROGRAM = re.compile(r"[\w./-]+")
_PROGRAMS = ("vllm", "python", "python3", "sglang", "trtllm-serve", "torchrun", "accelerate", "ray")
"""Programs that do nothing without the words after them."""
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")
_TRUE = ("1", "ON", "YES", "TRUE")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def containers(setting: Setting) -> Iterator[Blocker]:
    """Of each container the first cause."""
    for pods in setting.pods:
        typed = (*pods.spec.init_containers, *pods.spec.containers)
        for (field, needs), container in zip(pods.containers(), typed, strict=True):
            found = (
                _no_program(pods, field, container)
                or _shell_without_script(pods, field, container)
                or _as_root(pods, field, needs)
                or _read_only(pods, field, needs, container)
                or _offline(pods, field, needs, container)
            )
            if found is not None:
                yield found


def _no_program(pods: Pods, field: str, container: core.Container) -> Blocker | None:
    """A whole command line as the name of the program: nothing takes it apart."""
    first = container.command[0].strip() if container.command else ""
    if not re.search(r"\s", first) or first.startswith("/"):
        return None
    program = first.split()[0]
    said = f'exec: "{first}": executable file not found in $PATH: unknown'
    message = f"there is no program called {first!r}: a command is a list with one word an item, and no shell reads it"
    help_ = f'write command: ["{program}", …] with a word an item, or command: [sh, -c] and the line as args'
    at = pods.where(f"{field}.command[0]")
    return Blocker("command-not-a-program", CRASHING, pods.ref, at, message, help_, "StartError", said)


def _shell_without_script(pods: Pods, field: str, container: core.Container) -> Blocker | None:
    """``sh -c vllm serve``: the shell runs the word after -c, and calls itself by the name of the next."""
    words = [*container.command, *container.args]
    if len(words) < 4 or words[0].rpartition("/")[2] not in SHELLS or words[1] not in ("-c", "-ec", "-lc", "-xc"):
        return None
    program = words[2]
    if not _PROGRAM.fullmatch(program) or program.rpartition("/")[2] not in _PROGRAMS:
        return None
    index = 2 - len(container.command)
    part = f"command[{2}]" if index < 0 else f"args[{index}]"
    message = f"{words[0]} {words[1]} runs the one word {program}: those after it are not arguments of it"
    help_ = f'write the line as one item: ["{program} {words[3]} …"], or leave the shell out'
    at = pods.where(f"{field}.{part}")
    return Blocker("command-not-a-program", CRASHING, pods.ref, at, message, help_, "Error", f"usage: {program}")


def _as_root(pods: Pods, field: str, needs: ContainerNeeds) -> Blocker | None:
    """runAsNonRoot of a container whose user is root."""
    own, whole = needs.security_context or {}, pods.template.needs.security_context or {}
    user = own.get("runAsUser", whole.get("runAsUser"))
    where = f"{field}.securityContext" if "runAsNonRoot" in own else "securityContext"
    if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
        return None
    if user == 0:
        said = (
            f'Error: container\'s runAsUser breaks non-root policy (pod: "{pods.object.name}", container: {needs.name})'
        )
        message = "runAsNonRoot with runAsUser 0, which is root: the container is never created"
    elif user is None and vllm_flags.is_official(vllm_flags.repository(needs.image)):
        who = f'(pod: "{pods.object.name}", container: {needs.name})'
        said = f"Error: container has runAsNonRoot and image will run as root {who}"
        message = "runAsNonRoot, and the image of vLLM runs as root: the container is never created"
    else:
        return None
    help_ = "set runAsUser, such as 2000, with HOME and its caches in a volume; or leave runAsNonRoot out"
    at = pods.where(f"{where}.runAsNonRoot")
    return Blocker("runs-as-root", CREATING, pods.ref, at, message, help_, "CreateContainerConfigError", said)


def _read_only(pods: Pods, field: str, needs: ContainerNeeds, container: core.Container) -> Blocker | None:
    """A root filesystem that nobody can write to, for a server that writes temporary files and caches."""
    if (needs.security_context or {}).get("readOnlyRootFilesystem") is not True or not _serves(pods, container):
        return None
    values = environment(container)
    temporary = (values.get("TMPDIR", ""), *_TEMPORARY)
    if any(_mounted(needs, folder) for folder in temporary if folder):
        return None
    message = (
        "the root filesystem is read-only and no volume is mounted at /tmp: vLLM finds no place for temporary files"
    )
    said = f"FileNotFoundError: [Errno 2] No usable temporary directory found in {list(_TEMPORARY)}"
    at = pods.where(f"{field}.securityContext.readOnlyRootFilesystem")
    help_ = "mount an emptyDir at /tmp, and one at the home of its caches (/root)"
    return Blocker("read-only-root", CRASHING, pods.ref, at, message, help_, "Error", said)


def _offline(pods: Pods, field: str, needs: ContainerNeeds, container: core.Container) -> Blocker | None:
    """Nothing may be fetched, and nothing is there."""
    engine, values = pods.engine, environment(container)
    name = next((one for one in _OFFLINE if values.get(one, "").upper() in _TRUE), "")
    if not name or engine is None or not _serves(pods, container) or engine.args.model is None:
        return None
    folder = folder_of(needs)
    if engine.args.model.startswith(("/", "./", "s3://", "gs://")):
        return None
    volume = mounted_at(needs, pods.template.needs.volumes, folder)
    filled = {mount.name for one in pods.template.needs.init_containers for mount in one.volume_mounts}
    if volume is not None and (volume.empty_dir is None or volume.name in filled):
        return None
    written = [one.name for one in needs.env]
    at = pods.where(f"{field}.env[{written.index(name)}]" if name in written else f"{field}.env")
    message = f"{name} forbids to fetch the model, and {folder} has nothing: no volume with it is mounted"
    help_ = f"mount the cache at {folder}, or leave {name} out"
    said = "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder"
    return Blocker("model-offline", CRASHING, pods.ref, at, message, help_, "Error", said)


def _serves(pods: Pods, container: core.Container) -> bool:
    """Whether this is the container of vLLM's own image that serves."""
    official = vllm_flags.is_official(vllm_flags.repository(container.image))
    return pods.engine is not None and pods.engine.container.name == container.name and official


def _mounted(needs: ContainerNeeds, folder: str) -> bool:
    """Whether a volume is mounted at the folder, or above or below it."""
    path = folder.rstrip("/") + "/"
    mounts = [mount.mount_path.rstrip("/") + "/" for mount in needs.volume_mounts]
    return any(path.startswith(mount) or mount.startswith(path) for mount in mounts)
