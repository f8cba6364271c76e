"""What keeps the nodes of a NodePool from offering the GPUs that its labels and requirements would cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tonnage.decisions import Finding, Ref
from tonnage.errors import Problem
from tonnage.facts.labels import GPU, MIG_CONFIG
from tonnage.objects import karpenter, load
from tonnage.partitioning.mig_cards import outcomes
from tonnage.partitioning.node_cuts import CHOICES, STATED, Configurations, cut_node, known_names, unknown_name
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue, TypeMask
from tonnage.provisioning.devices import parts_of
from tonnage.provisioning.template import PoolTemplate

_SHOWN = 3


def cut_findings(
    pool: karpenter.NodePool,
    template: PoolTemplate,
    catalogue: Catalogue,
    buyable: TypeMask,
    configurations: Configurations,
) -> list[Finding]:
    """Names of configurations that nobody has, layouts that cards cannot have, MPS on MIG, values that are not listed,
    and layouts between which a pod's request does not decide; each with file and line. ``buyable``: the types of the
    NodePool."""
    checks = _Checks(pool, template, catalogue, buyable, configurations)
    return [*checks.not_listed(), *(checks.cuts() if template.machines.cut else ())]


def config_findings(configurations: Configurations) -> list[Finding]:
    """Named configurations that no card can have, and what the device plugin reads and ignores."""
    specs = {id(spec): spec for spec in configurations.mig.values()}
    found = []
    for problem in (p for spec in specs.values() for outcome in outcomes(spec) for p in outcome.problems):
        message = f"{problem.message} ({problem.hint})"
        found.append(Finding("mig-config-impossible", "error", Ref("File", problem.where.file), problem.where, message))
    for problem in (p for config in configurations.plugin.values() for p in config.ignored):
        message = f"{problem.where.field}: {problem.message} ({problem.hint})"
        found.append(
            Finding("device-plugin-field-ignored", "warning", Ref("File", problem.where.file), problem.where, message)
        )
    return found


class _Checks:
    """The checks of one NodePool. ``types``: indices of its instance types that have NVIDIA GPUs."""

    def __init__(
        self,
        pool: karpenter.NodePool,
        template: PoolTemplate,
        catalogue: Catalogue,
        buyable: TypeMask,
        configurations: Configurations,
    ) -> None:
        self.pool, self.machines, self.template = pool, template.machines, template
        self.catalogue, self.configurations = catalogue, configurations
        self.types = [index for index in np.flatnonzero(buyable).tolist() if catalogue.types[index].resource == GPU]

    def cuts(self) -> Iterator[Finding]:
        """What is wrong with the ways to partition GPUs that the NodePool offers."""
        unknown = {
            (key, value)
            for key in CHOICES
            for value in dict.fromkeys(one[key] for one in self.machines.layouts if key in one)
            if value not in known_names(self.configurations, key)
        }
        if self.configurations.complete:
            for key, value in sorted(unknown):
                problem = unknown_name(self.configurations, key, value)
                message = f"{problem.message} ({problem.hint}): the nodes offer no GPUs"
                yield self.finding("nodepool-unknown-configuration", "error", key, message)
        known = [one for one in self.machines.layouts if not any((key, one.get(key)) in unknown for key in CHOICES)]
        yield from self.not_offered(known)
        yield from self.ambiguous()

    def finding(self, rule: str, severity: str, key: str, message: str) -> Finding:
        """A finding about the label ``key``, where the NodePool writes it."""
        written = self.pool.spec.template.spec.requirements
        field = f"spec.template.metadata.labels.{key}"
        if key not in self.pool.spec.template.metadata.labels:
            numbers = [i for i, one in enumerate(written) if labels.normalise(one.key) == key]
            field = f"spec.template.spec.requirements[{numbers[0]}].values" if numbers else "spec.template"
        return Finding(rule, severity, Ref("NodePool", self.pool.name), load.where(self.pool, field), message)

    def not_listed(self) -> Iterator[Finding]:
        """Requirements on the labels that list no values, or several strategies: no node gets one."""
        for key in STATED:
            one = self.template.requirements.get(key)
            if one is not None and one.complement and not one.absent:
                message = f"{one} lists no value: list those that nodes may have, with operator In"
                yield self.finding("nodepool-layouts-not-listed", "error", key, message)
            elif one is not None and key not in CHOICES and len(one.values) > 1:
                message = f"{one}: the operator follows no such label, so a NodePool has one strategy"
                yield self.finding("nodepool-layouts-not-listed", "error", key, message)

    def not_offered(self, layouts: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
        """Types whose GPUs cannot be cut as these layouts say, each problem once with all layouts that have it."""
        wrong: dict[Problem, tuple[dict[str, None], dict[str, None]]] = {}
        for layout in layouts:
            for index in self.types:
                one = self.catalogue.types[index]
                for problem in cut_node(self.configurations, layout, one.gpu, one.resource_count).problems:
                    values, types = wrong.setdefault(problem, ({}, {}))
                    values[layout.get(_blamed(problem), "")] = None
                    types[one.name] = None
        for problem, (values, types) in wrong.items():
            everywhere, key = len(types) == len(self.types), _blamed(problem)
            at = f"{problem.where.file}:{problem.where.line}: " if problem.where.file else ""
            written = [value for value in values if value]
            what = f"{key}={_some(written)}" if written else key
            on = "" if everywhere else f" on {_some(list(types))}"
            message = f"{what} leaves no GPU to offer{on}: {at}{problem.message} ({problem.hint})"
            yield self.finding("nodepool-gpus-not-offered", "error" if everywhere else "warning", key, message)

    def ambiguous(self) -> Iterator[Finding]:
        """Several layouts in which the same resource is another part of a card."""
        for index in self.types:
            meant: dict[str, dict[int, Mapping[str, str]]] = {}
            for layout, outfits in zip(self.machines.layouts, self.machines.outfits, strict=True):
                one = outfits[index]
                if one.allocatable.get(one.unit):
                    meant.setdefault(one.unit, {}).setdefault(parts_of(one), layout)
            several = next(((unit, by) for unit, by in meant.items() if len(by) > 1), None)
            if several is None:
                continue
            unit, by_parts = several
            (few, large), *_, (many, small) = sorted(by_parts.items(), key=lambda item: item[0])
            key = next(key for key in STATED if large.get(key) != small.get(key))
            message = (
                f"on {self.catalogue.names[index]} a card has {few} {unit} with {key}={large.get(key, '')} and {many} "
                f"with {small.get(key, '')}: nodes are launched with the larger part for pods that ask for it, unless "
                "their nodeSelector names the other, and they take either where there is room"
            )
            yield self.finding("nodepool-gpu-ambiguous", "warning", key, message)
            return


def _blamed(problem: Problem) -> str:
    """The label that asks for it: one with a place in a file is about a configuration of mig-parted."""
    return MIG_CONFIG if problem.where.file else problem.where.field


def _some(names: list[str]) -> str:
    text = ", ".join(names[:_SHOWN])
    return f"{text} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else text
