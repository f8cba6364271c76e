"""`tonnage cuda`: does an image's CUDA run on a driver and a GPU, and what does a driver upgrade break in a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import cuda_rollout, files, messages
from tonnage.cli.answers import show
from tonnage.cli.cluster import given, read_live
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE, STDIN
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.cuda_fit.host import Host
    from tonnage.cuda_fit.need import Need

_STRICT = click.option("--strict", is_flag=True, help="Exit code 1 also where too little is known to say.")
_UNKNOWN = click.option("--allow-unknown", is_flag=True, help="Exit code 0 where too little is known to say.")


class _WithDefault(click.Group):
    """`tonnage cuda IMAGE` is `tonnage cuda check IMAGE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["check", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithDefault)
def cuda() -> None:
    """Whether an image's CUDA runs on a driver and a GPU, before anything is scheduled. `check` can be left out."""


@cuda.command()
@click.argument("what", metavar="WHAT...", nargs=-1)
@click.option("--driver", default="", metavar="VERSION", help="The node's driver, like 535.161.08.")
@click.option("--gpu", default="", metavar="NAME", help="The node's GPU: a name or its nvidia.com/gpu.product.")
@click.option("--arch", default="", metavar="X.Y", help="The GPU's compute capability, like 9.0.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the node, of GPU discovery.")
@click.option("--node", type=FILE, metavar="FILE", help="A Node manifest whose labels say driver and GPU.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable of the container.")
@click.option("--image-cuda", default="", metavar="X.Y", help="The image's CUDA, where its name does not say.")
@click.option("--image-archs", default="", metavar="LIST", help="What it is built for, like '8.0 9.0a 12.0+PTX'.")
@_UNKNOWN
@OUTPUT
def check(
    what: tuple[str, ...],
    driver: str,
    gpu: str,
    arch: str,
    labels: tuple[str, ...],
    node: Path | None,
    environment: tuple[str, ...],
    image_cuda: str,
    image_archs: str,
    allow_unknown: bool,
    output: str,
) -> None:
    """Whether each of WHAT runs on a node: images, NVIDIA_REQUIRE_CUDA expressions, or files with pods.

    Exit code 1 when one does not run or too little is known to say, 2 when the input cannot be read.

    \b
    tonnage cuda check vllm/vllm-openai:v0.10.0 --driver 535.161.08 --gpu h100
    tonnage cuda check pods.yaml --node node.yaml
    """
    from tonnage.cuda_fit import check as checks

    host = _host(driver, gpu, arch, labels, node)
    variables = dict(_pair(text, "--env") for text in environment)
    cases = [case for one in what for case in _cases(one, variables)]
    if not cases:
        if what or not (image_cuda or image_archs or variables):
            hint = "give an image, an expression like 'cuda>=12.4 driver>=535', or a file with pods that ask for GPUs"
            raise InputError.at("nothing to check", field="WHAT", hint=hint)
        cases = [_case("the image", "", variables)]
    cases = [(name, _said(need, image_cuda, image_archs)) for name, need in cases]
    answers = [_answer(name, need, host) for name, need in cases]
    doubted = [checks.may_lack_code(need, host) for _, need in cases]
    if output != "table":
        show(_json({"schema": "tonnage.dev/cuda-check/v1", "node": _node(host), "answers": answers}), output)
    else:
        from tonnage.cli import cuda_tables

        cuda_tables.answers(answers, _node(host))
    fits = [False if doubt else answer["fits"] for answer, doubt in zip(answers, doubted, strict=True)]
    _exit(fits, strict=not allow_unknown)


@cuda.command()
@click.argument("paths", metavar="FILES...", nargs=-1, type=FILE)
@read_live()
@click.option("--to", default="", metavar="VERSION", help="A driver to upgrade to: what breaks, and in what order.")
@_STRICT
@OUTPUT
def fleet(
    paths: tuple[Path, ...], context: str, kubeconfig: str, namespace: str, to: str, strict: bool, output: str
) -> None:
    """The drivers of a cluster, from FILES with its nodes and pods as `kubectl get nodes,pods -A -o yaml` prints them.

    Exit code 1 when a pod cannot run on its node or, with --to, could not after the upgrade.

    \b
    tonnage cuda fleet --context prod --to 580.65.06
    kubectl get nodes,pods -A -o yaml | tonnage cuda fleet -
    """
    from tonnage.cuda_fit import fleet as fleets
    from tonnage.objects import apps, core, load

    manifest = load.read(given(paths, context, kubeconfig, namespace))
    messages.warnings(manifest.problems)
    found = fleets.cluster(manifest.of(core.Node), manifest.of(core.Pod), manifest.of(apps.Deployment))
    if not found.nodes:
        hint = "expected nodes with labels of GPU feature discovery: kubectl get nodes,pods -A -o yaml"
        raise InputError.at("no node with a GPU", file=", ".join(map(str, paths)), hint=hint)
    from tonnage.cli import cuda_reports

    report = cuda_reports.report(found, to)
    if output != "table":
        show(_json(report), output)
    else:
        from tonnage.cli import cuda_tables

        cuda_tables.fleet(report)
    _exit(cuda_reports.answers(report), strict=strict)


for _command in (cuda_rollout.stack, cuda_rollout.rollout):
    cuda.add_command(_command)


def _exit(fits: list[bool | None], *, strict: bool) -> None:
    if False in fits or (strict and None in fits):
        raise click.exceptions.Exit(1)


def _host(driver: str, gpu: str, arch: str, labels: tuple[str, ...], node: Path | None) -> Host:
    """From labels, and over them from what is named."""
    from tonnage.cuda_fit import host as hosts

    told = dict(_pair(text, "--label") for text in labels)
    if node is not None:
        told = {**_node_labels(node), **told}
    found = hosts.of_labels(told)
    if told and found == hosts.Host():
        hint = "expected nvidia.com/cuda.driver-version.full, nvidia.com/gpu.product and similar"
        raise InputError.at("no label says anything of a driver or GPU", field="--label", hint=hint)
    return hosts.of(driver, gpu, arch, found)


def _node_labels(path: Path) -> dict[str, str]:
    from tonnage.objects import core, load

    nodes = load.read([files.existing(path)]).of(core.Node)
    if len(nodes) != 1:
        hint = "give a file with one Node, or use `tonnage cuda fleet` for many"
        raise InputError.at(f"{len(nodes)} nodes", file=str(path), hint=hint)
    return nodes[0].metadata.labels


def _pair(text: str, field: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InputError.at(f"{text!r} is not a pair", field=field, hint="expected NAME=VALUE")
    return key, value


def _cases(text: str, variables: dict[str, str]) -> list[tuple[str, Need]]:
    """One thing to check: an expression, a file's containers, or an image."""
    from tonnage.cuda_fit import require
    from tonnage.cuda_fit.need import REQUIRE_CUDA

    path = _existing(text)
    if path is not None:
        return _containers(path, variables)
    if re.search(r"[<>=!]", text):
        name, sign, expression = text.partition("=")
        if not (sign and name.startswith("NVIDIA_REQUIRE_")):
            name, expression = REQUIRE_CUDA, text
        if not expression.strip():
            raise InputError.at(f"{text!r} has no condition", field="WHAT", hint="an empty expression always holds")
        require.parse_strictly(expression, "WHAT")
        return [_case(expression, "", {**variables, name: expression})]
    if not text.strip():
        raise InputError.at("an empty name", field="WHAT", hint="give an image like vllm/vllm-openai:v0.20.0")
    if text.endswith((".yaml", ".yml", ".json")):
        raise InputError.at("no such file", file=text, hint="check the path")
    for name, value in variables.items():
        if name.startswith("NVIDIA_REQUIRE_"):
            require.parse_strictly(value, f"--env {name}")
    return [_case(text, text, variables)]


def _existing(text: str) -> Path | None:
    """The file or folder of this name, standard input and bundled examples too; None for what is none, nor can be."""
    try:
        if Path(text) == STDIN:
            return FILE.piped(click.get_current_context())
        path = files.existing(Path(text))
        return path if text.strip() and path.exists() else None
    except OSError:  # longer than a file's name can be, as expressions are
        return None


def _case(name: str, image: str, variables: dict[str, str]) -> tuple[str, Need]:
    from tonnage.cuda_fit import need

    return name, need.of_image(image, variables)


def _containers(path: Path, variables: dict[str, str]) -> list[tuple[str, Need]]:
    from tonnage.cuda_fit import need, pods
    from tonnage.objects import apps, core, load

    manifest = load.read([path])
    messages.warnings(manifest.problems)
    found = []
    for one in manifest.objects:
        if isinstance(one, core.Pod):
            spec = one.spec
        elif isinstance(one, apps.Deployment | apps.DaemonSet):
            spec = one.spec.template.spec
        else:
            continue
        for container in pods.gpu_containers(spec):
            environment = {**{env.name: env.value for env in container.env}, **variables}
            name = f"{one.kind} {one.metadata.name}, {container.name}: {container.image}"
            found.append((name, need.of_image(container.image, environment)))
    return found


def _said(need: Need, image_cuda: str, image_archs: str) -> Need:
    """With what the user says of the image."""
    from tonnage.cuda_fit.need import kernels_of
    from tonnage.facts.cuda import parse_version

    if image_cuda:
        version = (*parse_version(image_cuda, "--image-cuda", "12.4"), 0)[:2]
        need = msgspec.structs.replace(need, cuda=version, source="--image-cuda")
    if image_archs:
        need = msgspec.structs.replace(need, kernels=kernels_of(image_archs))
    return need


def _answer(name: str, need: Need, host: Host) -> dict[str, Any]:
    from tonnage.cuda_fit import check as checks
    from tonnage.cuda_fit import remedy

    only_conditions = need.cuda is None and not need.kernels and bool(need.requirements) and not need.image
    found = checks.fit(need, host)
    kept = [one for one in found.checks if not only_conditions or one.name in ("require", "gpu")]
    fits = [one.fits for one in kept]
    return {
        "name": name,
        "fits": False if False in fits else None if None in fits else True,
        "cuda": ".".join(map(str, need.cuda)) if need.cuda else None,
        "mode": found.mode,
        "checks": [msgspec.structs.asdict(one) for one in kept],
        "remedies": [msgspec.structs.asdict(one) for one in remedy.remedies(need, host)],
        "source": need.source,
    }


def _node(host: Host) -> dict[str, Any]:
    from tonnage.facts.cuda import cuda_text

    return {
        "driver": host.written or None,
        "cuda": cuda_text(host.cuda) if host.cuda else None,
        "gpu": host.gpu or None,
        "arch": cuda_text(host.arch) if host.arch else None,
    }


def _json(value: Any) -> bytes:
    return msgspec.json.Encoder(order="deterministic").encode(value)
