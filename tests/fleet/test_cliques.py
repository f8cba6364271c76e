"""Gangs of which pods claim channels of ComputeDomains, as NVIDIA's controller makes these claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from claim_builders import NAMESPACE, add, fleet_of, own, see_claim
from device_allocations import claim, request
from gang_builders import CLIQUE, gang
from tonnage.fleet.cliques import in_cliques
from tonnage.fleet.gangs import Gang
from tonnage.fleet.state import Fleet
from tonnage.objects.compute_domains import ComputeDomain, channel_template, domain_of

CHANNEL: dict[str, Any] = {
    "requests": ["r"],
    "opaque": {
        "driver": "compute-domain.nvidia.com",
        "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": "uid-1",
        },
    },
}
KEY = f"{NAMESPACE}/g"


def fleet_with(config: list[dict[str, Any]]) -> Fleet:
    """A gang's pod with a claim that has this configuration."""
    made = fleet_of("a")
    made.device_claims.see(claim(request(), name="p-claim", config=config))
    before = made.device_claims.claims[NAMESPACE, "p-claim"]
    one = own(made, "p")
    made.device_claims.see(before)
    add(made, replace(one, gang=KEY))
    return made


def rule_of(made: Fleet, one: Gang) -> str:
    return in_cliques({one.key: one}, made)[one.key].rule.required


@pytest.mark.parametrize(
    ("level", "required"),
    [
        ("", CLIQUE),
        ("topology.kubernetes.io/zone", CLIQUE),
        ("example.com/rack", CLIQUE),
        (CLIQUE, CLIQUE),
        ("kubernetes.io/hostname", "kubernetes.io/hostname"),
    ],
)
def test_a_gang_with_a_channel_stands_in_one_clique_or_in_what_is_inside_of_one(level: str, required: str) -> None:
    assert rule_of(fleet_with([CHANNEL]), gang(1, key=KEY, required=level)) == required


def test_a_gang_with_other_claims_stands_where_it_says() -> None:
    sharing = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}
    one = gang(1, key=KEY)
    given = {KEY: one}
    assert in_cliques(given, fleet_with([sharing])) is given


def test_a_gang_of_others_is_left_alone() -> None:
    one = gang(1, key=f"{NAMESPACE}/other")
    assert rule_of(fleet_with([CHANNEL]), one) == ""


def test_a_claim_that_is_gone_binds_nobody() -> None:
    made = fleet_with([CHANNEL])
    made.device_claims.forget(made.device_claims.claims[NAMESPACE, "p-claim"])
    assert rule_of(made, gang(1, key=KEY)) == ""
    see_claim(made, "p-claim")
    assert rule_of(made, gang(1, key=KEY)) == ""


def test_the_template_of_a_domain_asks_for_its_channel() -> None:
    written = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "rack", "namespace": "research"},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "rack-channel"}}},
    }
    domain = msgspec.convert(written, ComputeDomain)
    template = channel_template(domain)
    assert (template.name, template.namespace) == ("rack-channel", "research")
    (asked,) = template.spec.spec.devices.requests
    assert asked.exactly is not None
    assert asked.exactly.device_class_name == "compute-domain-default-channel.nvidia.com"
    assert domain_of(template.spec.spec) == "research/rack"
