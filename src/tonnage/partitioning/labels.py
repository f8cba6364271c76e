"""What a node offers and how it is labelled: resources of the device plugin, labels of GPU feature discovery.

A prediction from the cards, their MIG layouts, the MIG strategy and the sharing configuration. Source:
NVIDIA/k8s-device-plugin v0.20.0 internal/rm/device_map.go, internal/lm, docs/gpu-feature-discovery. What depends on
the machine (its name, the time, the NVLink fabric) is not predicted; what the tables do not have is listed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tonnage.errors import InputError
from tonnage.facts import cuda, gpus, mig, mig_devices
from tonnage.facts.cuda import CudaGpu
from tonnage.facts.labels import GPU, MIG_PRODUCT, NVIDIA
from tonnage.facts.mig import MigProfile
from tonnage.partitioning import mps
from tonnage.partitioning.device_plugin import Sharing

STRATEGIES = ("none", "single", "mixed")
_MOST_CHARACTERS = 63
"""Of a label's value (Kubernetes documentation, Labels and Selectors): Node Feature Discovery drops a longer one."""
_DROPPED = re.compile(r"[^A-Za-z0-9\-_. ]")


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One GPU of a node. ``profiles``: its MIG instances; None: MIG is off, empty: on, and nothing made.

    What a driver says of the card itself comes before the tables: ``product``, ``memory_mib``, ``arch`` (compute
    capability), ``mig`` (whether it has MIG) and ``known`` (its profiles by name). Then ``gpu`` may be empty, for a
    model that no table has."""

    gpu: str
    profiles: tuple[str, ...] | None = None
    product: str = ""
    memory_mib: int | None = None
    arch: tuple[int, int] | None = None
    mig: bool | None = None
    known: Mapping[str, MigProfile] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """By which cards of one kind are told."""
        return self.gpu or self.product

    @property
    def facts(self) -> CudaGpu | None:
        """What the tables say of its CUDA; None for a model of a driver that no table has."""
        return cuda.gpu(self.gpu) if self.gpu else cuda.gpu_of_product(sanitised(self.product))

    @property
    def made_by(self) -> str:
        """Its product as part of a label."""
        return sanitised(self.product or gpus.get(self.gpu).product)

    def profile(self, name: str) -> MigProfile:
        """One of its profiles. Raises InputError for one that neither the card nor the table has."""
        return self.known[name] if name in self.known else mig.get(self.gpu, name)


@dataclass(slots=True)
class LabelledNode:
    """``resources``: what the node offers, by name. ``labels``: by key. ``unknown``: labels that it has with a value
    that the tables do not have. ``problems``: why something is not offered; ``notes``: good to know."""

    resources: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, resource: str, values: dict[str, object]) -> None:
        """Labels of a resource; None: not known. A later value replaces an earlier one."""
        for suffix, value in values.items():
            key = f"{resource}.{suffix}"
            self.labels.pop(key, None)
            if key in self.unknown:
                self.unknown.remove(key)
            if value is None:
                self.unknown.append(key)
            else:
                self.labels[key] = str(value)


def predict(
    cards: Sequence[NodeGpu],
    strategy: str = "none",
    sharing: Sharing | None = None,
    driver: str = "",
    runs: tuple[int, ...] | None = None,
) -> LabelledNode:
    """The node with these cards. ``driver``: as in 580.105.08, for the labels of versions; empty: left out. ``runs``:
    the CUDA version that it supports, where the driver says so itself.

    Raises InputError for an unknown GPU, profile or strategy, and for MPS where MIG is on or the strategy is mixed,
    which the device plugin refuses."""
    sharing = sharing or Sharing()
    if strategy not in STRATEGIES:
        raise InputError.at(f"unknown MIG strategy {strategy!r}", hint=f"expected {', '.join(STRATEGIES)}")
    cards = [replace(card, gpu=gpus.get(card.gpu).name) if card.gpu else card for card in cards]
    _refuse_mps(cards, strategy, sharing)
    node = LabelledNode()
    if not cards:
        return node
    why = invalid(cards) if strategy == "single" else ""
    if why:
        node.problems.append(f"strategy single: {why}; the device plugin offers nothing")
    else:
        _offer(node, cards, strategy, sharing)
    _versions(node, driver, runs)
    _label_cards(node, cards, sharing)
    _label_instances(node, cards, strategy, sharing, why)
    for key, value in node.labels.items():
        if len(value) > _MOST_CHARACTERS:
            node.notes.append(f"no label {key}: {value} is longer than {_MOST_CHARACTERS} characters")
    node.labels = {key: value for key, value in sorted(node.labels.items()) if len(value) <= _MOST_CHARACTERS}
    node.unknown.sort()
    return node


def _refuse_mps(cards: Sequence[NodeGpu], strategy: str, sharing: Sharing) -> None:
    if sharing.strategy != "mps":
        return
    if any(card.profiles is not None for card in cards):
        raise InputError.at("MPS on a node with MIG", field="sharing.mps", hint="use timeSlicing, or switch MIG off")
    if strategy == "mixed":
        raise InputError.at("MPS with MIG strategy mixed", field="sharing.mps", hint="use strategy none or single")


def invalid(cards: Sequence[NodeGpu]) -> str:
    """Why the strategy ``single`` does not hold; empty where it does, and where no card has MIG on."""
    layouts = [card.profiles for card in cards]
    if all(profiles is None for profiles in layouts):
        return ""
    if () in layouts:
        return "a GPU has MIG on and no instance"
    if None in layouts:
        return "MIG is on on some GPUs and off on others"
    kinds = sorted({profile for profiles in layouts for profile in profiles or ()})
    return f"instances of several profiles ({', '.join(kinds)})" if len(kinds) > 1 else ""


def _offer(node: LabelledNode, cards: Sequence[NodeGpu], strategy: str, sharing: Sharing) -> None:
    """The device plugin's resources."""
    devices: Counter[str] = Counter()
    for card in cards:
        devices.update(resources_of(card, strategy))
        if strategy != "none" and card.profiles == ():
            node.notes.append(f"a {card.model} has MIG on and no instance: it offers nothing")
    why = mps.too_many([card.gpu for card in cards if card.gpu], sharing.replicas(GPU)) if _mps(sharing) else ""
    if why:
        node.problems.append(f"{why}; the device plugin does not offer {sharing.advertised(GPU)}")
    for resource, count in sorted(devices.items()):
        if not (why and resource == GPU):
            node.resources[sharing.advertised(resource)] = count * sharing.replicas(resource)
    absent = [one.resource for one in sharing.active.resources if one.resource not in devices]
    node.notes += [f"{resource} is shared in the configuration, and the node has none" for resource in absent]
    if sharing.one_each and sharing.strategy != "none":
        node.notes.append("a container that asks for more than one replica is refused (UnexpectedAdmissionError)")
    if _mps(sharing):
        for gpu in dict.fromkeys(card.gpu for card in cards if card.gpu):
            replicas, most = sharing.replicas(GPU), mps.most_clients(gpu)
            if 2 <= replicas <= most:
                each = mps.limits(gpu, replicas)
                share = f"{each.percent} % of the threads and {each.memory_mib:,} MiB of memory"
                node.notes.append(f"MPS: each of {replicas} clients of a {gpu} has {share}")
    cut = sum(card.profiles is not None for card in cards)
    if strategy == "none" and cut:
        node.notes.append(f"strategy none: {cut} GPUs with MIG on are offered as whole GPUs")


