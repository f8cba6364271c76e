"""`tonnage controller`: the controllers on a real cluster."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli import messages
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.cluster.client.verbs import Client
    from tonnage.cluster.health import Metrics
    from tonnage.cluster.manager import Manager
    from tonnage.cluster.world import ClusterWorld
    from tonnage.decisions import Decision, Outcome

CONTROLLERS = ("scheduler", "replicas", "nodes")
BACKENDS = ("nodeclaims", "aws", "report")
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for on the command line."""

    only: tuple[str, ...]
    mode: str
    listen: str
    prometheus: str
    prometheus_token_file: str
    leader_elect: bool | None
    namespace_of_lease: str
    nodes_backend: str
    aws_cluster: str
    aws_region: str
    kubeconfig: str
    context: str
    form: str
    once: bool
    prices: Path | None
    quiet: bool

    @property
    def applies(self) -> bool:
        return self.mode == "apply"

    @property
    def elects(self) -> bool:
        """A lease is a write: observe mode takes none."""
        return self.applies and self.leader_elect is not False


@click.command()
@click.option("--only", type=click.Choice(CONTROLLERS), multiple=True, help="Run this one; repeatable. [default: all]")
@click.option(
    "--mode",
    type=click.Choice(["observe", "apply"]),
    default="observe",
    show_default=True,
    help="observe decides and writes nothing; apply carries it out.",
)
@click.option("--once", is_flag=True, help="Decide once on what is there now, print it, and end.")
@click.option("--prometheus", metavar="URL", default="", help="Where the replicas controller reads metrics.")
@click.option("--prometheus-token-file", metavar="FILE", default="", help="A bearer token for it, read anew each time.")
@click.option(
    "--nodes-backend",
    type=click.Choice(BACKENDS),
    default="nodeclaims",
    show_default=True,
    help="How nodes are bought: NodeClaims for Karpenter, AWS Auto Scaling groups, or not at all, only reported.",
)
@click.option("--aws-cluster", metavar="NAME", default="", help="The EKS cluster whose node groups are sized.")
@click.option("--aws-region", metavar="REGION", default="", help="[default: as the AWS tools have it]")
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Act only while holding a Lease. [default: in apply]"
)
@click.option("--namespace-of-lease", metavar="NAME", default="", help="[default: the pod's own, else kube-system]")
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics here.")
@click.option(
    "--prices", type=click.Path(path_type=Path), metavar="FILE", help="CSV or YAML prices on top of the bundled."
)
@click.option("--kubeconfig", metavar="FILE", default="", help="[default: as kubectl, then the pod's own account]")
@click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig. [default: the current one]")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Only decisions, no notes.")
def controller(**options: Any) -> None:
    """Run the controllers on a cluster.

    The scheduler places pods with schedulerName: tonnage. The replicas controller sets the replicas of Deployments
    annotated tonnage.dev/autoscale: slo. The nodes controller buys and returns nodes of NodePools annotated
    tonnage.dev/buys: "true". Nothing else is touched, and in observe mode nothing at all.
    """
    settings = Settings(**options)
    _check(settings)
    with ExitStack() as stack:
        run = _Run(settings, stack)
        sys.exit(run.go())


def _check(settings: Settings) -> None:
    if settings.nodes_backend == "aws" and not settings.aws_cluster:
        raise InputError.at("--nodes-backend aws needs --aws-cluster", hint="the name of the EKS cluster")
    if settings.once and settings.applies:
        raise InputError.at("--once only looks", hint="leave out --mode apply")


