"""How the GPUs of a node are cut, by its labels and the configurations of the cluster: before the node exists.

Two programs of NVIDIA's GPU operator cut the GPUs of a node as its labels say. ``nvidia.com/mig.config`` names a
configuration of mig-parted, ``nvidia.com/device-plugin.config`` one of the device plugin; both stand in ConfigMaps.
Source: NVIDIA/mig-parted deployments/container (mig-manager), NVIDIA/k8s-device-plugin cmd/config-manager,
NVIDIA/gpu-operator (``mig.strategy`` is ``single`` by default)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import mig_devices, names
from tonnage.fleet.asks import GPU
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.geometry import MIG_PREFIX, geometry
from tonnage.fleet.outfit import MPS, REPLICAS_LABEL, STRATEGY_LABEL
from tonnage.objects.core import ConfigMap
from tonnage.partitioning import device_plugin, documents, mig_parted, mps
from tonnage.partitioning.device_plugin import Config, Replicas, Replicated, Sharing
from tonnage.partitioning.labels import STRATEGIES, Card, predict
from tonnage.partitioning.layouts import Layout, card, resource
from tonnage.partitioning.mig_cards import Refused, known_configs, try_on
from tonnage.partitioning.mig_parted import Entry, Spec

MIG_CONFIG = "nvidia.com/mig.config"
MIG_STRATEGY = "nvidia.com/mig.strategy"
PLUGIN_CONFIG = device_plugin.CONFIG_LABEL
MIG_STATE = "nvidia.com/mig.config.state"
DEFAULT_STRATEGY = "single"
"""Of the GPU operator (NVIDIA/gpu-operator api/nvidia/v1, ``mig.strategy``)."""
CHOICES = (MIG_CONFIG, PLUGIN_CONFIG)
"""Labels that name a configuration; a NodePool may offer several of each."""
READ = (*CHOICES, MIG_STRATEGY, REPLICAS_LABEL, STRATEGY_LABEL)
"""Every label that says how a node's GPUs are cut."""
_PLUGIN = re.compile(r"^(flags|sharing|resources|imex):", re.MULTILINE)
_VERSION = re.compile(r"^version:", re.MULTILINE)
_MIG = re.compile(r"^mig-configs:", re.MULTILINE)


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """The named configurations of a cluster: of mig-parted, with the file that has each, and of the device plugin.

    ``complete``: there are no others but mig-parted's own, so another name is a mistake; else it says nothing."""

    mig: Mapping[str, Spec] = field(default_factory=dict)
    plugin: Mapping[str, Config] = field(default_factory=dict)
    complete: bool = False


OWN = Configurations()
"""Where the ConfigMaps of the cluster are not at hand: mig-parted's own configurations."""


def read(config_maps: Iterable[ConfigMap]) -> Configurations:
    """The configurations in these ConfigMaps; those of other programs are passed over.

    Raises InputError, with file and line, for one that its program would refuse, and for a name that stands twice."""
    mig: dict[str, Spec] = {}
    plugin: dict[str, Config] = {}
    problems: list[Problem] = []
    for one in config_maps:
        try:
            if any(_MIG.search(text) for text in one.data.values()):
                for spec in _mig_specs(one):
                    problems += [_twice(spec.where(name), name) for name in spec.configs if name in mig]
                    mig |= dict.fromkeys(spec.configs, spec)
            elif any(_VERSION.search(text) and _PLUGIN.search(text) for text in one.data.values()):
                for key, config in _plugin_configs(one):
                    problems += [_twice(documents.place_of(one, key), key)] if key in plugin else []
                    plugin[key] = config
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return Configurations(mig, plugin, complete=True)


def _mig_specs(one: ConfigMap) -> list[Spec]:
    return [mig_parted.parse(document) for document in documents.inside(one) if "mig-configs" in document.value]


def _plugin_configs(one: ConfigMap) -> list[tuple[str, Config]]:
    return [(document.key, device_plugin.parse(document)) for document in documents.inside(one)]


def _twice(at: Where, name: str) -> Problem:
    return Problem(at, f"a configuration called {name!r} stands in another ConfigMap too", "keep one of them")


