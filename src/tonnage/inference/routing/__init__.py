"""Which engine a request goes to: policies, the book of what is in flight, flow control, receipts."""

from tonnage.inference.routing.book import Book
from tonnage.inference.routing.catalog import NAMES, make_policy
from tonnage.inference.routing.costs import EngineCosts
from tonnage.inference.routing.flow import FlowControl, FlowSettings
from tonnage.inference.routing.policies import RoutingPolicy
from tonnage.inference.routing.router import Router
from tonnage.inference.routing.seconds import Tonnage, TonnageSettings
from tonnage.inference.routing.types import CostParts, CostsOf, Overlap, Receipt, RouteRequest, StepCosts, Worker

__all__ = [
    "NAMES",
    "Book",
    "CostsOf",
    "EngineCosts",
    "FlowControl",
    "FlowSettings",
    "Overlap",
    "CostParts",
    "RoutingPolicy",
    "Receipt",
    "RouteRequest",
    "Router",
    "StepCosts",
    "Tonnage",
    "TonnageSettings",
    "Worker",
    "make_policy",
]
