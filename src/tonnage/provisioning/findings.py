"""What a NodePool can never do, whatever pods come: limits out of reach, too few types for spot, types
dropped unawares.

The numbers follow Karpenter's own rules: limits are charged with whole machines, memory less the
hypervisor's share.
"""

from __future__ import annotations

import difflib

import numpy as np
from msgspec import UNSET

from tonnage.decisions import Finding, Ref, Scalar
from tonnage.facts import instances, prices
from tonnage.objects import karpenter, load
from tonnage.objects.validate.nodepools import RESTRICTED_DOMAINS
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NODES, Catalogue, TypeMask
from tonnage.provisioning.cut_findings import cut_findings
from tonnage.provisioning.explain import amount_text
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.template import PoolTemplate, compile_pool

SPOT_TO_SPOT_TYPES = 15
"""Cheaper types that single-node spot-to-spot consolidation asks for (kubernetes-sigs/karpenter,
consolidation.go).
"""

FLEXIBLE_TYPES = 5
"""Types that a spot request should have (aws/karpenter-provider-aws, instanceTypeFlexibilityThreshold)."""

_CAPACITY_TYPES = frozenset({labels.ON_DEMAND, labels.SPOT, labels.RESERVED})
_REQUIREMENTS = "spec.template.spec.requirements"


def analyse(node_pool: karpenter.NodePool, catalogue: Catalogue, configurations: Configurations = OWN) -> list[Finding]:
    """Everything that this NodePool can never do, each with file and line, in the order of the checks.
    ``configurations``: those that labels of its nodes may name, as their GPUs are partitioned.

    Raises :class:`~tonnage.errors.InputError` for a requirement that cannot be read.
    """
    template = compile_pool(node_pool, catalogue, configurations=configurations)
    buyable = template.types & catalogue.available().open_to(template.requirements)
    if any(one.is_empty() for one in template.requirements.values()):
        buyable = np.zeros_like(buyable)  # Karpenter launches nodes without that label, which no pod of it can use
    checks = _Checks(node_pool, catalogue, template, buyable)
    found = [*checks.restricted_labels(), *checks.unknown_values(), *checks.fractions_dropped()]
    if not buyable.any():
        return [*found, checks.nothing_to_buy()]
    found += cut_findings(node_pool, template, catalogue, buyable, configurations)
    found += checks.too_few_values()
    if not (buyable & template.within(template.limits, catalogue)).any():
        return [*found, *checks.limits_below_one_node(), *checks.few_spot_types()]
    return [*found, *checks.replicas_beyond_limit(), *checks.unreachable_limits(), *checks.few_spot_types()]


