"""`tonnage render`: manifests for a cluster, from what it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, terminal
from tonnage.cli.agent_machine import check_name
from tonnage.cli.cluster import given, live
from tonnage.cli.options import is_typed
from tonnage.cli.piped import FILE
from tonnage.errors import InputError
from tonnage.facts.labels import GPU_PRESENT

if TYPE_CHECKING:
    from tonnage.node.operator_parts import OperandVerdict

_SCHEMA = "tonnage.dev/render-agent/v1"


@click.group()
def render() -> None:
    """Manifests for a cluster, from what it has. Nothing is written anywhere."""


@render.command()
@click.argument("paths", metavar="[FILES]...", nargs=-1, type=FILE)
@live
@click.option("--environment", default="", metavar="NAME", help="Nodes of this kind, where there are none in FILES.")
@click.option("--namespace", default="gpu-operator", show_default=True, metavar="NAME", help="Of the agent.")
@click.option("--image", default="tonnage:latest", show_default=True, metavar="IMAGE", help="The image with Tonnage.")
@click.option("--dra", is_flag=True, help="Claims are served by the part dra, in place of the device plugin.")
@click.option("--mps", is_flag=True, help="The device plugin may run MPS control daemons: the host's process ids.")
@click.option("--sidecar", is_flag=True, help="Instead, a patch with the exporter as a sidecar of a workload's pods.")
@click.option("--values", is_flag=True, help="Instead, the GPU operator's values that leave it to the agent.")
@click.option("--explain", is_flag=True, help="Instead, for each operand whether it runs, what owns it, and why.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default=None,
    help="What to print. [default: yaml; with --explain table]",
)
def agent(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    environment: str,
    namespace: str,
    image: str,
    dra: bool,
    mps: bool,
    sidecar: bool,
    values: bool,
    explain: bool,
    output: str | None,
) -> None:
    """DaemonSets of the agent with exactly the parts that the nodes in FILES need, by their labels and the GPU
    operator's ClusterPolicy; --context or --kubeconfig reads a cluster as it is now.

    \b
    tonnage render agent --context prod > agent.yaml
    tonnage render agent --environment karpenter --explain
    """
    from tonnage.facts import operands as facts
    from tonnage.node import agent_manifests, operator_parts
    from tonnage.objects import core, load
    from tonnage.objects.gpu_operator import ClusterPolicy, ConfigMapChoice, DcgmExporterSpec

    if output == "table" and not explain and not is_typed("output"):
        output = None  # what a config file says of all commands
    if output == "table" and not explain:
        raise click.UsageError("-o table is for --explain: manifests are YAML or JSON.")
    if explain + values + sidecar > 1:
        raise click.UsageError("Give one of --explain, --values and --sidecar.")
    check_name(namespace, "--namespace")
    if not image.strip():
        raise InputError.at("no image", field="--image", hint="name the image that has Tonnage in it")
    read = given(paths, context, kubeconfig, none=bool(environment))
    manifest = load.read(read) if read else None
    policies = manifest.of(ClusterPolicy) if manifest is not None else []
    if len(policies) > 1:
        raise InputError.at(f"{len(policies)} ClusterPolicies", hint="the GPU operator goes by one alone")
    policy = policies[0].spec if policies else None
    nodes = {one.name: dict(one.metadata.labels) for one in (manifest.of(core.Node) if manifest is not None else [])}
    nodes = {name: labels for name, labels in nodes.items() if _has_gpus(labels)}
    if environment:
        if environment not in facts.environments():
            known = ", ".join(facts.environments())
            raise InputError.at(f"{environment!r}, expected one of {known}", field="--environment", hint="name one")
        kind = facts.environments()[environment]
        nodes = nodes or {environment: {kind.label: kind.value or "any"}}
    if not nodes:
        hint = "read a cluster with --context, or name the kind of nodes with --environment"
        raise InputError.at("no Node with the label nvidia.com/gpu.present=true", hint=hint)
    for problem in dict.fromkeys(
        text for labels in nodes.values() for text in operator_parts.conflicts(policy, labels)
    ):
        terminal.echo(f"warning: {problem}", err=True)
    exporter = policy.dcgm_exporter if policy is not None else DcgmExporterSpec()
    sets = agent_manifests.node_sets(policy, nodes)
    if explain:
        verdicts = [(name, operator_parts.operands_of(policy, labels)) for name, labels in sorted(nodes.items())]
        _explain(verdicts, output or "table")
    elif values:
        _show([agent_manifests.operator_values(policy, sets)], output)
    elif sidecar:
        _show([agent_manifests.sidecar(image)], output)
    elif not sets:
        terminal.echo("no node needs a part of the agent", err=True)
    else:
        config = policy.device_plugin.config if policy is not None else ConfigMapChoice()
        made = agent_manifests.manifests(
            sets, namespace=namespace, image=image, config=config, exporter=exporter, dra=dra, mps=mps
        )
        _show(made, output)


def _explain(verdicts: list[tuple[str, list[OperandVerdict]]], output: str) -> None:
    """Each operand of each node."""
    if output != "table":
        told = [{"node": name, **one._asdict()} for name, found in verdicts for one in found]
        answers.show(msgspec.json.encode({"schema": _SCHEMA, "operands": told}), output)
        return
    for name, found in verdicts:
        for one in found:
            state = f"on, tonnage agent {one.part}" if one.part else "on, NVIDIA's" if one.runs else "off"
            terminal.echo(f"{name}  {one.operand}: {state}: {one.reason}")


def _show(made: list[dict[str, Any]], output: str | None) -> None:
    """Objects as kubectl prints several: YAML documents, or in JSON a List."""
    from tonnage.objects.dump import written

    if output == "json":
        several = {"apiVersion": "v1", "kind": "List", "items": made}
        answers.show(msgspec.json.encode(made[0] if len(made) == 1 else several), output)
    else:
        terminal.echo(written(made), nl=False)


def _has_gpus(labels: dict[str, str]) -> bool:
    return labels.get(GPU_PRESENT) == "true"
