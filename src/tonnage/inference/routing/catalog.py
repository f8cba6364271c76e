"""The policies by name."""

from __future__ import annotations

from tonnage.errors import InputError
from tonnage.inference.routing.peers import Dynamo, LlmD, SgLang
from tonnage.inference.routing.policies import LeastLoaded, PowerOfTwo, RandomWorker, RoundRobin, RoutingPolicy
from tonnage.inference.routing.seconds import Tonnage, TonnageSettings
from tonnage.inference.routing.types import CostsOf, StepCosts

_POLICIES: dict[str, type[RoutingPolicy]] = {
    policy.name: policy for policy in (RoundRobin, RandomWorker, LeastLoaded, PowerOfTwo, Dynamo, LlmD, SgLang, Tonnage)
}

NAMES = tuple(_POLICIES)
"""Every policy there is."""


def make_policy(
    name: str,
    costs: StepCosts | None = None,
    settings: TonnageSettings | None = None,
    *,
    costs_of: CostsOf | None = None,
    predicts: bool = True,
) -> RoutingPolicy:
    """A new policy. All but the name is for ``tonnage``: see :class:`Tonnage`; ``costs_of`` counts before ``costs``.

    Raises InputError for an unknown name, and for ``tonnage`` without the engine's timing.
    """
    kind = _POLICIES.get(name)
    if kind is None:
        raise InputError.at(f"there is no routing policy {name!r}", field="policy", hint=f"one of {', '.join(NAMES)}")
    if kind is Tonnage:
        if costs is None and costs_of is None:
            raise InputError.at(
                "policy tonnage predicts seconds and was given no timing of the engine",
                field="policy",
                hint="name the model and GPU, or give measured step times",
            )
        return Tonnage(None if costs_of else costs, settings, costs_of=costs_of, predicts=predicts)
    return kind()
