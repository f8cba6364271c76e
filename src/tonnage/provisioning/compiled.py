"""What a plan's settings make of the catalogue and of NodePools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.load import Market
from tonnage.provisioning.nodeclass import storage_key
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.template import PoolTemplate, compile_pool


def template_of(pool: karpenter.NodePool, catalogue: Catalogue, settings: PlanSettings) -> PoolTemplate:
    """The template of one NodePool, with the DaemonSets, the EC2NodeClass and the configurations of the settings.

    Raises :class:`~tonnage.errors.InputError` for a requirement that cannot be read."""
    storage = settings.node_classes.get(storage_key(pool))
    return compile_pool(pool, catalogue, settings.daemon_sets, storage, settings.configurations)


def market_of(catalogue: Catalogue, settings: PlanSettings) -> Market:
    """What of the catalogue can be launched now."""
    return Market(catalogue, catalogue.available(settings.unavailable), settings.strict_min_values)


def have_soft_taints(templates: Iterable[PoolTemplate]) -> bool:
    """Whether a pod can give up that a taint with effect PreferNoSchedule binds it."""
    return any(taint.effect == "PreferNoSchedule" for one in templates for taint in one.taints)


def left_of_limits(
    templates: Iterable[PoolTemplate], used: Iterable[tuple[str, Mapping[str, int]]]
) -> dict[str, dict[str, int]]:
    """By NodePool, what of its limits is left. ``used``: the NodePool and the capacity of each node."""
    left = {one.name: dict(one.limits) for one in templates}
    for pool, capacity in used:
        for resource in left.get(pool, ()):
            left[pool][resource] -= capacity.get(resource, 0)
    return left
