"""`tonnage controller`: the controllers on a real cluster."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli import messages
from tonnage.cli.controller_settings import ControllerSettings
from tonnage.cli.decision_table import DecisionTable
from tonnage.cli.options import is_typed
from tonnage.cli.piped import FILE
from tonnage.cli.printed import Printed
from tonnage.control.choices import (
    BACKENDS,
    CONTROLLERS,
    KARPENTER,
    MODES,
    NODE_CLAIMS,
    NODES,
    OBSERVE,
    PARTITIONING,
    PROVISIONING,
    STATIC,
)
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.control.idle import Idle
    from tonnage.kube.leases import Elector
    from tonnage.kube.verbs import Client
    from tonnage.live.backends import Backend
    from tonnage.live.manager import Manager
    from tonnage.live.world import ClusterWorld
    from tonnage.provisioning.catalogue import Catalogue

EVENT_WRITERS = 16
READY_S = 60.0
PATIENCE_S = 5.0
"""A pass waits this long for lists that fail."""


@click.command()
@click.option("--only", type=click.Choice(CONTROLLERS), multiple=True, help="Run this one; repeatable. [default: all]")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=OBSERVE,
    show_default=True,
    help="observe decides and writes nothing; apply carries it out.",
)
@click.option("--once", is_flag=True, help="Decide once on the current state, print it, and exit.")
@click.option("--placement", metavar="NAME", default="", help="The placement policy. [default: tonnage]")
@click.option(
    "--preemption/--no-preemption",
    default=True,
    show_default=True,
    help="Pods preempt pods of lower priority.",
)
@click.option(
    "--defragmentation/--no-defragmentation", default=False, show_default=True, help="Pods are moved to make room."
)
@click.option(
    "--partitioning",
    type=click.Choice(PARTITIONING),
    default=STATIC,
    show_default=True,
    help="relayout: MIG layouts are changed when pods wait for an instance that no GPU offers.",
)
@click.option(
    "--provisioning",
    type=click.Choice(PROVISIONING),
    default=KARPENTER,
    show_default=True,
    help="optimal: the cheapest set of nodes, instead of what Karpenter would launch; "
    "cluster-autoscaler: node groups (--aws-cluster) by its default flags.",
)
@click.option(
    "--spot-to-spot/--no-spot-to-spot",
    default=False,
    show_default=True,
    help="Replace spot nodes by cheaper spot nodes (Karpenter's SpotToSpotConsolidation).",
)
@click.option(
    "--rebalance/--no-rebalance",
    default=False,
    show_default=True,
    help="Pods move off spot nodes with a rebalance recommendation.",
)
@click.option(
    "--gpu-operator-namespace",
    metavar="NAME",
    default="gpu-operator",
    show_default=True,
    help="Where the GPU operator has its ConfigMaps. Empty: they are not read.",
)
@click.option("--prometheus", metavar="URL", default="", help="Where the replicas controller reads metrics.")
@click.option(
    "--prometheus-token-file", metavar="FILE", default="", help="A bearer token for it, read again each time."
)
@click.option(
    "--nodes-backend",
    type=click.Choice(BACKENDS),
    default=NODE_CLAIMS,
    show_default=True,
    help="How nodes are launched: NodeClaims for Karpenter, AWS Auto Scaling groups, or not at all, only reported.",
)
@click.option("--aws-cluster", metavar="NAME", default="", help="The EKS cluster whose node groups are sized.")
@click.option("--aws-region", metavar="REGION", default="", help="[default: from the AWS configuration]")
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Act only while holding a Lease. [default: in apply]"
)
@click.option("--namespace-of-lease", metavar="NAME", default="", help="[default: the pod's own, else kube-system]")
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics here.")
@click.option("--prices", type=FILE, metavar="FILE", help="CSV or YAML prices on top of the bundled.")
@click.option("--kubeconfig", metavar="FILE", default="", help="[default: as kubectl, then the pod's own account]")
@click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig. [default: the current one]")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "table", "json", "yaml"]),
    default=None,
    help="text, json and yaml: each decision as it is made; table: those of --once. [default: text; with --once table]",
)
@click.option("-q", "--quiet", is_flag=True, help="Only decisions, no notes.")
@click.option(
    "--speed", type=float, default=1.0, hidden=True, help="The speed of the `tonnage up` behind --prometheus."
)
def controller(**options: Any) -> None:
    """Run the controllers on a cluster.

    The scheduler places pods with schedulerName: tonnage. The replicas controller sets the replicas of Deployments
    annotated tonnage.dev/autoscale: slo. The nodes controller launches and terminates nodes of NodePools annotated
    tonnage.dev/buys: "true", or those of the Auto Scaling groups of --aws-cluster. Nothing else is touched, and in
    observe mode nothing at all.

    \b
    tonnage controller --once --context staging
    tonnage controller --only scheduler --mode apply
    """
    if options["form"] == "table" and not options["once"] and not is_typed("form"):
        options["form"] = None  # what a config file says of all commands
    settings = ControllerSettings(**options)
    settings.check()
    with ExitStack() as stack:
        run = _Run(settings, stack)
        sys.exit(run.go())


class _Run:
    """One process."""

    def __init__(self, settings: ControllerSettings, stack: ExitStack) -> None:
        from tonnage.kube.http import open_cluster
        from tonnage.live.healthz import Health, HealthServer, Metrics
        from tonnage.live.idling import IdleReasons

        self.settings = settings
        self.health, self.metrics = Health(), Metrics()
        self.client: Client = open_cluster(settings.kubeconfig, settings.context, on_error=self.metrics.api_error)
        stack.callback(self.client.transport.close)
        self.stop = threading.Event()
        self.electors: dict[str, Elector] = {}
        self.table = DecisionTable() if settings.output == "table" else None
        self.standing = IdleReasons(self._idle)
        self.health.idle = self.standing.listed
        self.world, self.manager = self._assemble(stack)
        if settings.listen:
            server = HealthServer(settings.listen, self.health, self.metrics)
            stack.callback(server.close)

    def _assemble(self, stack: ExitStack) -> tuple[ClusterWorld, Manager]:
        import random

        from tonnage.kube.informer import Informers
        from tonnage.live import assembly
        from tonnage.live.cutting import Cutter
        from tonnage.live.fencing import Fenced
        from tonnage.live.manager import Manager
        from tonnage.live.watching import watch_world
        from tonnage.provisioning.catalogue import Catalogue

        settings = self.settings
        catalogue = Catalogue.load(settings.prices)
        backend = self._backend(stack, catalogue)
        if settings.elects:
            backend = replace(backend, effects=Fenced(backend.effects, self._leads))
        world = backend.world(catalogue, self._measure(stack), Cutter(namespace=settings.gpu_operator_namespace))
        stack.callback(world.close)
        informers = Informers(self.client, time.time, random.Random())
        stack.callback(informers.stop)
        required = watch_world(informers, world)
        controllers = assembly.controllers(
            settings.controllers,
            world,
            catalogue,
            self._elector(stack, informers.wake),
            policy=settings.policy,
            pools=backend.pools,
            not_needed=backend.not_needed,
            standing=self.standing,
        )
        printed = Printed(settings.output, self.metrics)
        told = self.table or printed
        manager = Manager(world, informers, required, controllers, told, speed=settings.speed, count=printed.counted)
        self.health.add_alive(manager.dead)
        self.health.add_ready(manager.degraded)
        self.health.add_ready(world.degraded)
        self.metrics.watch_informers(informers)
        return world, manager

    def _backend(self, stack: ExitStack, catalogue: Catalogue) -> Backend:
        from tonnage.live.backends import Backend, aws_sizing

        settings, clock, sizing = self.settings, _clock(self.settings), None
        if settings.aws_cluster and NODES in settings.controllers:
            sizing = aws_sizing(settings.aws_cluster, settings.aws_region, catalogue, clock)
            stack.callback(sizing.groups.close)
            sizing.groups.start()
            self.health.add_ready(sizing.degraded)
            for note in sizing.notes():
                messages.note(note, settings.quiet)
        name = settings.nodes_backend if settings.applies else OBSERVE
        return Backend.of(name, self.client, clock, self._recorder(stack), sizing=sizing)

    def _recorder(self, stack: ExitStack) -> Any:
        from tonnage.kube.events import EventRecorder
        from tonnage.live.recording import Events, Silent

        if not self.settings.applies:
            return Silent()
        recorder = EventRecorder(self.client, "tonnage", time.time, writers=EVENT_WRITERS)
        stack.callback(recorder.close)
        self.metrics.watch_events(lambda: recorder.dropped)
        return Events(recorder)

    def _measure(self, stack: ExitStack) -> Callable[[str, int], Any]:
        from tonnage.live.world import no_metrics

        ask: Callable[[str, int], Any] = no_metrics
        if self.settings.prometheus:
            from tonnage.live.prometheus import Prometheus

            prometheus = Prometheus(self.settings.prometheus, token_file=self.settings.prometheus_token_file)
            stack.callback(prometheus.close)
            ask = prometheus.measure
        wrong: dict[str, str] = {}
        self.health.add_ready(lambda: dict(wrong))

        def measure(query: str, at_ns: int) -> Any:
            """The answer; a query without one is "no data" to its decision, and told by ``/readyz``."""
            try:
                answer = ask(query, at_ns)
            except InputError as error:
                wrong["replicas (metrics)"] = str(error.problems[0])
                raise
            wrong.clear()
            return answer

        return measure

    def _elector(self, stack: ExitStack, begins: Callable[[], object]) -> Callable[[str], Any]:
        from tonnage.live import assembly

        def make(name: str) -> Any:
            if not self.settings.elects:
                return None
            elector = assembly.elector(self.client, name, self.settings.lease_namespace, time.time, begins)
            self.metrics.watch_leader(f"tonnage-{name}", elector.leading)
            self.electors[name] = elector
            elector.start()
            stack.callback(elector.stop)
            return elector

        return make

    def _leads(self, controller: str) -> bool:
        elector = self.electors.get(controller)
        return elector is None or elector.leading()

    def _idle(self, controller: str, why: Idle) -> None:
        """Say why a controller does nothing: an error where something was asked for."""
        if why.asked:
            messages.error(f"{controller}: {why}")
        else:
            messages.note(f"{controller}: {why}", self.settings.quiet)

    def go(self) -> int:
        """Run until SIGTERM or SIGINT; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        settings = self.settings
        what = ", ".join(settings.controllers)
        messages.note(
            f"{what}: {settings.mode} mode" + ("" if settings.applies else ", nothing is written"), settings.quiet
        )
        if settings.once:
            return self._once()
        import numpy.ma  # noqa: F401 (np.unique imports it when it is first called: not while pods wait for that)

        from tonnage.live.pauses import ShortPauses

        with ShortPauses():
            self.manager.run(self.stop)
        return 0

    def _once(self) -> int:
        """Decide once. A controller that cannot look is left out, and said so: then the exit code is 1, and where what
        was asked for cannot be done."""
        begun, manager = time.monotonic(), self.manager
        while waiting := [one for one in manager.controllers if not manager.informed(one)]:
            wrong = manager.degraded()
            wrong.pop("start", None)
            if self.stop.is_set() or time.monotonic() > begun + (PATIENCE_S if wrong else READY_S):
                for name, why in (wrong or {one.name: "the first lists have not arrived" for one in waiting}).items():
                    messages.error(f"{name}: {why}")
                break
            manager.informers.pump(0.2)
        manager.start()
        manager.run_all()
        if self.table is not None:
            self.table.show(self.settings.quiet)
        return 1 if waiting or self.standing.asked() else 0


def _clock(settings: ControllerSettings) -> Any:
    """The machine's own, or that of simulated machines in another process."""
    from tonnage.kube.clock import WallClock

    if settings.speed == 1:
        return WallClock()
    from tonnage.hollow.running import ToldClock

    return ToldClock(settings.prometheus)
