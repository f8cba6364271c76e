"""What labels a GPU node gets of its own cards: those of GPU feature discovery, in its formats, and stable ones.

The rules are those of the prediction (:mod:`tonnage.partitioning.labels`), fed with what the cards say themselves.
Where a node has several models, GPU feature discovery's labels describe one of them by chance; here it is always the
same one, and each model has labels of its own besides (``tonnage.dev/gpu-h100.count``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tonnage.facts.labels import NVIDIA
from tonnage.node.devices import Devices, Fabric, Identity
from tonnage.partitioning.device_plugin import Sharing
from tonnage.partitioning.labels import LabelledNode, NodeGpu, memory_mib, predict, sanitised

_OURS = "tonnage.dev/gpu-"
_MODES = {0x0302: "compute", 0x0300: "graphics"}
_NFD = "nfd.k8s-sigs.io/v1alpha1"
_FABRIC_READY = 3
_NOT_IN_A_KEY = re.compile(r"[^a-z0-9-]+")


def seen_cards(devices: Devices) -> list[NodeGpu]:
    """The cards as the rules of resources and labels read them; without those that are off the bus."""
    found = []
    for one in devices.cards():
        state = devices.mig(one.index)
        found.append(
            NodeGpu(
                one.gpu,
                tuple(each.profile for each in state.instances) if state is not None and state.enabled else None,
                one.product,
                one.memory_mib,
                one.compute,
                state is not None,
                {each.name: each for each in devices.profiles(one.index)},
            )
        )
    return found


def node_labels(
    devices: Devices, strategy: str = "none", sharing: Sharing | None = None, *, machine: str = "", timestamp_s: int = 0
) -> LabelledNode:
    """All labels of this node, and what it offers. ``machine``: its name in DMI. ``timestamp_s``: unix time of the
    label nvidia.com/gfd.timestamp; 0: none.

    Raises InputError as :func:`tonnage.partitioning.labels.predict` does, and where the driver fails."""
    driver, cards, identities = devices.driver(), seen_cards(devices), devices.cards()
    node = predict(cards, strategy, sharing, driver.version, driver.cuda)
    if not cards:
        return node
    own: dict[str, object] = {"gpu.mode": _mode(identities), "vgpu.present": "false"}
    if machine:
        own["gpu.machine"] = "-".join(sanitised(machine).split())
    clique = _clique([devices.fabric(one.index) for one in identities])
    if clique:
        own["gpu.clique"] = clique
    if timestamp_s:
        own["gfd.timestamp"] = timestamp_s
    node.labels |= {NVIDIA + key: str(value) for key, value in own.items()}
    node.unknown = [key for key in node.unknown if key not in node.labels]
    node.labels |= _by_model(cards)
    node.labels = dict(sorted(node.labels.items()))
    return node


def _mode(cards: Sequence[Identity]) -> str:
    modes = {_MODES.get(one.pci_class or 0, "unknown") for one in cards}
    return modes.pop() if len(modes) == 1 else "unknown"


def _clique(fabrics: Sequence[Fabric | None]) -> str:
    """Cluster and clique where all cards belong to one; empty elsewhere."""
    found = {f"{one.cluster}.{one.clique}" for one in fabrics if one is not None and one.state == _FABRIC_READY}
    whole = len(found) == 1 and None not in fabrics
    clique = found.pop() if whole else ""
    return "" if clique.startswith("00000000-") else clique


def _by_model(cards: Sequence[NodeGpu]) -> dict[str, str]:
    """Labels that say what every model is and how many there are."""
    counts = Counter(card.model for card in cards)
    made: dict[str, str] = {}
    for model, card in {card.model: card for card in cards}.items():
        key = _OURS + _NOT_IN_A_KEY.sub("-", model.lower())
        made |= {
            f"{key}.count": str(counts[model]),
            f"{key}.product": card.made_by,
            f"{key}.memory": str(memory_mib(card)),
        }
    return made


def as_features(labels: Mapping[str, str]) -> str:
    """The file that Node Feature Discovery reads from its directory features.d: ``key=value`` lines."""
    return "".join(f"{key}={value}\n" for key, value in labels.items())


def as_node_feature(node: str, namespace: str, labels: Mapping[str, str]) -> dict[str, object]:
    """The NodeFeature object of a node, as GPU feature discovery names it."""
    return {
        "apiVersion": _NFD,
        "kind": "NodeFeature",
        "metadata": {
            "name": f"nvidia-features-for-{node}",
            "namespace": namespace,
            "labels": {"nfd.node.kubernetes.io/node-name": node},
        },
        "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": dict(labels)},
    }
