"""Node labels that Karpenter knows, and old spellings that it rewrites. The table is ``data/labels.csv``."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from tonnage.facts.labels import (
    AWS_INSTANCE,
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    NODE_POOL,
    REGION,
    ZONE,
)
from tonnage.facts.price_book import ON_DEMAND, RESERVED, SPOT

__all__ = [
    "CAPACITY_TYPE",
    "HOSTNAME",
    "INITIALIZED",
    "INSTANCE_TYPE",
    "NODE_POOL",
    "ON_DEMAND",
    "REGION",
    "RESERVED",
    "SPOT",
    "ZONE",
]


RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"
RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"
GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"
REGISTERED = "karpenter.sh/registered"

OF_TYPE = AWS_INSTANCE
"""How labels of Karpenter's begin that follow from the instance type."""
_OF_AUTO_MODE = "eks.amazonaws.com/instance-"

REBALANCE_TAINT = "aws-node-termination-handler/rebalance-recommendation"
"""The taint that the AWS Node Termination Handler gives a node with a rebalance recommendation
(aws/aws-node-termination-handler, pkg/node)."""


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = resources.files("tonnage.provisioning").joinpath("data/labels.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def well_known() -> frozenset[str]:
    """Labels that Karpenter sets from the instance type, the offering or the NodePool; a pod may ask for
    any of them without the NodePool naming it.
    """
    return frozenset(row["key"] for row in _rows() if row["scope"])


@cache
def of_instance_type() -> frozenset[str]:
    """Well-known labels that follow from the instance type alone. A type without one has the requirement
    DoesNotExist.
    """
    return frozenset(row["key"] for row in _rows() if row["scope"] == "instance")


def auto_mode(key: str) -> str:
    """What nodes of EKS Auto Mode have in place of a label of Karpenter's."""
    return _OF_AUTO_MODE + key.removeprefix(OF_TYPE) if key.startswith(OF_TYPE) else key


@cache
def of_offering() -> frozenset[str]:
    """Well-known labels that differ between the offerings of one instance type."""
    return frozenset(row["key"] for row in _rows() if row["scope"] == "offering")


@cache
def _normalised() -> dict[str, str]:
    return {row["key"]: row["normalised_to"] for row in _rows() if row["normalised_to"]}


def normalise(key: str) -> str:
    """The present name of a label key: ``beta.kubernetes.io/arch`` becomes ``kubernetes.io/arch``, and so
    on.
    """
    return _normalised().get(key, key)
