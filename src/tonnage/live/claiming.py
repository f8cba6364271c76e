"""Claims for volumes that wait for their pod: what kube-scheduler writes before it binds the pod.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/volumebinding (BindPodVolumes).
"""

from __future__ import annotations

from tonnage.decisions import Ref
from tonnage.kube.resources import SELECTED_NODE, VOLUME_CLAIMS, VOLUMES
from tonnage.kube.verbs import Client


def take(client: Client, claim: Ref, volume: Ref | None, node: str) -> None:
    """Keep the volume for the claim; without one, have one made that the node reaches. Raises ClientError."""
    if volume is None:
        patch = {"metadata": {"uid": claim.uid, "annotations": {SELECTED_NODE: node}}}
        client.patch(VOLUME_CLAIMS, claim.name, patch, claim.namespace)
        return
    kept = {"kind": claim.kind, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid, "apiVersion": "v1"}
    client.patch(VOLUMES, volume.name, {"metadata": {"uid": volume.uid}, "spec": {"claimRef": kept}})
