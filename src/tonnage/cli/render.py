"""`tonnage render`: manifests for a cluster, from what it has."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli import terminal
from tonnage.cli.agent_machine import check_name
from tonnage.cli.cluster import given, live
from tonnage.errors import InputError
from tonnage.facts.labels import GPU_PRESENT


@click.group()
def render() -> None:
    """Manifests for a cluster, from what it has. Nothing is written anywhere."""


@render.command()
@click.argument("paths", metavar="[FILES]...", nargs=-1, type=click.Path(path_type=Path))
@live
@click.option("--environment", default="", metavar="NAME", help="Nodes of this kind, where there are none in FILES.")
@click.option("--namespace", default="gpu-operator", show_default=True, metavar="NAME", help="Of the agent.")
@click.option("--image", default="tonnage:latest", show_default=True, metavar="IMAGE", help="The image with Tonnage.")
@click.option("--dra", is_flag=True, help="Claims are served by the part dra, in place of the device plugin.")
@click.option("--values", is_flag=True, help="Instead, the GPU operator's values that leave it to the agent.")
@click.option("--explain", is_flag=True, help="Instead, for each operand whether it runs, what owns it, and why.")
def agent(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    environment: str,
    namespace: str,
    image: str,
    dra: bool,
    values: bool,
    explain: bool,
) -> None:
    """DaemonSets of the agent with exactly the parts that the nodes in FILES need, by their labels and the GPU
    operator's ClusterPolicy; --context or --kubeconfig reads a cluster as it is now.
    """
    from tonnage.facts import operands as facts
    from tonnage.node import agent_manifests, operator_parts
    from tonnage.objects import core, load
    from tonnage.objects.dump import written
    from tonnage.objects.gpu_operator import ClusterPolicy, ConfigMapChoice

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
    sets = agent_manifests.node_sets(policy, nodes)
    if explain:
        for name, labels in sorted(nodes.items()):
            for one in operator_parts.operands_of(policy, labels):
                state = f"on, tonnage agent {one.part}" if one.part else "on, NVIDIA's" if one.runs else "off"
                terminal.echo(f"{name}  {one.operand}: {state}: {one.reason}")
    elif values:
        terminal.echo(written([agent_manifests.operator_values(policy, sets)]), nl=False)
    elif not sets:
        terminal.echo("no node needs a part of the agent", err=True)
    else:
        config = policy.device_plugin.config if policy is not None else ConfigMapChoice()
        made = agent_manifests.manifests(sets, namespace=namespace, image=image, config=config, dra=dra)
        terminal.echo(written(made), nl=False)


def _has_gpus(labels: dict[str, str]) -> bool:
    return labels.get(GPU_PRESENT) == "true"