def _mps(sharing: Sharing) -> bool:
    return sharing.strategy == "mps"


def resources_of(card: NodeGpu, strategy: str) -> list[str]:
    """The resource that a card is offered as, or that each of its MIG instances is, in their order."""
    if card.profiles is None or strategy == "none":
        return [GPU]
    return [GPU if strategy == "single" else card.profile(name).resource for name in card.profiles]


def driver_labels(driver: str) -> dict[str, str]:
    """Labels of a driver and of the CUDA version that it reports. Raises InputError for what is not a version."""
    node = LabelledNode()
    _versions(node, driver, None)
    return node.labels


def _versions(node: LabelledNode, driver: str, runs: tuple[int, ...] | None) -> None:
    if not driver:
        return
    numbers = cuda.parse_version(driver, "--driver", "580.105.08")
    parts = [*driver.strip().split("."), "", ""][:3]
    names = ("major", "minor", "revision")
    driver_labels: dict[str, object] = dict(zip(names, parts, strict=True))
    node.put(f"{NVIDIA}cuda.driver-version", driver_labels | {"full": driver.strip()})
    node.put(f"{NVIDIA}cuda.driver", dict(zip(("major", "minor", "rev"), parts, strict=True)))
    runs = runs or cuda.driver_cuda(numbers)
    major, minor = (None, None) if runs is None else (runs[0], runs[1])
    full = None if runs is None else cuda.cuda_text(runs)
    node.put(f"{NVIDIA}cuda.runtime-version", {"major": major, "minor": minor, "full": full})
    node.put(f"{NVIDIA}cuda.runtime", {"major": major, "minor": minor})


