"""Which devices a node has: how each is cut, how much memory it has, and what of its allocatable they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from tonnage.facts import gpus, instances, mig
from tonnage.facts.labels import (
    GPU,
    GPU_COUNT,
    GPU_MEMORY,
    GPU_PRODUCT,
    INSTANCE_TYPE,
    MIG_PREFIX,
    SHARED_PRODUCT,
    product_of,
)
from tonnage.fleet.asks import SHARED_GPU, VIRTUAL
from tonnage.fleet.cards import Cards
from tonnage.fleet.compute import divided
from tonnage.fleet.devices import OPEN, Cut, How, size
from tonnage.fleet.geometry import Geometry, geometry
from tonnage.fleet.rows import NodeRow

REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
SPLITS_LABEL, SPLITS = "gpu", "on"
"""The label by which HAMi's device plugin selects its nodes. Source: Project-HAMi/HAMi charts/hami/values.yaml
(devicePlugin.nvidianodeSelector)."""
SPLITS_ANNOTATIONS = "hami.io/node-nvidia-register", "4pd.io/node-nvidia-register"
"""Where that plugin says which GPUs it gives out in parts; the second is of releases before 2.3. Source:
Project-HAMi/HAMi docs/develop/protocol.md."""
LABELS = (REPLICAS_LABEL, STRATEGY_LABEL, GPU_PRODUCT, GPU_MEMORY, SPLITS_LABEL)
"""All labels that :func:`outfit` looks at."""
MPS = "mps"
_INSTANCES = 7
"""The most on a card."""
MOST_DEVICES = 256
"""Of a node that says that it has more, nobody keeps a row for each: they are a number, as other resources are."""


class Outfit(Struct, frozen=True):
    """``count`` devices, cut as ``cuts`` says (empty: all open), each of ``memory`` MiB (0: not known). ``unit`` is the
    resource that counts whole ones or replicas, ``allocatable`` what the node can hold: of what devices give, no more
    than the devices that are there. ``numbers``: memory and cores of GPUs are numbers in it."""

    cuts: tuple[Cut, ...]
    count: int
    memory: int
    unit: str
    allocatable: Mapping[str, int]
    numbers: bool = False

    def same(self, cards: Cards, row: int, device: int) -> bool:
        """Whether the device in these columns is as it is said to be here."""
        cut = self.cuts[device] if device < len(self.cuts) else OPEN
        as_was = self.memory == cards.memory[row] and self.numbers == cards.numbers[row]
        return device < self.count and cut == cards.cut_of(row, device) and bool(as_was)

    def all_same(self, cards: Cards, row: int) -> bool:
        """Whether all of the devices in these columns are as they are said to be here."""
        cuts = [cards.cuts.rows[number] for number in cards.cut[row, : self.count].tolist()]
        said = [*self.cuts[: self.count], *(OPEN,) * (self.count - len(self.cuts))]
        return cuts == said and bool(self.memory == cards.memory[row] and self.numbers == cards.numbers[row])


def outfit(node: NodeRow, allocatable: Mapping[str, int]) -> Outfit:
    """The devices of the node when it can hold so much. A device is there when what it offers is allocatable."""
    spec, labels = node.spec, node.labels
    gpu = node_gpu(labels, spec.gpu)
    cuts = spec.cuts or derived(labels, allocatable, spec.device_resource, gpu)
    memory, unit = memory_of(labels, cuts, gpu), spec.device_resource
    splits = spec.splits or any(cut.how is How.SPLIT for cut in cuts)
    numbers = counts_parts(labels, allocatable, splits=splits)
    if not cuts:
        count = allocatable.get(unit, 0) if unit else 0
        if count > MOST_DEVICES:  # a mere number: where each of them is, nobody can say
            count, unit = 0, ""
        return Outfit((), count, memory, unit, allocatable, numbers)
    count = 0
    there: dict[str, int] = dict.fromkeys(offered(cuts, unit), 0)
    for cut in cuts:
        offers = cut.offers(unit)
        if any(there[name] + n > allocatable.get(name, 0) for name, n in offers.items()):
            break
        for name, n in offers.items():
            there[name] += n
        count += 1
    counted = next((cut.resource for cut in cuts if cut.resource), unit)
    return Outfit(cuts, count, memory, counted, {**allocatable, **there}, numbers)


def splits_gpus(annotations: Mapping[str, str]) -> bool:
    """Whether a device plugin that gives out memory and cores of GPUs says so in a node's annotations."""
    return any(name in annotations for name in SPLITS_ANNOTATIONS)