class _Checks:
    """The checks of one NodePool; ``buyable`` are its instance types with an offering that it allows."""

    def __init__(
        self, pool: karpenter.NodePool, catalogue: Catalogue, template: PoolTemplate, buyable: TypeMask
    ) -> None:
        self.pool = pool
        self.catalogue = catalogue
        self.template = template
        self.buyable = buyable
        self.written = pool.spec.template.spec.requirements

    def finding(
        self, rule: str, severity: str, field: str, message: str, *evidence: tuple[str, Scalar], help_: str = ""
    ) -> Finding:
        where = load.where(self.pool, field)
        ref = Ref("NodePool", self.pool.metadata.name)
        return Finding(rule, severity, ref, where, message, evidence, help=help_ or UNSET)

    def field(self, key: str) -> str:
        """Where the first requirement on this label is written; the list of requirements when there is
        none.
        """
        for i, one in enumerate(self.written):
            if labels.normalise(one.key) == key:
                return f"spec.template.spec.requirements[{i}]"
        return "spec.template.spec.requirements"

    def restricted_labels(self) -> list[Finding]:
        """Requirements on labels that Karpenter keeps for itself and that the API server refuses."""
        return [
            self.finding(
                "nodepool-restricted-label",
                "error",
                f"spec.template.spec.requirements[{i}].key",
                f"label {one.key} is restricted: the API refuses it in a requirement unless it is well known",
                ("key", one.key),
            )
            for i, one in enumerate(self.written)
            if _restricted(labels.normalise(one.key))
        ]

    def unknown_values(self) -> list[Finding]:
        """Listed values that no instance type or offering has.

        Karpenter's capacity types are all known, with reservations or without: where they leave nothing to launch,
        ``nodepool-no-offering`` says so.
        """
        everything = np.ones(len(self.catalogue.types), dtype=np.bool_)
        found = []
        for i, one in enumerate(self.written):
            known = self.catalogue.values(labels.normalise(one.key), everything)
            of_karpenter = _CAPACITY_TYPES if labels.normalise(one.key) == labels.CAPACITY_TYPE else ()
            missing = [value for value in one.values if value not in known and value not in of_karpenter]
            if one.operator == "In" and known and missing:
                message = f"no known instance type has {one.key} {', '.join(missing)}"
                field = f"spec.template.spec.requirements[{i}].values"
                found.append(self.finding("nodepool-unknown-value", "warning", field, message))
        return found

    def fractions_dropped(self) -> list[Finding]:
        """Types with a fraction of a GPU that only the requirement on the GPU count drops: their count is
        0.
        """
        count = self.template.requirements.get(labels.GPU_COUNT)
        if count is None or count.has("0"):
            return []
        others = Requirements(one for one in self.template.requirements.values() if one is not count)
        zero = self.catalogue.select(Requirements([Requirement.of(labels.GPU_COUNT, "In", ["0"])]))
        names = [self.catalogue.names[i] for i in np.flatnonzero(self.catalogue.select(others) & zero)]
        if not names:
            return []
        message = (
            f"{count} drops {', '.join(names)}: they hold a fraction of one GPU, counted as 0, "
            "and offer no nvidia.com/gpu"
        )
        field = self.field(labels.GPU_COUNT)
        return [self.finding("nodepool-fractional-gpu-dropped", "info", field, message, ("types", len(names)))]

    def nothing_to_buy(self) -> Finding:
        """No instance type meets the requirements, or none is offered where and as they ask."""
        count = int(self.template.types.sum())
        index = self._at_fault()
        field = _REQUIREMENTS if index is None else self._values(index)
        if count == 0:
            message = f"no instance type meets {self.template.requirements}"
            help_ = "loosen the requirements" if index is None else self._remedy(index)
            return self.finding("nodepool-no-instance-type", "error", field, message, help_=help_)
        if not self._offered():
            message = f"no price is known for its {count} instance types in the zones and capacity types asked for"
            return self.finding("nodepool-no-price", "warning", field, message, ("types", count))
        names = [self.catalogue.names[i] for i in np.flatnonzero(self.template.types)]
        wanted = " and ".join(
            f"{label} {', '.join(sorted(one.values))}"
            for label, one in (
                ("zone", self.template.requirements.get(labels.ZONE)),
                ("capacity type", self.template.requirements.get(labels.CAPACITY_TYPE)),
            )
            if one is not None and not one.complement
        )
        offers = sorted(
            {f"{o.zone} ({o.capacity_type})" for name in names for o in self.catalogue.book.offerings(name)}
        )
        shown = ", ".join(names[:3]) + (f" and {count - 3} more" if count > 3 else "")
        message = f"{shown} {'is' if count == 1 else 'are'} not offered in {wanted or 'what is asked for'}"
        help_ = f"offered in {', '.join(offers[:6])}" + (" …" if len(offers) > 6 else "")
        return self.finding("nodepool-no-offering", "error", field, message, ("types", count), help_=help_)

    def _offered(self) -> bool:
        """Whether the price book knows where the types are offered: each somewhere, the zones' region at all, and not
        by the default zones alone."""
        book = self.catalogue.book
        regions = {o.region for offers in book.by_type.values() for o in offers} | {book.region}
        zones = self.template.requirements.get(labels.ZONE)
        listed = zones.values if zones is not None and not zones.complement else frozenset[str]()
        offers = [book.offerings(self.catalogue.names[i]) for i in np.flatnonzero(self.template.types)]
        taken = frozenset(prices.default_zones(book.region))
        guessed = any(
            {o.zone for o in own} == taken and all(o.capacity_type != labels.SPOT for o in own) for own in offers
        )
        elsewhere = listed and not listed & taken and listed <= {zone for zone, _ in self.catalogue.pairs}
        return (
            all(instances.region_of(zone) in regions for zone in listed) and all(offers) and not (guessed and elsewhere)
        )

    def _at_fault(self) -> int | None:
        """The requirement without which there would be something to launch: the first with a value that nothing has,
        else the last of them."""
        offers = self.catalogue.available()
        own = Requirements.of_labels(self.template.labels)
        found = []
        for i in range(len(self.written)):
            others = Requirements(
                Requirement.of(one.key, one.operator, one.values) for j, one in enumerate(self.written) if j != i
            ).merged(own)
            empty = any(one.is_empty() for one in others.values())
            if not empty and (self.catalogue.select(others) & offers.open_to(others)).any():
                found.append(i)
        return next((i for i in found if self._unknown(i)), found[-1] if found else None)

    def _values(self, index: int) -> str:
        """The field of the value that nothing has, of the only one, or of the list."""
        values = self.written[index].values
        wrong = [*self._unknown(index), *(values if len(values) == 1 else ())]
        at = f"[{values.index(wrong[0])}]" if wrong else ""
        return f"{_REQUIREMENTS}[{index}].values{at}"

    def _unknown(self, index: int) -> list[str]:
        """The listed values that no instance type or offering has."""
        one = self.written[index]
        everything = np.ones(len(self.catalogue.types), dtype=np.bool_)
        known = self.catalogue.values(labels.normalise(one.key), everything)
        return [value for value in one.values if value not in known] if one.operator == "In" and known else []

    def _remedy(self, index: int) -> str:
        one = self.written[index]
        everything = np.ones(len(self.catalogue.types), dtype=np.bool_)
        known = sorted(self.catalogue.values(labels.normalise(one.key), everything))
        near = [m for value in self._unknown(index) for m in difflib.get_close_matches(value, known, 1)]
        return f"did you mean {', '.join(near)}?" if near else f"loosen the requirement on {one.key}, or the others"

    def too_few_values(self) -> list[Finding]:
        """minValues above the number of different values that the types of the pool have."""
        found = []
        for i, one in enumerate(self.written):
            values = self.catalogue.values(labels.normalise(one.key), self.buyable)
            allowed = [value for value in values if self.template.requirements[labels.normalise(one.key)].has(value)]
            if one.min_values is not None and values and len(allowed) < one.min_values:
                message = (
                    f"minValues {one.min_values} of {one.key} cannot be met: the instance types of the pool have "
                    f"{len(allowed)}, so that no node is launched"
                )
                help_ = f"set minValues: {len(allowed)}, or allow more instance types"
                field = f"{_REQUIREMENTS}[{i}].minValues"
                found.append(self.finding("nodepool-min-values-unreachable", "error", field, message, help_=help_))
        return found

    def limits_below_one_node(self) -> list[Finding]:
        """Limits that the smallest node of the pool is above: nothing is ever launched."""
        found = []
        for resource, limit in sorted(self.template.limits.items()):
            column = self.catalogue.column.get(resource)
            if column is None:
                continue
            least = int(self.template.capacity[self.buyable, column].min())
            if least > limit:
                amounts = amount_text(resource, limit), amount_text(resource, least)
                message = f"the limit of {amounts[0]} {resource} is below the smallest node of the pool, {amounts[1]}"
                help_ = f"raise the limit on {resource} to {amounts[1]} at least, or allow smaller instance types"
                field = f"spec.limits.{resource}"
                found.append(self.finding("nodepool-limit-below-one-node", "error", field, message, help_=help_))
        return found

    def replicas_beyond_limit(self) -> list[Finding]:
        """More nodes of a static NodePool than its limit lets be launched."""
        replicas, most = self.pool.spec.replicas or 0, self.template.limits.get(NODES, self.pool.spec.replicas or 0)
        if replicas <= most:
            return []
        message = f"{replicas - most} of {replicas} replicas are never launched: limits.nodes is {most}"
        help_ = f"set limits.nodes: {replicas} at least, and one more for each node that is replaced at a time"
        return [self.finding("nodepool-replicas-beyond-limit", "warning", "spec.limits.nodes", message, help_=help_)]

    def unreachable_limits(self) -> list[Finding]:
        """Limits on GPUs or other devices that the other limits stop short of, by any mix of types."""
        found = []
        for resource, limit in sorted(self.template.limits.items()):
            column = self.catalogue.column.get(resource)
            if column is None or resource in ("cpu", "memory", "pods", "nodes", "ephemeral-storage"):
                continue
            bound, reached = self._reach(resource, column)
            if bound is None or bound >= limit:
                continue
            each = ", ".join(
                f"{name}: {count} {'node' if count == 1 else 'nodes'}, {units}" for name, count, units in reached
            )
            message = (
                f"{limit} {resource} cannot be reached: the limits "
                f"{self._others(resource)} stop at {bound} or fewer ({each})"
            )
            field = f"spec.limits.{resource}"
            evidence = (("limit", limit), ("bound", bound), *((name, units) for name, _, units in reached))
            found.append(self.finding("nodepool-limit-unreachable", "warning", field, message, *evidence))
        return found

    def _reach(self, resource: str, column: int) -> tuple[int | None, list[tuple[str, int, int]]]:
        """An upper bound on the units of ``resource`` under the other limits (``None``: none or no type has
        it), and per type that has any: name, most nodes of that type alone, and their units.

        Each other limit alone allows at most limit × (best units per unit of the limited resource); the
        least of these bounds every mix of types.
        """
        having = np.flatnonzero(self.buyable & (self.template.capacity[:, column] > 0))
        units = self.template.capacity[having, column]
        bound: int | None = None
        nodes = np.full(len(having), np.iinfo(np.int64).max)
        for other, limit in self.template.limits.items():
            if other == resource or other not in self.catalogue.column:
                continue
            needed = self.template.capacity[having, self.catalogue.column[other]]
            if (needed == 0).any():
                continue
            nodes = np.minimum(nodes, limit // needed)
            most = max((limit * int(u) // int(n) for u, n in zip(units, needed, strict=True)), default=0)
            bound = most if bound is None else min(bound, most)
        if bound is None or not having.size:
            return None, []
        reached = [
            (self.catalogue.names[i], int(count), int(count) * int(unit))
            for i, count, unit in zip(having, nodes, units, strict=True)
        ]
        reached.sort(key=lambda item: (-item[2], item[0]))
        return bound, reached[:5]

    def _others(self, resource: str) -> str:
        limits = self.template.limits
        return ", ".join(f"{name} {amount_text(name, limits[name])}" for name in sorted(limits) if name != resource)

    def few_spot_types(self) -> list[Finding]:
        """Too few types for spot-to-spot consolidation, or for when one has insufficient capacity."""
        if not self.template.requirements.allows(labels.CAPACITY_TYPE, labels.SPOT):
            return []
        count = int(self.template.types.sum())
        field = self.field(labels.CAPACITY_TYPE)
        found = []
        if count < SPOT_TO_SPOT_TYPES:
            message = (
                f"only {count} instance types: replacing one spot node by a cheaper one needs "
                f"{SPOT_TO_SPOT_TYPES} cheaper types, so it will never happen"
            )
            found.append(self.finding("nodepool-no-spot-to-spot", "info", field, message, ("types", count)))
        if count < FLEXIBLE_TYPES:
            message = (
                f"only {count} instance types with spot: at least {FLEXIBLE_TYPES} are advised, "
                "or insufficient capacity of one type may leave nothing to launch"
            )
            found.append(self.finding("nodepool-few-spot-types", "warning", field, message, ("types", count)))
        return found


def _restricted(key: str) -> bool:
    if key in labels.well_known() and key != labels.NODE_POOL:
        return False
    domain = key.partition("/")[0]
    return key == labels.HOSTNAME or any(domain == one or domain.endswith(f".{one}") for one in RESTRICTED_DOMAINS)
