"""How the GPUs of a node are partitioned, by its labels and the configurations of the cluster: before the node exists.

Two programs of NVIDIA's GPU operator partition the GPUs of a node as its labels say. ``nvidia.com/mig.config`` names a
configuration of mig-parted, ``nvidia.com/device-plugin.config`` one of the device plugin; both stand in ConfigMaps
(:mod:`tonnage.partitioning.configurations` reads them). A node without the second label has the default of the
ClusterPolicy, if that names one. Source: NVIDIA/mig-parted deployments/container (mig-manager),
NVIDIA/k8s-device-plugin cmd/config-manager, NVIDIA/gpu-operator controllers/object_controls.go (FALLBACK_STRATEGIES
is ``empty``, DEFAULT_CONFIG and MIG_STRATEGY come from the ClusterPolicy).

``nvidia.com/mig.strategy`` is not an input of the operator: GPU feature discovery writes it. Here it may be set on a
node that does not exist yet, to say which strategy its device plugin will have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import mig_devices, names
from tonnage.facts.labels import GPU, MIG_CONFIG, MIG_PREFIX
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.geometry import geometry
from tonnage.fleet.outfit import MPS, REPLICAS_LABEL, STRATEGY_LABEL
from tonnage.objects.gpu_operator import OWN_MIG_CONFIG_MAP, ClusterPolicy
from tonnage.partitioning import device_plugin, mps
from tonnage.partitioning.device_plugin import Config, Replicas, Replicated, Sharing
from tonnage.partitioning.labels import STRATEGIES, NodeGpu, predict
from tonnage.partitioning.layouts import Layout, card, resource
from tonnage.partitioning.mig_cards import RefusedLayout, known_configs, try_on
from tonnage.partitioning.mig_parted import Entry, Spec

MIG_STRATEGY = "nvidia.com/mig.strategy"
PLUGIN_CONFIG = device_plugin.CONFIG_LABEL
MIG_STATE = "nvidia.com/mig.config.state"
DEFAULT_STRATEGY = "single"
"""Of the GPU operator's Helm chart (NVIDIA/gpu-operator deployments/gpu-operator/values.yaml, ``mig.strategy``)."""
CHOICES = (MIG_CONFIG, PLUGIN_CONFIG)
"""Labels that name a configuration: a NodePool may offer several values of each, the operator follows the label."""
STATED = (*CHOICES, MIG_STRATEGY)
"""Labels that the requirements of NodePools and pods may refer to; the strategy has one value in a NodePool."""
READ = (*STATED, REPLICAS_LABEL, STRATEGY_LABEL)
"""Every label that says how a node's GPUs are partitioned; the last two where no ConfigMap is at hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """The named configurations of a cluster: of mig-parted, with the file that has each, and of the device plugin.

    ``complete``: there are no others, so another name is a mistake; else it says nothing. ``policy``: what the
    operator was told. ``clashes``: what is wrong with a name, by label and name, that means two different things.
    ``made``: what :func:`cut_node` has worked out."""

    mig: Mapping[str, Spec] = field(default_factory=dict)
    plugin: Mapping[str, Config] = field(default_factory=dict)
    complete: bool = False
    policy: ClusterPolicy | None = None
    clashes: Mapping[tuple[str, str], Problem] = field(default_factory=dict)
    made: dict[tuple[tuple[tuple[str, str], ...], str, int, bool], NodeCuts] = field(default_factory=dict, repr=False)

    @property
    def default(self) -> str:
        """The configuration of the device plugin on nodes without a label; empty: none.

        The ClusterPolicy names it; where there is no ClusterPolicy, it is the one called ``default``."""
        if self.policy is not None:
            return self.policy.spec.device_plugin.config.default
        return "default" if "default" in self.plugin and (PLUGIN_CONFIG, "default") not in self.clashes else ""

    @property
    def own(self) -> Mapping[str, object]:
        """mig-parted's own configurations; none where the ClusterPolicy puts another ConfigMap in their place."""
        replaced = self.policy is not None and self.policy.mig_config_map != OWN_MIG_CONFIG_MAP
        return {} if replaced else _own().configs


