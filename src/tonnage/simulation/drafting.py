"""The scenario that manifests lack, as a file to fill in: which Services serve models, which workloads train, and on
what.

What can be served is found by trying: a Service whose traffic the simulator would refuse is named with its reason, and
nothing about engines is said a second time here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tonnage.decisions import Finding
from tonnage.errors import InputError, Problem
from tonnage.objects import apps, core, karpenter, load
from tonnage.objects.base import KubeObject
from tonnage.objects.templates import templates
from tonnage.simulation import run, scenario
from tonnage.simulation.configure import workloads_behind

PROFILE = "traffic/azure-2023-conv.yaml"
_LEFT_OUT = "traffic-left-out"
_NAMELESS = "it has no name of its own (generateName): it runs without an end"
_NO_SERVICE = "an engine whose pods no Service selects: requests go to Services, so add one"
_STANDS = (core.Pod, apps.Deployment, apps.StatefulSet, apps.ReplicaSet, apps.DaemonSet)


class Draft(Struct, frozen=True):
    """``text``: of the file. ``services`` and ``training``: what it has; ``left``: what it leaves out, with why;
    ``warnings``: what is suspicious in the manifests."""

    text: str
    services: tuple[str, ...]
    training: tuple[str, ...]
    left: tuple[tuple[str, str], ...]
    warnings: tuple[Problem, ...] = ()


def draft(file: Path, manifests: Path, written: Path, region: str) -> Draft:
    """A scenario at ``file`` of the ``manifests``, which it names as ``written``. The profile of its traffic has to be
    at :data:`PROFILE` beside it.

    Raises InputError where the manifests cannot be read, or nothing in them would run."""
    manifest = load.read([manifests])
    nodes = any(isinstance(one, core.Node | karpenter.NodePool) for one in manifest.objects)
    head = _Head(file.absolute().parent.name, written, region, assumed=not nodes)
    bare = _set_up(head.text((), ()), file, manifest)
    left = [(key, _NO_SERVICE) for key in _without_service(bare, manifest)]

    def kept(keys: Sequence[str], *, serving: bool) -> tuple[str, ...]:
        good: list[str] = []
        for key in keys:
            try:
                made = _set_up(head.text((*good, key), ()) if serving else head.text((), (key,)), file, manifest)
            except InputError as error:
                left.append((key, error.problems[0].message.removeprefix(f'"{key}": ')))
                continue
            behind = (workloads_behind(made.cluster, one) for one in manifest.of(core.Service) if _key(one) == key)
            told = (one for one in made.configuration.findings if one.rule == _LEFT_OUT)
            why = next((_told(one) for one in told if f"{one.object.namespace}/{one.object.name}" == key), "")
            if serving and not any(behind):
                left.append((key, why or "the Service selects no workload's pods"))
            elif why:
                left.append((key, why))
            else:
                good.append(key)
        return tuple(good)

    services = kept([_key(one) for one in manifest.of(core.Service) if one.spec.selector], serving=True)
    workloads = list(_workloads(manifest.objects))
    left += [(key, why) for key, why in workloads if why]
    training = kept([key for key, why in workloads if not why], serving=False)
    text = head.text(services, training, left)
    _set_up(text, file, manifest)
    return Draft(text, services, training, tuple(left), manifest.problems)


class _Head(Struct, frozen=True):
    """What does not depend on the workloads."""

    name: str
    manifests: Path
    region: str
    assumed: bool

    def text(self, services: Sequence[str], training: Sequence[str], left: Sequence[tuple[str, str]] = ()) -> str:
        return "\n".join(self._lines(services, training, left)) + "\n"

    def _lines(
        self, services: Sequence[str], training: Sequence[str], left: Sequence[tuple[str, str]]
    ) -> Iterator[str]:
        yield "# Every field: docs/reference/scenario.md. What is a guess is marked: fill it in."
        yield "kind: Scenario"
        yield f"name: {_quoted(self.name)}"
        yield "duration: 1h"
        yield f"region: {_quoted(self.region)}"
        if services:
            yield "slo:"
            yield "  ttft: 2s # fill in"
            yield "  tpot: 50ms # fill in"
        if self.assumed:
            yield "fleet:"
            yield "  assumed: true # neither Nodes nor NodePools: nodes of any on-demand type are launched as needed"
            yield "  # nodes: # or say which there are, and leave the line above out"
            yield "  #   - instanceType: g6e.12xlarge"
            yield "  #     count: 1"
        yield from self._traffic(services)
        if training:
            yield "training:"
        for key in training:
            yield f"  - workload: {_quoted(key)}"
            yield "    work: {duration: 1h} # fill in: duration, gpuHours, or steps and step"
        if left:
            yield "# Left out:"
        yield from (f"#   {key}: {' '.join(why.split())}" for key, why in left)
        yield "policies:"
        yield f"  {scenario.AS_WRITTEN}:"
        yield f"    manifests: {_quoted(str(self.manifests))}"
        if services:
            yield "  # slo: # the same with replicas set by the slo policy, within the bounds of an HPA or ScaledObject"
            yield f"  #   manifests: {_quoted(str(self.manifests))}"
            yield "  #   scaling: slo"

    def _traffic(self, services: Sequence[str]) -> Iterator[str]:
        if services:
            yield "traffic:"
        for key in services:
            yield f"  - service: {_quoted(key)}"
            yield f"    profile: {PROFILE} # or one of your own log: tonnage trace fit"
            yield "    rate: 0.2 # fill in: this part of the profile's 5.5 requests per second"
            yield "    balancing: least-requests"


def _set_up(text: str, file: Path, manifest: load.Manifest) -> run.SetUp:
    return run.set_up(scenario.of_text(text, file), scenario.AS_WRITTEN, run.RunOptions(manifest=manifest))


def _workloads(objects: Sequence[KubeObject]) -> Iterator[tuple[str, str]]:
    """(namespace/kind/name, why it cannot have work or "") of what makes pods that end."""
    for one in objects:
        if isinstance(one, _STANDS) or next(iter(templates(one)), None) is None:
            continue
        why = "its schedule is not simulated" if one.kind == "CronJob" else ""
        yield f"{one.namespace or 'default'}/{one.kind.lower()}/{one.name}", why if one.name else _NAMELESS


def _without_service(made: run.SetUp, manifest: load.Manifest) -> list[str]:
    """Workloads with an engine, of which no Service selects the pods: namespace/name."""
    behind = {one.key for service in manifest.of(core.Service) for one in workloads_behind(made.cluster, service)}
    workloads = made.cluster.workloads.values()
    engines = [one for one in workloads if one.controller is None and one.server is not None]
    return sorted(one.key for one in engines if one.key not in behind)


def _told(finding: Finding) -> str:
    return f"{finding.message} ({finding.help})" if finding.help else finding.message


def _key(one: KubeObject) -> str:
    return f"{one.namespace or 'default'}/{one.name}"


def _quoted(text: str) -> str:
    """As a YAML scalar; plain where that is a text."""
    import yaml

    return yaml.safe_dump(text, width=10_000).removesuffix("\n...\n").strip()