def _label_cards(node: LabelledNode, cards: Sequence[NodeGpu], sharing: Sharing) -> None:
    """Labels of whole GPUs, and of the node. Where models differ, GPU feature discovery takes one of them by chance."""
    counts = Counter(card.model for card in cards)
    first = {card.model: card for card in reversed(cards)}
    if len(counts) > 1:
        models = ", ".join(sorted(counts))
        node.notes.append(f"several GPU models ({models}): labels are those of one of them, which one can change")
    whole = {card.model for card in cards if card.profiles is None}
    for model in sorted(counts, key=lambda name: (name in whole, name)):
        _label_model(node, first[model], counts[model], sharing if model in whole else None)
    facts = [card.facts for card in first.values()]
    able = [_capable(card) for card in first.values()]
    capable = True if any(able) else None if None in able else False
    node.put(f"{NVIDIA}mig", {"capable": None if capable is None else str(capable).lower()})
    node.put(f"{NVIDIA}mps", {"capable": str(sharing.strategy == "mps").lower()})
    data_center = all(one is not None and one.forward_compat for one in facts)
    node.put(GPU, {"mode": "compute" if data_center else None})


def _capable(card: NodeGpu) -> bool | None:
    """Whether a card has MIG; None: not known."""
    facts = card.facts
    return card.mig if card.mig is not None else None if facts is None else facts.mig


def _label_model(node: LabelledNode, card: NodeGpu, count: int, sharing: Sharing | None) -> None:
    """``sharing``: None where all GPUs of the model have MIG on: then they have no replicas."""
    facts = card.facts
    arch = card.arch or (None if facts is None else facts.arch)
    kind = None if arch is None else cuda.architectures().get(arch)
    node.put(GPU, _base((card.made_by,), count, GPU, sharing))
    node.put(
        GPU,
        {
            "memory": memory_mib(card),
            "family": "undefined" if kind is None else kind.family,
            "compute.major": None if arch is None else arch[0],
            "compute.minor": None if arch is None else arch[1],
        },
    )


def memory_mib(card: NodeGpu) -> int:
    """MiB as the label of a card says them."""
    if card.memory_mib is not None:
        return card.memory_mib
    return mig_devices.label_memory().get(card.gpu, gpus.get(card.gpu).memory_mib)


def _base(parts: Sequence[str], count: int, resource: str, sharing: Sharing | None) -> dict[str, object]:
    """Product, count, replicas and how it is shared. A shared product says so unless its resource has another name."""
    replicas = 0 if sharing is None else sharing.replicas(resource)
    shared = sharing is not None and replicas > 1
    mark = ("SHARED",) if sharing is not None and shared and not sharing.active.rename_by_default else ()
    return {
        "product": "-".join((*map(sanitised, parts), *mark)),
        "count": count,
        "replicas": replicas,
        "sharing-strategy": sharing.strategy if sharing is not None and shared else "none",
    }


def sanitised(text: str) -> str:
    """A name as part of a label's value: blanks are dashes, what a label cannot hold is dropped."""
    return "-".join(_DROPPED.sub("", text).split())


def _label_instances(
    node: LabelledNode, cards: Sequence[NodeGpu], strategy: str, sharing: Sharing, invalid: str
) -> None:
    """Labels of MIG instances: in place of the GPU's with ``single``, beside them with ``mixed``."""
    if strategy == "none":
        return
    node.put(f"{NVIDIA}mig", {"strategy": strategy})
    cut = [card for card in cards if card.profiles is not None]
    if invalid:
        product = f"{cut[0].made_by}{MIG_PRODUCT}INVALID"
        node.put(GPU, {"product": product, "count": 0, "replicas": 0, "memory": 0})
        return
    counts: Counter[str] = Counter()
    first: dict[str, NodeGpu] = {}
    for card in cut:
        for name in card.profiles or ():
            counts[name] += 1
            first.setdefault(name, card)
    for name, count in counts.items():
        card = first[name]
        profile = card.profile(name)
        resource = GPU if strategy == "single" else profile.resource
        node.put(resource, _base((card.made_by, "MIG", name.replace("+", ".")), count, resource, sharing))
        node.put(resource, _attributes(profile, card.facts))


def _attributes(profile: MigProfile, facts: CudaGpu | None) -> dict[str, object]:
    """What an instance has. Data center GPUs with MIG have no encoder."""
    encoders = 0 if facts is not None and facts.forward_compat else None
    return {
        "memory": profile.memory_mib,
        "multiprocessors": profile.sms,
        "slices.gi": mig.get(profile.gpu, profile.parent).compute_slices if profile.parent else profile.compute_slices,
        "slices.ci": profile.compute_slices,
        "engines.copy": profile.copy_engines,
        "engines.decoder": profile.decoders,
        "engines.encoder": encoders,
        "engines.jpeg": profile.jpegs,
        "engines.ofa": profile.ofas,
    }