class _Run:
    """One process."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        from tonnage.cluster.client.http import open_cluster
        from tonnage.cluster.health import Health, HealthServer, Metrics

        self.settings = settings
        self.health, self.metrics = Health(), Metrics()
        self.client: Client = open_cluster(settings.kubeconfig, settings.context, on_error=self.metrics.api_error)
        stack.callback(self.client.transport.close)
        self.stop = threading.Event()
        self.world, self.manager = self._assemble(stack)
        if settings.listen:
            server = HealthServer(settings.listen, self.health, self.metrics)
            stack.callback(server.close)

    def _assemble(self, stack: ExitStack) -> tuple[ClusterWorld, Manager]:
        import random

        from tonnage.cluster import assembly
        from tonnage.cluster.client.informer import Informers
        from tonnage.cluster.clock import WallClock
        from tonnage.cluster.manager import Manager
        from tonnage.cluster.watching import watch_world
        from tonnage.provisioning.catalogue import Catalogue

        settings = self.settings
        catalogue = Catalogue.load(settings.prices)
        backend = _backend(settings, self.client, WallClock(), self._recorder(stack))
        world = backend.world(catalogue, self._measure(stack))
        stack.callback(world.close)
        informers = Informers(self.client, time.time, random.Random())
        stack.callback(informers.stop)
        required = watch_world(informers, world)
        names = settings.only or CONTROLLERS
        controllers = assembly.controllers(names, world, catalogue, self._elector(stack), pools=backend.pools)
        manager = Manager(world, informers, required, controllers, Printed(settings.form, self.metrics))
        self.health.add_ready(manager.degraded)
        self.metrics.watch_informers(informers)
        return world, manager

    def _recorder(self, stack: ExitStack) -> Any:
        from tonnage.cluster.client.events import EventRecorder
        from tonnage.cluster.recording import Events, Silent

        if not self.settings.applies:
            return Silent()
        recorder = EventRecorder(self.client, "tonnage", time.time)
        stack.callback(recorder.close)
        self.metrics.watch_events(lambda: recorder.dropped)
        return Events(recorder)

    def _measure(self, stack: ExitStack) -> Callable[[str, int], Any]:
        from tonnage.cluster.world import no_metrics

        if not self.settings.prometheus:
            return no_metrics
        from tonnage.cluster.prometheus import Prometheus

        prometheus = Prometheus(self.settings.prometheus, token_file=self.settings.prometheus_token_file)
        stack.callback(prometheus.close)
        return prometheus.measure

    def _elector(self, stack: ExitStack) -> Callable[[str], Any]:
        from tonnage.cluster import assembly

        def make(name: str) -> Any:
            if not self.settings.elects:
                return None
            namespace = self.settings.namespace_of_lease or _own_namespace()
            elector = assembly.elector(self.client, name, namespace, time.time)
            self.metrics.watch_leader(f"tonnage-{name}", elector.leading)
            elector.start()
            stack.callback(elector.stop)
            return elector

        return make

    def go(self) -> int:
        """Run until SIGTERM or SIGINT; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        settings = self.settings
        what = ", ".join(settings.only or CONTROLLERS)
        messages.note(
            f"{what}: {settings.mode} mode" + ("" if settings.applies else ", nothing is written"), settings.quiet
        )
        if settings.once:
            return self._once()
        self.manager.run(self.stop)
        return 0

    def _once(self) -> int:
        deadline = time.monotonic() + READY_S
        manager = self.manager
        while not all(informer.synced for informer in manager.required):
            if time.monotonic() > deadline:
                for name, why in manager.degraded().items():
                    messages.error(f"{name}: {why}")
                return 1
            manager.informers.pump(0.2)
        manager.informers.pump(0.5)  # kinds that are optional
        manager.start()
        manager.run_all()
        return 0


def _backend(settings: Settings, client: Client, clock: Any, recorder: Any) -> Any:
    from tonnage.cluster.backends import Backend

    return Backend.of(
        settings.nodes_backend if settings.applies else "observe",
        client,
        clock,
        recorder,
        aws_cluster=settings.aws_cluster,
        aws_region=settings.aws_region,
    )


def _own_namespace() -> str:
    """The namespace of the pod that this runs in; kube-system elsewhere."""
    file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else "kube-system"


class Printed:
    """Prints decisions, one a line, and counts them."""

    def __init__(self, form: str, metrics: Metrics | None = None) -> None:
        self.form, self.metrics = form, metrics

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """One line: in text for people, in JSON for programs."""
        import msgspec

        from tonnage.decisions import Refused, Stale, Wait

        kind = type(outcome).__name__
        if self.metrics is not None:
            self.metrics.decided(loop, type(decision).__name__, kind.lower())
        if self.form == "none":
            return
        why = outcome.why if isinstance(outcome, Refused) else outcome.changed if isinstance(outcome, Stale) else ""
        if self.form == "json":
            became = {"type": kind, "why": why}
            line = {
                "time": time.time(),
                "controller": controller,
                "loop": loop,
                "decision": decision,
                "outcome": became,
            }
            click.echo(msgspec.json.encode(line).decode())
            return
        stamp = time.strftime("%H:%M:%S")
        outcome_text = f"  [{kind}: {why}]" if why else "" if isinstance(decision, Wait) else f"  [{kind}]"
        click.echo(f"{stamp}  {loop:<12} {decision.summary()}{outcome_text}  {decision.reason.text()}")

    def failed(self, loop: str, error: Exception) -> None:
        """A fault, in one line."""
        messages.error(f"{loop}: {type(error).__name__}: {error}")

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        """Count it."""
        if taken and self.metrics is not None:
            self.metrics.applied(loop, seconds)
