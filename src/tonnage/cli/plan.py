"""`tonnage plan`: which nodes to launch for pods, at what price, and how much cheaper any plan could be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import answers, messages
from tonnage.cli.cluster import given as input_files
from tonnage.cli.cluster import read_live
from tonnage.cli.options import OUTPUT, Finite
from tonnage.cli.piped import FILE
from tonnage.control.choices import CLUSTER_AUTOSCALER, KARPENTER, OPTIMAL

if TYPE_CHECKING:
    from tonnage.cli.plan_input import PlanInput
    from tonnage.provisioning.optimal.replan import Replan
    from tonnage.provisioning.plans import Plan


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, type=FILE)
@read_live()
@click.option("--policy", type=click.Choice([OPTIMAL]), help="Plan with this policy alone.")
@click.option("--like", type=click.Choice([KARPENTER, CLUSTER_AUTOSCALER]), help="Say only what this would launch.")
@click.option("--existing", multiple=True, metavar="FILE", type=FILE, help="Existing nodes, and the pods on them.")
@click.option("--consolidate", is_flag=True, help="Say which nodes could be terminated, and where their pods go.")
@click.option(
    "--move-price",
    type=Finite(min=0),
    default=0.01,
    show_default=True,
    metavar="USD",
    help="What must be saved per hour for each pod that moves.",
)
@click.option("--prices", metavar="FILE", type=FILE, help="Your own prices, CSV or YAML.")
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="No notes.")
def plan(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    policy: str | None,
    like: str | None,
    existing: tuple[Path, ...],
    consolidate: bool,
    move_price: float,
    prices: Path | None,
    output: str,
    quiet: bool,
) -> None:
    """Which nodes to launch for the pods and workloads in FILES, under their NodePools: what Karpenter would launch,
    beside the cheapest set of nodes with a proved gap, and what makes the difference.

    FILES are manifests, or a cluster as `kubectl get nodes,pods,nodepools,... -A -o yaml` prints it: nodes are
    planned for pending pods that do not fit on existing nodes. `-` is standard input; --context or
    --kubeconfig reads a cluster as it is now. Without NodePools, nodes of any on-demand type are launched, GPUs of
    80 GB and more before smaller ones. Node groups of an eksctl ClusterConfig are planned with too; with
    --like cluster-autoscaler they alone, by the flags of the cluster-autoscaler Deployment among the FILES.

    Exit code 0 when all pods fit, 1 when some stay unschedulable, 2 when the input cannot be read.

    \b
    tonnage plan pods.yaml nodepools.yaml
    tonnage plan --context prod --consolidate
    """
    from tonnage.cli import plan_input, plan_report
    from tonnage.control.nodes import without_claims
    from tonnage.provisioning.optimal import plan as planning

    if policy and like:
        raise click.UsageError("--policy and --like exclude each other: without both, the plans stand side by side")
    given = plan_input.read(input_files(paths, context, kubeconfig, namespace), existing, prices, time.time_ns())
    arguments = (given.pods, given.nodes, given.pools.node_pools, given.catalogue, given.settings)
    optimal = None if like else planning.plan(*arguments, gangs=given.gangs, minima=given.minima)
    karpenter: Plan | None = None
    if like == "cluster-autoscaler":
        from tonnage.provisioning.cluster_autoscaler import scale_up

        karpenter = scale_up.plan(*arguments, given.pools.autoscaler)
    elif not policy:
        ignored = any(pod.shape.claims for pod in given.pods)
        karpenter = optimal.karpenter if optimal and not ignored else without_claims(*arguments)
    replanned = _replanned(given, move_price) if consolidate else None
    left = {}
    if consolidate and not policy:
        from tonnage.cli.plan_occupied import unconsolidatable

        left = unconsolidatable(given.going, given.pods, given.pools.node_pools, given.catalogue, given.settings)
    report = plan_report.report(given, karpenter, optimal, replanned, like or "karpenter", left)
    if output == "table":
        from tonnage.cli import plan_tables

        plan_tables.show(report, quiet=quiet)
    else:
        import msgspec

        answers.show(msgspec.json.format(msgspec.json.encode(report), indent=2), output)
    for one in () if quiet or output == "table" else given.findings:
        messages.note(f"{one.severity}: {one.object}: {one.message}", quiet)
    if report.plans[-1].unplaceable:
        raise click.exceptions.Exit(1)


def _replanned(given: PlanInput, move_price: float) -> Replan:
    """Nodes of NodePools that could go back, with what waits planned in the same step."""
    from tonnage.provisioning.optimal.replan import replan
    from tonnage.units import micro_usd

    may_go = {one.node.ref for one in given.going.occupied}
    return replan(
        given.going.occupied,
        given.pods,
        [node for node in given.nodes if node.ref not in may_go],
        given.pools.node_pools,
        given.catalogue,
        given.settings,
        micro_usd_per_move=micro_usd(move_price),
    )