@dataclass(frozen=True, slots=True)
class NodeCuts:
    """What the GPUs of a node become. ``cuts``: one a GPU, empty where all stay whole. ``offers``: what they give the
    node's allocatable, by resource. ``labels``: those that GPU feature discovery and mig-manager add to a node that is
    cut. ``instances``: MIG instances that are made. ``problems``: why the node offers no GPUs."""

    cuts: tuple[Cut, ...] = ()
    offers: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    problems: tuple[Problem, ...] = ()


def known_names(configurations: Configurations, key: str) -> frozenset[str]:
    """The configurations that a label may name."""
    if key == PLUGIN_CONFIG:
        return frozenset(configurations.plugin)
    return frozenset({*configurations.mig, *_own().configs})


def unknown_name(configurations: Configurations, key: str, name: str) -> Problem:
    """That no ConfigMap has the configuration which a label names, with near names."""
    what, whose = ("MIG", "mig-parted") if key == MIG_CONFIG else ("device-plugin", "the device plugin")
    hint = f"no ConfigMap of the manifests has it for {whose}"
    known = known_names(configurations, key)
    return names.unknown(f"{what} configuration", name, known, where=_label(key), hint=hint).problems[0]


def _label(key: str) -> Where:
    return Where(field=key)


def cut_node(configurations: Configurations, labels: Mapping[str, str], gpu: str, count: int) -> NodeCuts:
    """What these labels make of a node with ``count`` GPUs called ``gpu`` as in :mod:`tonnage.facts.gpus`.

    Raises nothing: what cannot be is among the problems, which name the label where they have no file and line."""
    return _cut_node(configurations, tuple((key, labels[key]) for key in READ if key in labels), gpu, count)


@lru_cache(maxsize=1 << 14)
def _cut_node(configurations: Configurations, labels: tuple[tuple[str, str], ...], gpu: str, count: int) -> NodeCuts:
    own = dict(labels)
    try:
        config = _plugin(configurations, own)
        strategy = _strategy(own, config)
        sharing = _sharing(own, config)
        layouts = _layouts(configurations, own.get(MIG_CONFIG, ""), gpu, count)
        if sharing.strategy == "none" and all(layout is None for layout in layouts):
            return NodeCuts(offers={GPU: count})
        return _made(own, gpu, layouts, strategy, sharing)
    except InputError as error:
        return NodeCuts(problems=error.problems)


def _plugin(configurations: Configurations, labels: Mapping[str, str]) -> Config:
    """The configuration that the device plugin of the node takes."""
    known, wanted = configurations.plugin, labels.get(PLUGIN_CONFIG, "")
    if wanted and wanted not in known:
        if configurations.complete:
            raise InputError(unknown_name(configurations, PLUGIN_CONFIG, wanted))
        return Config()
    key = device_plugin.choose(known, wanted)
    return known[key] if key else Config()


def _strategy(labels: Mapping[str, str], config: Config) -> str:
    """The operator sets the strategy for the device plugin, which goes before that of its file."""
    strategy = labels.get(MIG_STRATEGY) or str(config.flags.get("migStrategy", DEFAULT_STRATEGY))
    if strategy not in STRATEGIES:
        raise names.unknown("MIG strategy", strategy, STRATEGIES, where=_label(MIG_STRATEGY))
    return strategy


def _sharing(labels: Mapping[str, str], config: Config) -> Sharing:
    """As configured, else as a label of replicas says that somebody wrote by hand."""
    written = labels.get(REPLICAS_LABEL, "")
    replicas = int(written) if written.isascii() and written.isdigit() and len(written) < 4 else 0
    if config.sharing.active.resources or replicas < 2:
        return config.sharing
    shared = Replicas([Replicated(GPU, replicas)])
    return Sharing(mps=shared) if labels.get(STRATEGY_LABEL) == MPS else Sharing(time_slicing=shared)


def _layouts(configurations: Configurations, name: str, gpu: str, count: int) -> list[Layout | None]:
    """The layout of each GPU; None: MIG is off."""
    if not name or geometry(gpu) is None:
        return [None] * count
    spec = configurations.mig.get(name)
    if spec is None:
        spec = _own()
        if name not in spec.configs:
            if configurations.complete:
                raise InputError(unknown_name(configurations, MIG_CONFIG, name))
            return [None] * count
    return layouts(spec, name, gpu, count)


@lru_cache(maxsize=1)
def _own() -> Spec:
    return known_configs()


