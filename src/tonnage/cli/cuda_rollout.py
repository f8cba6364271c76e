"""`tonnage cuda stack` and `tonnage cuda rollout`: the versions of the GPU stack, and a new driver in waves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, lines, messages, terminal
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.cuda_fit.rollout import RolloutSettings, RolloutTurn, RolloutView, Waves
    from tonnage.cuda_fit.users import DriverUser
    from tonnage.live.driver_rollout import ClusterRollout
    from tonnage.objects.load import Manifest

STACK_SCHEMA, ROLLOUT_SCHEMA = "tonnage.dev/cuda-stack/v1", "tonnage.dev/cuda-rollout/v1"
PAUSE_S = 5.0
"""Between two looks at the cluster."""
_POSITIVE = click.IntRange(1)


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, type=FILE)
@read_live()
@OUTPUT
def stack(paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str, output: str) -> None:
    """The versions of driver, container toolkit, device plugin and the operator's other parts on a cluster's nodes.

    Found are nodes that differ, versions that are not of the operator's release, nodes whose driver is not the one that
    the ClusterPolicy names, and labels of CUDA that are older than the driver. Exit code 1 where anything is found.

    \b
    tonnage cuda stack --context prod
    kubectl get nodes,pods,clusterpolicies -A -o yaml | tonnage cuda stack -
    """
    from tonnage.cuda_fit import stack as stacks
    from tonnage.objects import core
    from tonnage.objects.gpu_operator import ClusterPolicy

    manifest = _read(paths, context, kubeconfig, namespace)
    nodes, policies = manifest.of(core.Node), manifest.of(ClusterPolicy)
    found = stacks.stack_of(nodes, manifest.of(core.Pod))
    if not found.versions:
        hint = "expected nodes with labels of GPU feature discovery, or the operator's pods"
        raise InputError.at("nothing of a GPU stack in it", file=", ".join(map(str, paths)), hint=hint)
    driver = policies[0].spec.driver.version if len(policies) == 1 else ""
    wrong = stacks.findings(found, nodes, driver)
    if output != "table":
        made = {
            "schema": STACK_SCHEMA,
            "operator": found.operator or None,
            "components": found.versions,
            "findings": [msgspec.structs.asdict(one) for one in wrong],
        }
        answers.show(msgspec.json.encode(made, order="deterministic"), output)
    else:
        for component, versions in found.versions.items():
            for version, on in versions.items():
                terminal.echo(f"{component} {version}" + (f": {_count(len(on), 'node')}" if on else ""))
        terminal.echo()
        _say([f"{one.kind}: {one.message}" for one in wrong] or ["nothing differs"])
    if wrong:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("paths", metavar="[FILES]...", nargs=-1, type=FILE)
@read_live()
@click.option("--to", required=True, metavar="VERSION", help="The driver that nodes are to have.")
@click.option("--first", type=_POSITIVE, default=1, show_default=True, metavar="N", help="Nodes in the first wave.")
@click.option("--wave", type=_POSITIVE, default=4, show_default=True, metavar="N", help="Nodes in each later wave.")
@click.option("--max-unavailable", type=_POSITIVE, metavar="N", help="GPU nodes cordoned or not Ready at most.")
@click.option("--allow-breaking", is_flag=True, help="Also nodes with pods that the new driver does not run.")
@click.option("--allow-pending", is_flag=True, help="Also nodes whose pods find no other node meanwhile.")
@click.option("--drain-timeout", type=_POSITIVE, default=1800, show_default=True, metavar="SECONDS", help="Of a node.")
@click.option(
    "--upgrade-timeout", type=_POSITIVE, default=1800, show_default=True, metavar="SECONDS", help="Of a drained node."
)
@click.option("--apply", "doing", is_flag=True, help="Carry it out, until it is done or stops; else it is only said.")
@click.option("--retry", is_flag=True, help="With --apply: begin again with the nodes that have failed.")
@click.option(
    "--abandon",
    is_flag=True,
    help="With --apply: take back its labels and cordons. Nodes stay held where the operator would upgrade them.",
)
@OUTPUT
def rollout(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    to: str,
    first: int,
    wave: int,
    max_unavailable: int | None,
    allow_breaking: bool,
    allow_pending: bool,
    drain_timeout: int,
    upgrade_timeout: int,
    doing: bool,
    retry: bool,
    abandon: bool,
    output: str,
) -> None:
    """Bring a new driver to the nodes of a cluster in waves, through the GPU operator.

    The nodes of a wave are cordoned, drained as PodDisruptionBudgets allow, left to the operator, and validated: the
    driver, the number of GPUs, their health. A node that fails stops the rollout. What has been done stands in labels
    of the nodes: the same command goes on where it was. Without --apply nothing is changed. Exit code 1 where nodes
    are left without the driver.

    \b
    tonnage cuda rollout --context prod --to 580.105.08
    tonnage cuda rollout --context prod --to 580.105.08 --wave 8 --apply
    """
    from tonnage.cuda_fit import rollout as rollouts
    from tonnage.objects import core
    from tonnage.objects.gpu_operator import ClusterPolicy

    settings = rollouts.RolloutSettings(
        wave=wave,
        first=first,
        unavailable=max_unavailable,
        breaking=allow_breaking,
        pending=allow_pending,
        drain_s=drain_timeout,
        upgrade_s=upgrade_timeout,
    )
    if doing:
        if paths or not (context or kubeconfig):
            raise click.UsageError("--apply acts on a cluster: give --context or --kubeconfig, and no FILES.")
        _carry_out(context, kubeconfig, to, settings, retry=retry, abandon=abandon)
        return
    if retry or abandon:
        raise click.UsageError("--retry and --abandon change the cluster: give --apply too.")
    from tonnage.live.driver_rollout import seen

    manifest = _read(paths, context, kubeconfig, namespace)
    found = seen(manifest.of(core.Node), manifest.of(core.Pod), manifest.of(ClusterPolicy))
    rollouts.check(found, to)
    plan = rollouts.waves(found, to, settings)
    outside = rollouts.outsiders(found, [step.node for each in plan.waves for step in each])
    if output != "table":
        answers.show(_json(to, plan, outside), output)
    else:
        _print(to, plan, outside)
    if plan.left:
        raise click.exceptions.Exit(1)


def _read(paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str) -> Manifest:
    from tonnage.objects import load

    manifest = load.read(given(paths, context, kubeconfig, namespace))
    messages.warnings(manifest.problems)
    return manifest


def _json(to: str, plan: Waves, outside: list[DriverUser]) -> bytes:
    made: dict[str, Any] = {
        "schema": ROLLOUT_SCHEMA,
        "to": to,
        "waves": [
            [
                {
                    "node": step.node,
                    "from": step.before.written or None,
                    "moves": step.moves,
                    "stranded": step.stranded,
                    "breaks": [{"pod": pod, "reason": why} for pod, why in step.breaks],
                }
                for step in wave
            ]
            for wave in plan.waves
        ],
        "left": [{"node": node, "reason": why} for node, why in plan.left],
        "not_evictable": [{"pod": one.key, "node": one.node, "reason": one.why} for one in outside],
    }
    return msgspec.json.encode(made, order="deterministic")


def _print(to: str, plan: Waves, outside: list[DriverUser]) -> None:
    nodes = sum(map(len, plan.waves))
    said = [f"Rollout to {to}: {_count(nodes, 'node')} in {_count(len(plan.waves), 'wave')}"]
    for number, wave in enumerate(plan.waves, 1):
        moves = sum(len(step.moves) for step in wave)
        names = ", ".join(step.node for step in wave)
        said.append(f"wave {number}: {names}; {_count(moves, 'pod')} with GPUs evicted")
        for step in wave:
            said += [f"  breaks {pod} on {step.node}: {why}" for pod, why in step.breaks]
            said += [f"  {pod} is pending meanwhile: no other node with free GPUs runs it" for pod in step.stranded]
    said += [f"left: {node}: {why}" for node, why in plan.left]
    said += [f"not evictable, and it uses the driver: {one.key} on {one.node}: {one.why}" for one in outside]
    _say([*said, "nothing is changed without --apply"])


def _carry_out(
    context: str, kubeconfig: str, to: str, settings: RolloutSettings, *, retry: bool, abandon: bool
) -> None:
    from tonnage.cuda_fit import rollout as rollouts
    from tonnage.kube.http import open_cluster
    from tonnage.kube.transport import ClientError
    from tonnage.live.driver_rollout import ClusterRollout

    client = open_cluster(kubeconfig, context)
    try:
        cluster = ClusterRollout(client)
        found = cluster.read()
        if abandon:
            give_up(cluster, found)
            return
        if retry:
            _say(cluster.edit(rollouts.retry(found, int(time.time()))))
        end = follow(cluster, to, settings)
    except ClientError as error:
        raise InputError.at(f"the cluster cannot be read: {error}", field="--context") from error
    finally:
        client.transport.close()
    _say([*(f"stopped: {line}" for line in end.waits), *(f"left: {node}: {why}" for node, why in end.left)])
    if end.state != rollouts.DONE or end.left:
        raise click.exceptions.Exit(1)
    terminal.echo(f"all nodes have driver {to}")


def give_up(cluster: ClusterRollout, found: RolloutView) -> None:
    """Take a rollout back. Nodes that are changed by somebody else meanwhile are tried again.

    Raises ClientError where the API fails."""
    from tonnage.cuda_fit.rollout import abandon

    edits = abandon(found)
    if not edits:
        terminal.echo("no node is part of a rollout")
    while edits:
        _say(cluster.edit(edits))
        edits = abandon(cluster.read())


def follow(cluster: ClusterRollout, to: str, settings: RolloutSettings) -> RolloutTurn:
    """Look and act until there is nothing more to do; what the API does not do now is tried again.

    Raises InputError where the operator does not upgrade drivers any more; ClientError where the first look fails."""
    from tonnage.cuda_fit.rollout import RUNNING, decide
    from tonnage.kube.transport import ClientError

    said: set[str] = set()
    found: RolloutView | None = None
    while True:
        try:
            found = cluster.read()
            turn = decide(found, to, settings, int(time.time()))
            found_out = [*cluster.apply(turn), *(f"waiting: {line}" for line in turn.waits)]
        except ClientError as error:
            if found is None:
                raise
            found_out = [f"the cluster does not answer: {error}; tried again"]
        else:
            if turn.state != RUNNING:
                return turn
        _say([line for line in found_out if line not in said])
        said = set(found_out)
        time.sleep(PAUSE_S)


def _say(said: list[str]) -> None:
    for text in said:
        for line in lines.wrapped(text.strip(), further="    ", first=text[: len(text) - len(text.lstrip())]):
            terminal.echo(line)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
