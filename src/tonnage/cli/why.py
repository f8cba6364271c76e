"""`tonnage why`: what has become of a pod, why it waits or is placed where it is, and the change that makes it run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import answers
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.cli.why_cases import Case
    from tonnage.decisions import Ref
    from tonnage.health.told import Told
    from tonnage.scheduling.why.receipt import Receipt

SCHEMA = "tonnage.dev/why/v1"


@click.command()
@click.argument("pod", metavar="POD|KIND/NAME")
@click.argument("paths", metavar="SCENARIO|FILES...", nargs=-1, type=FILE)
@read_live("Of the pod or object. [default: any]")
@click.option("--at", metavar="TIME", help="Time in the scenario, like 90m or 3h30m. [default: its end]")
@click.option("--policy", metavar="NAME", help="One of the scenario's policies. [default: as the scenario says]")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of the scenario's run."
)
@click.option("--placement", metavar="NAME", help="Placement policy. [default: the scenario's, else tonnage]")
@OUTPUT
def why(
    pod: str,
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    at: str | None,
    policy: str | None,
    seed: int,
    placement: str | None,
    output: str,
) -> None:
    """Why POD (a name, namespace/name, or a gang's key) does not run, or is placed where it is. KIND/NAME is a
    workload, a Service or a ResourceClaim as kubectl names it: deploy/model, job/train, svc/model, resourceclaim/gpu.

    SCENARIO is a scenario's file or folder: its cluster at a time of a run. FILES hold a cluster's objects, as `kubectl
    get nodes,pods,events,... -A -o yaml` prints them, or manifests: pods of workloads that have none are assumed, and
    NodePools launch the nodes that are missing. `-` is standard input; --context or --kubeconfig reads a cluster as it
    is now.

    Exit code 0 when it runs or is about to, 1 when it is pending or fails, 2 when the input cannot be read or has no
    such pod.

    \b
    tonnage why train-0 cluster.yaml
    tonnage why deploy/chat -n inference --context prod
    """
    from tonnage.cli import why_cases, why_tables, why_targets

    case = _case(given(paths, context, kubeconfig), at, policy, seed)
    if placement is not None:
        case.settings = why_cases.with_policy(case.settings, placement)
    target = why_targets.find(pod, case, namespace)
    if target.ref is not None:
        told, receipt = _of_object(target.ref, case)
    else:
        told, receipt = _of_pod(target.key, case)
    if output != "table":
        import msgspec

        report = why_tables.WhyReport(SCHEMA, receipt, told)
        answers.show(msgspec.json.format(msgspec.json.encode(report), indent=2), output)
    else:
        why_tables.show(receipt, told)
    if not _well(told, receipt):
        raise click.exceptions.Exit(1)


def _case(paths: list[Path], at: str | None, policy: str | None, seed: int) -> Case:
    from tonnage.cli import why_cases
    from tonnage.simulation import scenario

    if scenario.is_scenario(paths):
        loaded = scenario.load(paths[0])
        return why_cases.OfScenario(loaded, _time(at, loaded.duration_ns), policy, seed)
    named = click.get_current_context().get_parameter_source("seed") is click.core.ParameterSource.COMMANDLINE
    for name, given_ in (("--at", at is not None), ("--policy", policy is not None), ("--seed", named)):
        if given_:
            raise InputError.at("is of a scenario, and these are manifests", field=name, hint="leave it out")
    return why_cases.OfFiles(paths)


def _of_pod(key: str, case: Case, owner: Ref | None = None) -> tuple[Told | None, Receipt | None]:
    """What is told of a pod or gang, and the receipt of its place while that is open or as it was. ``owner``: whose pod
    it is, where that is known."""
    from tonnage.fleet.rows import split_key
    from tonnage.health.told import COMES, of_blockers
    from tonnage.scheduling.why import receipt as whys

    told = case.told(key)
    row = case.snapshot.fleet.pod_by_key.get(split_key(key)) if key.count("/") == 1 else None
    if told is None or told.state == COMES:
        told = of_blockers(key, case.about_pod(key, owner)) or told
    if row is None and key not in case.snapshot.gangs:
        return told, None
    receipt = whys.why(case.snapshot, key, case.settings)
    return _as_things_stand(told, receipt), receipt


def _as_things_stand(told: Told | None, receipt: Receipt) -> Told | None:
    """What is told of empty nodes. Where another MIG layout helps, that of a GPU which is not in use."""
    from msgspec.structs import replace

    from tonnage.scheduling.why.changes import Recut

    edits = receipt.changes[0].change.edits if receipt.changes else ()
    if told is None or told.rule != "pods-fit-no-node" or not all(isinstance(one, Recut) for one in edits) or not edits:
        return told
    return replace(told, help=" and ".join(one.text() for one in edits))


def _of_claim(ref: Ref, case: Case) -> Told:
    from tonnage.health.claims import of_claim
    from tonnage.objects.dra import ResourceClaim

    (claim,) = (
        one
        for one in case.objects
        if isinstance(one, ResourceClaim) and (one.namespace or "default", one.name) == (ref.namespace, ref.name)
    )
    return of_claim(str(ref), claim, case.objects)


def _of_object(ref: Ref, case: Case) -> tuple[Told | None, Receipt | None]:
    """Of a workload the pod that is worst off stands for all; of a Service the workloads that it selects."""
    from msgspec.structs import replace

    from tonnage.cli import why_targets
    from tonnage.health.told import PART, RUNS, Told, of_blockers

    found = of_blockers(str(ref), case.about(ref))
    if found is not None:
        return found, None
    if ref.kind == "ResourceClaim":
        return _of_claim(ref, case), None
    if ref.kind == "Service":
        behind = [_of_object(one, case) for one in why_targets.selected(ref, case.objects)]
        if not behind:
            return Told(str(ref), RUNS, "has no selector: its endpoints are managed manually"), None
        return next((pair for pair in behind if not _well(*pair)), behind[0])
    pods = case.pods_of(ref)
    if not pods:
        line = "has no pods now: it is suspended or done, or its pods are not followed"
        if not why_targets.makes_pods(ref, case.objects):
            line = "has no pods of its own, and no problem with it is known"
        return case.told_of(ref) or Told(str(ref), RUNS, line), None
    looked = [_of_pod(key, case, ref) for key in pods]
    told, receipt = next((pair for pair in looked if not _well(*pair)), looked[0])
    if told is not None and len(pods) > 1:
        well = sum(_well(*pair) for pair in looked)
        line = f"{told.line} ({well} of {len(pods)} pods of {ref} run or are about to)"
        told = replace(told, line=line)
    partly = next((one for one in case.about(ref) if one.some), None)
    if partly is not None and told is None and _well(told, receipt):
        told = Told(str(ref), PART, f"runs in part: {partly.message}", (), partly.help, partly.where, partly.rule)
    elif partly is not None and told is not None and told.well:
        told = replace(told, line=f"{told.line}; {partly.message}", help=partly.help, where=partly.where)
    return told, receipt


def _well(told: Told | None, receipt: Receipt | None) -> bool:
    from tonnage.scheduling.why import receipt as whys

    if told is not None:
        return told.well
    return receipt is not None and receipt.state not in (whys.WAITS, whys.HELD)


def _time(written: str | None, end_ns: int) -> int:
    if written is None:
        return end_ns
    from tonnage.simulation.scenario import duration_ns

    try:
        at = duration_ns(written)
    except ValueError as error:
        raise InputError.at(f'"{written}" is not a time', field="--at", hint="like 90s, 45m or 3h30m") from error
    if not 0 <= at <= end_ns:
        raise InputError.at(f"{written} is after the scenario's end", field="--at", hint="choose an earlier time")
    return at
