"""Services behind which nobody answers.

Source: kubernetes/kubernetes pkg/controller/endpointslice and staging/src/k8s.io/endpointslice (FindPort).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.health import labels
from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.inventory import DEFAULT
from tonnage.health.listening import may_listen, where_else
from tonnage.health.setting import Pods, Setting
from tonnage.objects.base import where
from tonnage.objects.core import LabelSelector, Service, ServicePort

_NO_ENDPOINTS = "the Service has no endpoints"


def services(setting: Setting) -> Iterator[Blocker]:
    """Services that select no pods, or whose ports lead to none of the containers."""
    for service in setting.objects:
        if not isinstance(service, Service) or not service.spec.selector or service.spec.type == "ExternalName":
            continue
        namespace = service.namespace or DEFAULT
        chosen = labels.selected(setting, LabelSelector(match_labels=service.spec.selector), namespace)
        if not chosen:
            yield _selects_nothing(setting, service, namespace)
        elif service.spec.cluster_ip != "None":
            for index, port in enumerate(service.spec.ports):
                yield from _port(service, namespace, index, port, chosen)


def _selects_nothing(setting: Setting, service: Service, namespace: str) -> Blocker:
    near = labels.nearest(setting, service.spec.selector, namespace)
    shown = in_words(service.spec.selector)
    field, unseen = "spec.selector", labels.others_may_make(setting, namespace)
    why, help_ = f"no pod in namespace {namespace} has the labels {shown}", f"add a workload with the labels {shown}"
    if near is not None and not near.key:
        field, unseen = "metadata.namespace", False
        why = f"the pods with the labels {shown} are in namespace {near.pods.namespace}, those of {near.pods.ref}"
        help_ = f"put the Service into namespace {near.pods.namespace}: it selects pods of its own namespace"
    elif near is not None:
        field = f"spec.selector.{near.key}"
        own = near.pods.template.metadata.labels
        why += f"; those of {near.pods.ref} have {in_words(own)}"
        help_ = f"set selector {near.key}: {near.value}" if near.value else f"remove {near.key} from the selector"
    return Blocker(
        "service-selects-nothing",
        NO_EFFECT,
        Ref("Service", service.name, namespace),
        where(service, field),
        f"{_NO_ENDPOINTS}: {why}",
        help_,
        some=unseen,
    )


def _port(
    service: Service, namespace: str, index: int, port: ServicePort, chosen: tuple[Pods, ...]
) -> Iterator[Blocker]:
    """A port of the Service that no container of the pods has, or on which none of them listens."""
    target = port.port if port.target_port in (None, "", 0) else port.target_port
    field = f"spec.ports[{index}].{'port' if port.target_port is None else 'targetPort'}"
    at, ref = where(service, field), Ref("Service", service.name, namespace)
    if isinstance(target, str):
        numbers = [(pods, container_port(pods, target, port.protocol)) for pods in chosen]
        if not any(number for _, number in numbers):
            yield _not_found(ref, at, port, target, chosen)
            return
    else:
        numbers = [(pods, target) for pods in chosen]
    if any(number and may_listen(pods, number) for pods, number in numbers):
        return
    pods, number = next(one for one in numbers if one[1])
    yield Blocker(
        "service-port-not-served",
        NO_EFFECT,
        ref,
        at,
        f"nothing in the pods of {pods.ref} listens on port {number}, vLLM listens on {where_else(pods)}: connections "
        f"to port {port.port} of the Service are refused",
        f"set targetPort: {where_else(pods)}, or --port={number} for vLLM",
    )


def _not_found(ref: Ref, at: Where, port: ServicePort, target: str, chosen: tuple[Pods, ...]) -> Blocker:
    names = sorted({one.name for pods in chosen for c in pods.spec.containers for one in c.ports if one.name})
    return Blocker(
        "service-port-not-found",
        NO_EFFECT,
        ref,
        at,
        f"no container of {chosen[0].ref} has a port named {target}: {_NO_ENDPOINTS} on port {port.port}",
        f"set targetPort: {' or '.join(names)}" if names else f"name the container's port {target}, or give its number",
    )


def container_port(pods: Pods, name: str, protocol: str) -> int:
    """The number of a port that a container of the pod, or a sidecar, names; 0 where none does."""
    running = (*pods.spec.containers, *(one for one in pods.spec.init_containers if one.restart_policy == "Always"))
    ports = (one for container in running for one in container.ports)
    return next((one.container_port for one in ports if (one.name, one.protocol) == (name, protocol)), 0)


def in_words(labels_: Mapping[str, str]) -> str:
    """Labels as a selector on a command line has them."""
    return ",".join(f"{key}={value}" for key, value in labels_.items()) or "none"