OWN = Configurations()
"""Where the ConfigMaps of the cluster are not at hand: mig-parted's own configurations."""


@dataclass(frozen=True, slots=True)
class NodeCuts:
    """What the GPUs of a node become. ``cuts``: one a GPU, empty where all stay whole. ``offers``: what they give the
    node's allocatable, by resource. ``labels``: those that GPU feature discovery and mig-manager add to a node
    that is partitioned. ``instances``: MIG instances that are made. ``problems``: why the node offers no GPUs."""

    cuts: tuple[Cut, ...] = ()
    offers: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    problems: tuple[Problem, ...] = ()


def known_names(configurations: Configurations, key: str) -> frozenset[str]:
    """The configurations that a label may name."""
    if key == PLUGIN_CONFIG:
        return frozenset(configurations.plugin)
    return frozenset({*configurations.mig, *configurations.own})


def unknown_name(configurations: Configurations, key: str, name: str) -> Problem:
    """That no ConfigMap has the configuration which a label names, with near names."""
    what, whose = ("MIG", "mig-parted") if key == MIG_CONFIG else ("device-plugin", "the device plugin")
    hint = f"no ConfigMap of the manifests has it for {whose}"
    if configurations.policy is not None:
        hint = f"for {whose} the ClusterPolicy says {_named(configurations.policy, key)}, and it is not in there"
    known = known_names(configurations, key)
    return names.unknown(f"{what} configuration", name, known, where=_label(key), hint=hint).problems[0]


def _named(policy: ClusterPolicy, key: str) -> str:
    if key == MIG_CONFIG:
        return f"migManager.config.name: {policy.mig_config_map}"
    return f"devicePlugin.config.name: {policy.spec.device_plugin.config.name or 'none'}"


def _label(key: str) -> Where:
    return Where(field=key)


def cut_node(
    configurations: Configurations, labels: Mapping[str, str], gpu: str, count: int, *, renamed: bool = False
) -> NodeCuts:
    """What these labels make of a node with ``count`` GPUs called ``gpu`` as in :mod:`tonnage.facts.gpus`. ``renamed``:
    the node is there and offers replicas as nvidia.com/gpu.shared, which its labels do not say (renameByDefault).

    Raises nothing: what cannot be is among the problems, which name the label where they have no file and line."""
    key = (tuple((label, labels[label]) for label in READ if label in labels), gpu, count, renamed)
    if key not in configurations.made:
        configurations.made[key] = _cut_node(configurations, dict(key[0]), gpu, count, renamed)
    return configurations.made[key]


def _cut_node(
    configurations: Configurations, labels: Mapping[str, str], gpu: str, count: int, renamed: bool
) -> NodeCuts:
    try:
        config = _plugin(configurations, labels)
        strategy = _strategy(configurations, labels, config)
        sharing = _sharing(labels, config, renamed)
        layouts = wanted_layouts(configurations, labels.get(MIG_CONFIG, ""), gpu, count)
        if sharing.strategy == "none" and all(layout is None for layout in layouts):
            return NodeCuts(offers={GPU: count})
        if sharing.strategy == MPS and (replicas := sharing.replicas(GPU)) > 1:
            mps.limits(gpu, replicas, _label(PLUGIN_CONFIG if config.sharing == sharing else REPLICAS_LABEL))
        return _made(labels, gpu, layouts, strategy, sharing)
    except InputError as error:
        return NodeCuts(problems=error.problems)


def _plugin(configurations: Configurations, labels: Mapping[str, str]) -> Config:
    """The configuration that the device plugin of the node takes."""
    name = labels.get(PLUGIN_CONFIG) or configurations.default
    if not name:
        return Config()
    _refuse_clash(configurations, PLUGIN_CONFIG, name)
    if name not in configurations.plugin and configurations.complete:
        raise InputError(unknown_name(configurations, PLUGIN_CONFIG, name))
    return configurations.plugin.get(name, Config())


