"""Nodes of the manifests whose prices are not known, as they are in another region than that of the prices."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Finding, Ref
from tonnage.facts import instances
from tonnage.facts.labels import INSTANCE_TYPE, REGION, ZONE
from tonnage.facts.price_book import PriceBook
from tonnage.machines.own_nodes import abroad
from tonnage.objects import core
from tonnage.objects.base import where
from tonnage.objects.load import Manifest


def nodes_without_price(manifest: Manifest, book: PriceBook) -> Iterator[Finding]:
    """Of instance types that have prices; other machines have none anywhere."""
    for node in manifest.of(core.Node):
        name, region = node.metadata.labels.get(INSTANCE_TYPE, ""), abroad(node, book)
        if not region or not instances.known(name):
            continue
        at = next(label for label in (REGION, ZONE) if label in node.metadata.labels)
        message = f"the prices are those of {book.region}: what {name} costs in {region} is not known, and counts as 0"
        help_ = "give the prices of its region with prices:, and the region with region:, in a scenario"
        yield Finding(
            "node-no-price",
            "warning",
            Ref("Node", node.name),
            where(node, f"metadata.labels.{at}"),
            message,
            help=help_,
        )