def layouts(spec: Spec, name: str, gpu: str, count: int) -> list[Layout | None]:
    """What a configuration of mig-parted makes of each of ``count`` GPUs of a node; None: MIG is off, as on those that
    no entry is for. Of several entries for a GPU the last one stays.

    Raises InputError where a GPU cannot be cut so, or has no MIG, and KeyError where the name is not in the file."""
    on = card(gpu)
    found: list[Layout | None] = [None] * count
    for number, entry in enumerate(spec.configs[name]):
        if not _is_for(entry, on.gpu):
            continue
        made: Layout | None = () if entry.mig_enabled else None
        if entry.profiles:
            tried = try_on(on, number, entry.profiles)
            if isinstance(tried, Refused):
                raise InputError(_impossible(spec, name, number, entry, tried))
            made = tried
        chosen: Iterable[int] = range(count) if isinstance(entry.devices, str) else entry.devices
        for index in chosen:
            if index < count:
                found[index] = made
    return found


def _is_for(entry: Entry, gpu: str) -> bool:
    boards = (mig_devices.by_id().get(one.device) for one in entry.ids)
    return not entry.ids or any(board is not None and board.gpu == gpu for board in boards)


def _impossible(spec: Spec, name: str, number: int, entry: Entry, refused: Refused) -> Problem:
    wanted = ", ".join(f"{count} x {one}" if count > 1 else one for one, count in (entry.mig_devices or {}).items())
    where = _label(MIG_CONFIG) if spec.document is None else spec.where(name, number, "mig-devices")
    message = f"{refused.gpu} cannot hold {wanted} of configuration {name}: {refused.why}"
    return Problem(where, message, f"what it can hold: tonnage mig layouts {refused.gpu}")


def _made(
    labels: Mapping[str, str], gpu: str, layouts: Sequence[Layout | None], strategy: str, sharing: Sharing
) -> NodeCuts:
    """The node with these layouts, as the device plugin offers it. Raises InputError for what it refuses."""
    cards = [Card(gpu, None if one is None else tuple(made.profile for made in one)) for one in layouts]
    try:
        node = predict(cards, strategy, sharing)
    except InputError as error:
        what = error.problems[0]
        raise InputError(Problem(_label(PLUGIN_CONFIG), what.message, what.hint)) from error
    if sharing.strategy == MPS and (replicas := sharing.replicas(GPU)) > 1:
        mps.limits(gpu, replicas, _label(PLUGIN_CONFIG))
    if node.problems:
        hint = f"label the nodes {MIG_STRATEGY}: mixed, or cut all GPUs into equal instances"
        raise InputError(Problem(_label(MIG_CONFIG), node.problems[0], hint))
    shared = [one.resource for one in sharing.active.resources if one.resource.startswith(MIG_PREFIX)]
    if strategy == "mixed" and any(layouts) and shared:
        hint = f"with {MIG_STRATEGY}: single the replicas of {GPU} are"
        raise InputError(Problem(_label(PLUGIN_CONFIG), f"replicas of {shared[0]} are not modelled", hint))
    cuts = tuple(_cut(gpu, one, strategy, sharing) for one in layouts)
    if all(cut == OPEN for cut in cuts):
        return NodeCuts(offers=node.resources)
    more = {MIG_STATE: "success"} if MIG_CONFIG in labels and geometry(gpu) is not None else {}
    instances = sum(len(one or ()) for one in layouts)
    return NodeCuts(cuts, node.resources, {**node.labels, **more}, instances)


def _cut(gpu: str, layout: Layout | None, strategy: str, sharing: Sharing) -> Cut:
    """How one GPU is given away.

    With strategy ``single`` an instance is what a GPU is elsewhere, so the card is one with a replica, or several, for
    each of its equal instances; memory is apart only between instances."""
    replicas = sharing.replicas(GPU)
    if layout is None or strategy == "none":
        if replicas == 1:
            return OPEN
        apart = sharing.strategy == MPS
        return Cut(How.REPLICAS, sharing.advertised(GPU), replicas, isolated=apart, one_each=sharing.one_each)
    on = card(gpu)
    made = tuple(sorted((resource(on, one.profile), one.start) for one in layout))
    if strategy == "mixed":
        return Cut(How.MIG, isolated=True, gpu=gpu, instances=made)
    return Cut(
        How.REPLICAS,
        sharing.advertised(GPU),
        replicas * len(made),
        isolated=replicas == 1,
        one_each=replicas > 1 and sharing.one_each,
        gpu=gpu,
        instances=made,
    )