def _refuse_clash(configurations: Configurations, key: str, name: str) -> None:
    if (key, name) in configurations.clashes:
        raise InputError(configurations.clashes[key, name])


def _strategy(configurations: Configurations, labels: Mapping[str, str], config: Config) -> str:
    """That of our label, else what the operator sets in the environment, which goes before the device plugin's file."""
    policy = configurations.policy
    set_by_operator = policy.spec.mig.strategy if policy is not None else ""
    written = config.flags.get("migStrategy", DEFAULT_STRATEGY)
    strategy = labels.get(MIG_STRATEGY) or set_by_operator or str(written)
    if strategy not in STRATEGIES:
        raise names.unknown("MIG strategy", strategy, STRATEGIES, where=_label(MIG_STRATEGY))
    return strategy


def _sharing(labels: Mapping[str, str], config: Config, renamed: bool) -> Sharing:
    """As configured, else as a label of replicas says that somebody wrote by hand."""
    written = labels.get(REPLICAS_LABEL, "")
    replicas = int(written) if written.isascii() and written.isdigit() and len(written) < 4 else 0
    if config.sharing.active.resources or replicas < 2:
        return config.sharing
    shared = Replicas([Replicated(GPU, replicas)], rename_by_default=renamed)
    return Sharing(mps=shared) if labels.get(STRATEGY_LABEL) == MPS else Sharing(time_slicing=shared)


def wanted_layouts(configurations: Configurations, name: str, gpu: str, count: int) -> list[Layout | None]:
    """The layout of each of ``count`` GPUs under the MIG configuration ``name``; None: MIG is off. Raises InputError
    for a name that no ConfigMap has or that means two things, and for what a GPU cannot be."""
    if not name or geometry(gpu) is None:
        return [None] * count
    _refuse_clash(configurations, MIG_CONFIG, name)
    spec = configurations.mig.get(name) or (_own() if name in configurations.own else None)
    if spec is None:
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

    Raises InputError where a GPU cannot be partitioned so, or has no MIG, and KeyError where the name is not in the
    file."""
    on = card(gpu)
    found: list[Layout | None] = [None] * count
    for number, entry in enumerate(spec.configs[name]):
        if not _is_for(entry, on.gpu):
            continue
        made: Layout | None = () if entry.mig_enabled else None
        if entry.profiles:
            tried = try_on(on, number, entry.profiles)
            if isinstance(tried, RefusedLayout):
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


def _impossible(spec: Spec, name: str, number: int, entry: Entry, refused: RefusedLayout) -> Problem:
    wanted = ", ".join(f"{count} x {one}" if count > 1 else one for one, count in (entry.mig_devices or {}).items())
    where = _label(MIG_CONFIG) if spec.document is None else spec.where(name, number, "mig-devices")
    message = f"{refused.gpu} cannot hold {wanted} of configuration {name}: {refused.why}"
    return Problem(where, message, f"what it can hold: tonnage mig layouts {refused.gpu}")


def _made(
    labels: Mapping[str, str], gpu: str, layouts: Sequence[Layout | None], strategy: str, sharing: Sharing
) -> NodeCuts:
    """The node with these layouts, as the device plugin offers it. Raises InputError for what it refuses."""
    cards = [NodeGpu(gpu, None if one is None else tuple(made.profile for made in one)) for one in layouts]
    try:
        node = predict(cards, strategy, sharing)
    except InputError as error:
        what = error.problems[0]
        raise InputError(Problem(_label(PLUGIN_CONFIG), what.message, what.hint)) from error
    if node.problems:
        hint = f"label the nodes {MIG_STRATEGY}: mixed, or partition all GPUs into equal instances"
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
