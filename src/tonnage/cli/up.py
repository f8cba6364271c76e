"""`tonnage up`: a scenario's cluster behind a Kubernetes API on this machine, or its machines on a real API server."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli import files, messages, terminal
from tonnage.cli.piped import SCENARIO
from tonnage.control.choices import CONTROLLERS
from tonnage.errors import InputError
from tonnage.units import NS_PER_S, usd

if TYPE_CHECKING:
    from tonnage.hollow.up import Up
    from tonnage.kube.verbs import Client
    from tonnage.machines.objects import Workload
    from tonnage.simulation.scenario import Scenario

STATUS_S = 1.0
CHILD = "tonnage.child"
"""Under which the context keeps the words after ``--``."""


class WithChild(click.Command):
    """A command that may be followed by ``--`` and a command of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[CHILD] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(cls=WithChild)
@click.argument("scenario", type=SCENARIO, default=Path("examples/traffic-surge"))
@click.option("--policy", metavar="NAME", help="One of the scenario's policies. [default: as the scenario says]")
@click.option("--speed", type=float, default=1.0, show_default=True, help="Simulated seconds per real second.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of the API on 127.0.0.1. [default: any free]")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Written; with --on, read.")
@click.option("--on", "context", metavar="CONTEXT", help="Join the machines to this context's API server instead.")
@click.option("--bare", is_flag=True, help="With --on: no kube-controller-manager runs there; do its part as well.")
@click.option("--prometheus-port", type=click.IntRange(0, 65535), help="Serve /metrics and /api/v1/query on loopback.")
@click.option("--only", type=click.Choice(CONTROLLERS), multiple=True, help="Run this one; repeatable. [default: all]")
@click.option("--no-controllers", is_flag=True, help="Run no controllers: yours decide.")
@click.option("--for", "for_s", type=float, metavar="SECONDS", help="Exit after this many real seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of arrivals, surges and jitter.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the path of the kubeconfig.")
def up(scenario: Path, **options: Any) -> None:
    """Run SCENARIO's cluster until interrupted: a Kubernetes API on localhost over a simulated GPU fleet.

    kubectl works on it; the controllers place, scale, launch and terminate. With --on the same simulated machines join
    a real API server, where whatever runs there works on them.

    With -- COMMAND, such as a shell, the command runs with KUBECONFIG set, and all ends when it does, with its exit
    code.

    \b
    tonnage up examples/traffic-surge --speed 10 -- bash
    tonnage up my-scenario/ -- kubectl get pods -A
    """
    from tonnage.simulation import scenario as scenarios

    for name, value in (("--speed", options["speed"]), ("--for", options["for_s"])):
        if value is not None and not 0 < value < math.inf:
            raise click.BadParameter(f"{value}, expected a number above 0", param_hint=name)
    if options["bare"] and not options["context"]:
        raise click.BadParameter("it is for the API server of a context, and none is given", param_hint="--bare")
    child = click.get_current_context().meta[CHILD]
    if child and shutil.which(child[0]) is None:
        raise InputError.at(f"no such program: {child[0]}", field="--", hint="name one to run, such as bash")
    loaded = scenarios.load(files.existing(scenario))
    sys.exit(_run(loaded, options, child))


def _run(loaded: Scenario, options: dict[str, Any], child: Sequence[str]) -> int:
    from tonnage.apiserver import kubeconfig
    from tonnage.cli.printed import Printed
    from tonnage.hollow.up import Up, UpSettings
    from tonnage.simulation.run import RunOptions, set_up

    quiet = options["quiet"]
    made = set_up(loaded, options["policy"] or loaded.default_policy, RunOptions(seed=options["seed"]))
    path = _kubeconfig_path(loaded, options)
    client = _client(options)
    chosen = () if options["no_controllers"] else options["only"] or CONTROLLERS
    port, speed, prometheus = options["port"], options["speed"], options["prometheus_port"]
    settings = UpSettings(port, speed, chosen, client, prometheus, bare=options["bare"])
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    messages.note("starting: the clock waits until the fleet serves", quiet)
    code = 0
    with Up(made, settings, Printed("none" if quiet or child else "text")) as running:
        config = _write_kubeconfig(path, running)
        url = running.server.url if running.server is not None else ""
        told: set[str] = set()
        _tell_stopped(running, told, quiet)
        example = next(iter(made.cluster.workloads.values()), None)
        _welcome(running, config, example, quiet, child)
        if child:
            code = play_child(child, config or options["kubeconfig"], stop, options["for_s"])
        else:
            _wait(stop, running, options["for_s"], told, quiet)
        bill = running.bill()
        state = running.state()
    if config is not None and running.server is not None:
        kubeconfig.remove(config, url)
    hours = state.now_ns / NS_PER_S / 3600
    messages.note(f"{hours:.2f} h simulated, {usd(bill.total_micro_usd):,.2f} USD spent on nodes", quiet)
    return code