def counts_parts(labels: Mapping[str, str], allocatable: Mapping[str, int], *, splits: bool = False) -> bool:
    """Whether memory and cores of GPUs are mere numbers of a node, as they are for kube-scheduler: it lists some of
    them, and no device plugin that gives out parts of GPUs is there (``splits``: its annotations say that one is)."""
    return not splits and labels.get(SPLITS_LABEL) != SPLITS and any(allocatable.get(name) for name in VIRTUAL)


def cards_of(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> int:
    """How many cards a node has by its instance type, else by the labels of GPU feature discovery, else by what it can
    hold: replicas and MIG instances are not cards."""
    kind = labels.get(INSTANCE_TYPE, "")
    if instances.known(kind) and (count := instances.get(kind).gpu_count):
        return count
    product, single = product_of(labels.get(GPU_PRODUCT, ""))
    counted, gpu = _whole(labels.get(GPU_COUNT, "")), _by_product().get(product, "")
    if single:
        profile = next((one for one in mig.profiles(gpu, plain=False) if one.name == single), None)
        made = counted or allocatable.get(GPU, 0) // max(_whole(labels.get(REPLICAS_LABEL, "")), 1)
        return -(-made // (profile.max_instances if profile is not None else 1))
    if counted:
        return counted
    unit = SHARED_GPU if allocatable.get(SHARED_GPU) else GPU
    cut = derived(labels, allocatable, unit, gpu)
    return len(cut) or sum(n for name, n in allocatable.items() if name == unit or name.startswith(MIG_PREFIX))


def offered(cuts: Sequence[Cut], resource: str) -> dict[str, int]:
    """What devices cut like this give a node's allocatable; ``resource`` counts whole ones."""
    found: dict[str, int] = {}
    for cut in cuts:
        for name, n in cut.offers(resource).items():
            found[name] = found.get(name, 0) + n
    return found


def memory_of(labels: Mapping[str, str], cuts: tuple[Cut, ...], gpu: str) -> int:
    """MiB of one of a node's devices: a MIG card's is in the facts (labels then are of an instance), and stays so while
    all are whole for a time; else the label nvidia.com/gpu.memory, else that of the GPU called ``gpu``; 0 where not
    known."""
    whole = bool(cuts) and all(cut == OPEN for cut in cuts)
    how = geometry(gpu if whole else next((cut.gpu for cut in cuts if cut.gpu), ""))
    if how is not None:
        return how.memory_mib
    return _whole(labels.get(GPU_MEMORY, "")) or _memories().get(gpu, 0)


@lru_cache(maxsize=1)
def _memories() -> dict[str, int]:
    return {gpu.name: gpu.memory_mib for gpu in gpus.all()}


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def derived(labels: Mapping[str, str], allocatable: Mapping[str, int], resource: str, gpu: str) -> tuple[Cut, ...]:
    """How the devices of a node are partitioned, as far as its labels and resources say; empty: all are open.

    Sources: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery, internal/resource. Replicas: every device has as many
    as the label says. MIG instances of strategy ``mixed``: spread evenly over the fewest cards that hold them."""
    replicas = _whole(labels.get(REPLICAS_LABEL, ""))
    shared = SHARED_GPU if allocatable.get(SHARED_GPU) else resource
    devices = allocatable.get(shared, 0) // replicas if replicas > 1 and shared in (GPU, SHARED_GPU) else 0
    if 0 < devices <= MOST_DEVICES:
        mps = labels.get(STRATEGY_LABEL) == MPS
        cut = Cut(How.REPLICAS, shared, replicas, isolated=mps, one_each=mps)
        return (cut,) * devices
    counts = {name: n for name, n in allocatable.items() if name.startswith(MIG_PREFIX) and n}
    if not counts or geometry(gpu) is None or sum(counts.values()) > MOST_DEVICES:
        return ()
    cards = laid_out(gpu, tuple(sorted(counts.items())))
    made = [Cut(How.MIG, isolated=True, gpu=gpu, instances=card) for card in cards]
    whole = min(allocatable.get(resource, 0), MOST_DEVICES)
    return (*(OPEN,) * whole, *made) if made else ()


@lru_cache
def laid_out(gpu: str, counts: tuple[tuple[str, int], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Instances (resource, start) on cards, for this many of each resource: the fewest cards that hold equal parts of
    them, else the first card that has room, large instances first. Empty where the GPU has no such profile."""
    how = geometry(gpu)
    if how is None or any(how.slot(name) is None for name, _ in counts):
        return ()
    if any(name in how.parts for name, _ in counts):
        return _divided(how, counts)
    most = min(n for _, n in counts)
    for cards in range(1, most + 1):
        if all(n % cards == 0 for _, n in counts) and sum(n for _, n in counts) <= _INSTANCES * cards:
            card = _one_card(how, 0, [name for name, n in counts for _ in range(n // cards)])
            if card is not None:
                return (tuple(sorted(card)),) * cards
    made: list[list[tuple[str, int]]] = []
    masks: list[int] = []
    for name in (name for name, n in sorted(counts, key=size, reverse=True) for _ in range(n)):
        number = next((i for i, mask in enumerate(masks) if how.best_start(mask, name) is not None), len(masks))
        if number == len(masks):
            made.append([])
            masks.append(0)
        start = how.best_start(masks[number], name)
        if start is None:
            return ()
        masks[number] |= how.span(name, start)
        made[number].append((name, start))
    return tuple(tuple(sorted(card)) for card in made)


def _divided(how: Geometry, counts: tuple[tuple[str, int], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The same where GPU instances are divided into compute instances: these stand in their place."""
    whole, shared = divided(how, (name for name, n in counts for _ in range(n)))
    made = Counter([*whole, *(one.resource for one in shared)])
    left = list(shared)
    cards = []
    for card in laid_out(how.gpu, tuple(sorted(made.items()))):
        found: list[tuple[str, int]] = []
        for name, start in card:
            one = next((each for each in left if each.resource == name), None)
            if one is None:
                found.append((name, start))
            else:
                left.remove(one)
                found += [(part, start + at) for part, at in one.parts]
        cards.append(tuple(sorted(found)))
    return tuple(cards)


def _one_card(how: Geometry, mask: int, names: list[str]) -> list[tuple[str, int]] | None:
    """Placements of all these instances on one card, found by trying; None: there are none."""
    if not names:
        return []
    first = max(names, key=lambda name: size((name, 1)))
    rest = list(names)
    rest.remove(first)
    for start in how.starts(mask, first):
        found = _one_card(how, mask | how.span(first, start), rest)
        if found is not None:
            return [(first, start), *found]
    return None


def node_gpu(labels: Mapping[str, str], gpu: str) -> str:
    """The GPU of a node by its name in the facts: as its spec says, else by its product label; empty: not known."""
    return gpu or _by_product().get(labels.get(GPU_PRODUCT, "").removesuffix(SHARED_PRODUCT), "")


@lru_cache(maxsize=1)
def _by_product() -> dict[str, str]:
    return {gpu.product: gpu.name for gpu in gpus.all()}
