"""What a planned NodeClaim comes to in the end: what is launched for it, and what the node will be."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.decisions import Launch, Reason, Ref, Scalar
from tonnage.facts.price_book import Reservation
from tonnage.partitioning.node_cuts import STATED
from tonnage.provisioning import labels
from tonnage.provisioning.auto_mode import as_auto
from tonnage.provisioning.catalogue import NODES
from tonnage.provisioning.launch import LaunchChoice
from tonnage.provisioning.load import ClaimLoad
from tonnage.provisioning.plans import PlannedClaim
from tonnage.provisioning.requirements import Requirements
from tonnage.units import usd


def planned(
    ref: Ref, load: ClaimLoad, pods: Sequence[Ref], choice: LaunchChoice, reservation: Reservation | None = None
) -> PlannedClaim:
    """The NodeClaim with this load and these pods, bought as ``choice``, in this capacity reservation if in one."""
    template = load.template
    catalogue = load.market.catalogue
    index = catalogue.index(choice.offering.instance_type)
    instance = catalogue.types[index]
    layout = load.layout(index) if len(load.choices) > 1 else 0
    cut = {key: value for key, value in template.machines.layouts[layout].items() if key in STATED}
    own = load.requirements.without(template.taken_for_granted)
    given = instance.labels(choice.offering.zone, choice.offering.capacity_type)
    if reservation is not None:
        block = "default" if reservation.ends_ns is None else "capacity-block"
        given |= {labels.RESERVATION_ID: reservation.id, labels.RESERVATION_TYPE: block}
    devices = load.devices and template.machines.of(load.devices, layout, index)
    return PlannedClaim(
        ref=ref,
        node_pool=template.name,
        offering=choice.offering,
        instance_types=choice.instance_types,
        requirements=own.merged(Requirements.of_labels(cut)),
        labels={
            **_own_labels(own, cut),
            **template.labels,
            **(as_auto(given) if template.auto else given),
        },
        taints=template.taints,
        startup_taints=template.startup_taints,
        requests=catalogue.as_map(load.requests) | (devices.in_use(0) if devices else {}),
        daemons=catalogue.as_map(template.daemons[index]),
        allocatable=template.allocatable(index, catalogue, layout),
        capacity=catalogue.as_map(template.capacity[index]),
        pods=tuple(pods),
        devices=devices,
    )


def _own_labels(requirements: Requirements, cut: dict[str, str]) -> dict[str, str]:
    """Labels that follow from the requirements; of those that say how GPUs are partitioned just the ones chosen."""
    return {key: value for key, value in requirements.labels().items() if key not in STATED} | cut


def launch(planned: PlannedClaim, load: ClaimLoad, choice: LaunchChoice) -> Launch:
    """The decision to launch it, with what was weighed."""
    evidence = (
        ("pods", load.pods),
        *amounts_of(planned.requests),
        ("instance_types_considered", int(load.types.sum())),
        ("instance_types_requested", len(choice.instance_types)),
        ("usd_per_hour", usd(choice.micro_usd_per_hour)),
        ("prices_as_of", load.market.catalogue.book.as_of),
    )
    return Launch(
        claim=planned.ref,
        node_pool=planned.node_pool,
        instance_type=choice.offering.instance_type,
        zone=choice.offering.zone,
        capacity_type=choice.offering.capacity_type,
        price_micro_usd_per_hour=choice.micro_usd_per_hour,
        reason=Reason("cheapest offering that fits its pods", evidence, choice.alternatives),
        pods=planned.pods,
        labels=planned.labels,
        allocatable=_without_nodes(planned.allocatable),
        requests=planned.requests,
        daemons=_without_nodes(planned.daemons),
        capacity=planned.capacity,
        taints=planned.taints,
        startup_taints=planned.startup_taints,
    )


def _without_nodes(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != NODES}


def amounts_of(amounts: dict[str, int]) -> tuple[tuple[str, Scalar], ...]:
    """Amounts as evidence of a reason, by name."""
    return tuple((name, amount) for name, amount in sorted(amounts.items()) if name != "pods" and amount)
