"""Groups of pods that are bound all or none, and never are: too few pods, or no group of that name."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Ref
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.inventory import DEFAULT
from tonnage.health.setting import Setting
from tonnage.workloads.contradictions import never_start


def gangs(setting: Setting) -> Iterator[Blocker]:
    """Minimums above the pods that there are, and pods that name a group that does not exist."""
    # groups and pods find each other by the namespace, also where it is not written
    for one in never_start(obj if obj.namespace else obj.renamed(namespace=DEFAULT) for obj in setting.objects):
        rule = "gang-missing" if one.missing else "gang-below-minimum"
        problem = one.problem
        yield Blocker(
            rule,
            UNSCHEDULABLE,
            Ref(one.owner.kind, one.owner.name, one.owner.namespace),
            problem.where,
            problem.message if one.missing else f"{problem.message}: all of its pods stay Pending",
            problem.hint if one.missing else f"set it to {problem.hint}, or make more pods",
            "Unschedulable",
            problem.message,
        )