def play_child(child: Sequence[str], config: Path | None, stop: threading.Event, for_s: float | None) -> int:
    """Run the command to its end and return its exit code. It is told to end when we are, or after ``for_s`` seconds.

    An interrupt from the terminal reaches it too, and is its own: a shell goes on."""
    environment = {**os.environ, **({"KUBECONFIG": str(config)} if config is not None else {})}
    signal.signal(signal.SIGINT, lambda *_: None)  # a handler, unlike what is ignored, does not pass to the child
    running = subprocess.Popen(child, env=environment)
    ends = time.monotonic() + for_s if for_s else math.inf
    while running.poll() is None and not stop.is_set() and time.monotonic() < ends:
        with suppress(subprocess.TimeoutExpired):
            running.wait(min(STATUS_S / 10, max(0.0, ends - time.monotonic())))
    if running.poll() is None:
        running.terminate()
    code = running.wait()
    return code if code >= 0 else 128 - code


def _client(options: dict[str, Any]) -> Client | None:
    if not options["context"]:
        return None
    from tonnage.kube.http import open_cluster

    return open_cluster(str(options["kubeconfig"] or ""), options["context"])


def _kubeconfig_path(loaded: Scenario, options: dict[str, Any]) -> Path:
    """Where to write. Raises InputError for a file with other clusters in it: that one is never replaced."""
    from tonnage.apiserver import kubeconfig

    path: Path = options["kubeconfig"] or Path.home() / ".kube" / f"tonnage-{loaded.spec.name}.yaml"
    if not options["context"] and not kubeconfig.is_ours(path):
        hint = "it is not replaced; give another --kubeconfig"
        raise InputError.at("this file is not one that tonnage up has written", file=str(path), hint=hint)
    return path


def _write_kubeconfig(path: Path, running: Up) -> Path | None:
    if running.server is None:
        return None
    from tonnage.apiserver import kubeconfig

    try:
        return kubeconfig.write(path, running.server.url)
    except OSError as error:
        hint = "give another --kubeconfig"
        raise InputError.at(f"cannot be written: {error.strerror}", file=str(path), hint=hint) from None


def _welcome(running: Up, config: Path | None, example: Workload | None, quiet: bool, child: Sequence[str]) -> None:
    """What there is and what to type. ``example``: a workload to speak of; ``child``: what runs instead of waiting."""
    if quiet or child:
        if config is not None and not child:
            terminal.echo(str(config))
        return
    namespace = example.namespace if example is not None else "default"
    scaled = f"deployment -n {namespace} {example.name if example is not None else 'NAME'}"
    state = running.state()
    gpus = f"{state.nodes_ready} nodes, {state.pods_running} pods running"
    if config is None:
        terminal.echo(f"{gpus} on the API server. Interrupt to exit; the nodes are then deleted.")
        return
    terminal.echo(f"""{gpus}.

  export KUBECONFIG={config}

  kubectl get nodes -o wide                           the simulated GPU fleet
  kubectl get pods -A -w                              what the controllers do
  kubectl describe pod -n {namespace} NAME{" " * max(1, 23 - len(namespace))}why a pod is where it is, or waits
  kubectl scale {scaled} --replicas 9
  kubectl drain NODE --ignore-daemonsets              the pods move
  kubectl get events -A --sort-by .lastTimestamp
""")
    if running.prometheus_url:
        terminal.echo(f"Prometheus: {running.prometheus_url}\n")
    terminal.echo("Decisions follow. Interrupt to exit; nothing is kept.\n")


def _tell_stopped(running: Up, told: set[str], quiet: bool) -> None:
    """Say what does not run and was not said before."""
    from tonnage.cli import not_running, output

    for one in () if quiet else running.not_running():
        key = f"{one.object} {one.rule} {one.cause}"
        if key not in told:
            told.add(key)
            not_running.show_one(one, output.console())


def _wait(stop: threading.Event, running: Up, for_s: float | None, stopped: set[str], quiet: bool) -> None:
    """Until interrupted, or for this many seconds; what goes wrong meanwhile, or does not run, is said once."""
    ends = time.monotonic() + for_s if for_s else math.inf
    told: dict[str, str] = {}
    while not stop.wait(min(STATUS_S, max(0.0, ends - time.monotonic()))) and time.monotonic() < ends:
        _tell_stopped(running, stopped, quiet)
        for name, why in running.state().problems.items():
            if told.get(name) != why:
                told[name] = why
                messages.error(f"{name}: {why}")
