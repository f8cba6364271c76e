"""From a Deployment, StatefulSet or ReplicaSet to its workload in the simulated cluster, with its LLM server."""

from __future__ import annotations

import msgspec

from tonnage.health.setting import Setting
from tonnage.machines.objects import ModelServer, Workload
from tonnage.machines.serving_containers import server_of
from tonnage.machines.site import Site
from tonnage.objects import apps
from tonnage.objects.needs import ClaimVolume, PodNeeds, Volume
from tonnage.objects.templates import templates
from tonnage.workloads import stateful
from tonnage.workloads.volumes.book import Volumes
from tonnage.workloads.volumes.weights import source


def workload_for(owner: apps.Replicated, setting: Setting, cluster: Site) -> Workload:
    """The workload of an object that makes pods and has no controller of its own here."""
    namespace, pod, lets_in = owner.namespace or "default", owner.spec.template, cluster.declared.admission
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
        _with_weights(server_of(given, setting.shapes), namespace, needs, cluster.declared.volumes),
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


def _with_weights(server: ModelServer | None, namespace: str, needs: PodNeeds, volumes: Volumes) -> ModelServer | None:
    """The server with the claim on which its weights lie."""
    if server is not None and server.container < len(needs.containers):
        container = needs.containers[server.container]
        folder = server.model if server.model.startswith("/") else ""
        server.weights = source(volumes, namespace, container, needs.volumes, folder)
    return server
