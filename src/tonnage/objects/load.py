"""Manifests to objects and back: files and folders, several documents a file, each object with its place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import hf_config
from tonnage.facts.models import ModelShape
from tonnage.objects import (
    apps,
    autoscaling,
    batch,
    beside,
    buffers,
    compute_domains,
    core,
    dra_versions,
    eks,
    eksctl,
    gpu_operator,
    groups,
    karpenter,
    keda,
    leaderworker,
    monitoring,
    nvidia_device_configs,
    policy,
    quota,
    ray,
    storage,
    templates,
    training,
    unknown,
    validate,
    volcano,
)
from tonnage.objects.base import KubeObject, ObjectMeta, Origin, Unknown, place, where
from tonnage.objects.decode import convert, show, without_nulls
from tonnage.objects.dump import dump
from tonnage.objects.podlist import pods_from_json
from tonnage.objects.tree import Tree, parse, parse_json

__all__ = ["KINDS", "Manifest", "Unknown", "dump", "pods_from_json", "read", "where"]

KINDS: dict[tuple[str, str], type[KubeObject]] = {
    ("v1", "Pod"): core.Pod,
    ("v1", "Namespace"): core.Namespace,
    ("v1", "Node"): core.Node,
    ("v1", "Service"): core.Service,
    ("v1", "ConfigMap"): core.ConfigMap,
    ("v1", "LimitRange"): quota.LimitRange,
    ("v1", "PersistentVolume"): storage.PersistentVolume,
    ("v1", "PersistentVolumeClaim"): storage.PersistentVolumeClaim,
    ("v1", "ResourceQuota"): quota.ResourceQuota,
    ("v1", "ServiceAccount"): quota.ServiceAccount,
    ("apps/v1", "Deployment"): apps.Deployment,
    ("apps/v1", "DaemonSet"): apps.DaemonSet,
    ("apps/v1", "StatefulSet"): apps.StatefulSet,
    ("apps/v1", "ReplicaSet"): apps.ReplicaSet,
    ("batch/v1", "Job"): batch.Job,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano.VolcanoJob,
    ("eks.amazonaws.com/v1", "NodeClass"): eks.NodeClass,
    ("eksctl.io/v1alpha5", "ClusterConfig"): eksctl.ClusterConfig,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): batch.JobSet,
    ("kai.scheduler/v1alpha1", "Topology"): groups.Topology,
    ("kubeflow.org/v1", "JAXJob"): training.JAXJob,
    ("kubeflow.org/v1", "MPIJob"): training.MPIJob,
    ("kubeflow.org/v1", "PyTorchJob"): training.PyTorchJob,
    ("kubeflow.org/v1", "TFJob"): training.TFJob,
    ("kubeflow.org/v1", "XGBoostJob"): training.XGBoostJob,
    ("kubeflow.org/v2beta1", "MPIJob"): training.MPIJob,
    ("kueue.x-k8s.io/v1beta1", "Topology"): groups.Topology,
    ("kueue.x-k8s.io/v1beta2", "Topology"): groups.Topology,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): leaderworker.LeaderWorkerSet,
    ("ray.io/v1", "RayCluster"): ray.RayCluster,
    ("ray.io/v1", "RayJob"): ray.RayJob,
    ("ray.io/v1", "RayService"): ray.RayService,
    ("scheduling.k8s.io/v1", "PriorityClass"): core.PriorityClass,
    ("scheduling.k8s.io/v1alpha1", "Workload"): groups.KubeWorkload,
    ("scheduling.k8s.io/v1alpha2", "PodGroup"): groups.KubePodGroup,
    ("scheduling.k8s.io/v1alpha2", "Workload"): groups.KubeWorkload,
    ("scheduling.k8s.io/v1alpha3", "PodGroup"): groups.KubePodGroup,
    ("scheduling.k8s.io/v1alpha3", "Workload"): groups.KubeWorkload,
    ("scheduling.k8s.io/v1beta1", "PodGroup"): groups.KubePodGroup,
    ("scheduling.k8s.io/v1beta1", "Workload"): groups.KubeWorkload,
    ("scheduling.run.ai/v2alpha2", "PodGroup"): groups.KaiPodGroup,
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): groups.VolcanoPodGroup,
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): groups.CoschedulingPodGroup,
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): training.TrainingRuntime,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): training.TrainJob,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): training.TrainingRuntime,
    ("node.k8s.io/v1", "RuntimeClass"): quota.RuntimeClass,
    ("storage.k8s.io/v1", "CSINode"): storage.CSINode,
    ("storage.k8s.io/v1", "StorageClass"): storage.StorageClass,
    ("nvidia.com/v1", "ClusterPolicy"): gpu_operator.ClusterPolicy,
    ("policy/v1", "PodDisruptionBudget"): policy.PodDisruptionBudget,
    ("v1", "PodTemplate"): buffers.StoredPodTemplate,
    ("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer"): buffers.CapacityBuffer,
    ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"): buffers.CapacityBuffer,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): autoscaling.HorizontalPodAutoscaler,
    ("keda.sh/v1alpha1", "ScaledObject"): keda.ScaledObject,
    ("karpenter.sh/v1", "NodePool"): karpenter.NodePool,
    ("karpenter.sh/v1alpha1", "NodeOverlay"): karpenter.NodeOverlay,
    ("karpenter.sh/v1", "NodeClaim"): karpenter.NodeClaim,
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): karpenter.EC2NodeClass,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): monitoring.ServiceMonitor,
    ("monitoring.coreos.com/v1", "PrometheusRule"): monitoring.PrometheusRule,
    (nvidia_device_configs.API_VERSION, "ComputeDomain"): compute_domains.ComputeDomain,
    **{(version, kind): dra_versions.KINDS[kind] for version, kinds in dra_versions.READ.items() for kind in kinds},
}

MOST_FILES, MOST_ENTRIES = 10_000, 200_000
"""Of manifests, and of files of any kind, that are read below a folder: with more it is not one of manifests."""
_NO_EFFECT = "the object is kept and has no effect"
_TELLS = frozenset({("v1", "Event"), ("events.k8s.io/v1", "Event")})
"""Kinds that only tell what has happened to others: of a pod, `tonnage why` repeats them."""
CONFIG = "config.json"
SUFFIXES = (".yaml", ".yml", ".json")
_AMOUNTS = re.compile(r"\.resources\.(limits|requests)\b")
_IN_ITEM = re.compile(r"items\[(\d+)\]\.")
T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Objects in the order in which they stand, and what is suspicious about them (unknown fields and kinds).
    ``models``: shapes of models by their names, from the ``config.json`` of each that is among the files."""

    objects: tuple[KubeObject, ...]
    problems: tuple[Problem, ...]
    models: Mapping[str, ModelShape] = field(default_factory=dict)

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """All objects of one kind, in order."""
        return tuple(o for o in self.objects if isinstance(o, kind))


def read(paths: Sequence[Path]) -> Manifest:
    """Read files and folders (their YAML and JSON files, by name; a file that is named twice counts once). A
    ``config.json`` as Hugging Face publishes it with a model is one of that model, which is named by its folders
    (``ORGANISATION/MODEL/config.json``). What a folder has beside manifests is passed over with a warning
    (:mod:`tonnage.objects.beside`); a file that is named itself has to be one.

    Raises InputError with every problem found: a missing file, broken YAML, a wrong value, an object that the API
    server would refuse, an object that appears twice. Beside them are the unknown fields of objects that it refuses.
    """
    objects: list[KubeObject] = []
    errors: list[Problem] = []
    warnings: list[Problem] = []
    in_refused: list[Problem] = []
    shapes: dict[str, ModelShape] = {}
    unmade: list[Problem] = []
    for file, alone in _files(paths, errors, unmade):
        found = _File()
        try:
            trees = list(_trees(file))
            if file.name == CONFIG and trees and _is_config(trees[0].value):
                shapes.update(_models(file, trees[0].value))
            elif not alone and beside.is_other([one.value for one in trees]):
                found.warnings.append(beside.passed_over(file))
            else:
                for tree in trees:
                    found.add(tree)
        except InputError as error:
            found.errors += error.problems
        except RecursionError:
            found.errors.append(Problem(Where(str(file)), "nested too deep", "no manifest nests hundreds of levels"))
        objects += found.objects
        errors += sorted(found.errors, key=lambda problem: problem.where.line)
        warnings += found.warnings
        in_refused += found.beside
    errors += validate.duplicates(objects)
    if not objects and not errors and unmade:
        errors += [Problem(one.where, f"no objects found: {one.message}", one.hint) for one in unmade]
    elif not objects and not errors:
        names = ", ".join(str(path) for path in paths)
        errors.append(Problem(Where(names), "no objects found", "expected Kubernetes manifests"))
    if errors:
        raise InputError(*errors, beside=tuple(in_refused))
    return Manifest(tuple(objects), tuple(_together([*unmade, *warnings])), shapes)


def documents(paths: Sequence[Path]) -> Iterator[Tree]:
    """The documents of the files that :func:`read` reads, as they are written and whatever they are. Raises InputError
    for what cannot be read, a path that is not there, and text that is no YAML or JSON."""
    errors: list[Problem] = []
    found = list(_files(paths, errors, []))
    if errors:
        raise InputError(*errors)
    for file, alone in found:
        trees = list(_trees(file))
        if alone or not beside.is_other([one.value for one in trees]):
            for tree in trees:
                if tree.problems:
                    raise InputError(*tree.problems)
                yield from _flatten(tree)


def misread(tree: Tree) -> list[Problem]:
    """Why it is not known what the pods of a document ask for: values of wrong types, amounts that the API server
    refuses. Of claims, and of kinds that are not read here, nothing is said."""
    content = tree.value
    version, kind = content.get("apiVersion"), content.get("kind")
    type_ = KINDS.get((version, kind)) if _is_name(version) and _is_name(kind) else None
    if type_ is None or kind in dra_versions.KINDS:
        return []
    origin, content = Origin(tree.file, tree.line), without_nulls(content)
    at = partial(place, origin, tree.lines)
    specs = [path for path, _, _ in templates.pod_specs(content, "", {})]
    of_pods = tuple(f"{path}." for path in specs) + tuple(
        f"{path.removesuffix('spec')}metadata.annotations" for path in specs
    )
    typed = convert(content, type_, tree.written)
    if isinstance(typed, list):
        wrong = [Problem(at(one.field), one.message, one.hint) for one in typed]
        return [one for one in wrong if one.where.field.startswith(of_pods)]
    refused = validate.check(typed.remember(origin, tree.lines, content), at)
    return [one for one in refused if one.where.field.startswith(of_pods) and _AMOUNTS.search(one.where.field)]


def _is_config(value: Any) -> bool:
    """Whether this is a model's configuration, not an object of Kubernetes."""
    return isinstance(value, dict) and "kind" not in value and ("model_type" in value or "architectures" in value)


def _models(file: Path, config: Any) -> Iterator[tuple[str, ModelShape]]:
    """The shape that a configuration gives, by every name that its model may be called by."""
    own = config.get("_name_or_path")
    folders = file.resolve().parent.parts[-2:]
    names = ["/".join(folders), *([own] if isinstance(own, str) and own else [])]
    shape = hf_config.parse(config, name=names[0], file=str(file)).shape
    for name in names:
        yield name, shape


def _together(warnings: Sequence[Problem]) -> Iterator[Problem]:
    """The warnings, with one for all objects of kinds that are not read."""
    unread = [one for one in warnings if one.hint == _NO_EFFECT]
    for one in warnings:
        if one.hint != _NO_EFFECT or len(unread) == 1:
            yield one
        elif one is unread[0]:
            kinds = Counter(other.message.split()[1] for other in unread)
            listed = ", ".join(f"{kind} ({n})" if n > 1 else kind for kind, n in sorted(kinds.items()))
            message = f"{len(unread)} objects are of kinds that are not read here: {listed}"
            yield Problem(one.where, message, "they are kept and have no effect")


class _File:
    """What one file has: objects, what the API server would refuse, what is suspicious; ``beside``: in what it
    refuses."""

    def __init__(self) -> None:
        self.objects: list[KubeObject] = []
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.beside: list[Problem] = []

    def add(self, tree: Tree) -> None:
        self.errors += tree.problems
        for document in _flatten(tree):
            self._object(document)

    def _object(self, tree: Tree) -> None:
        content, origin = tree.value, Origin(tree.file, tree.line)
        at = partial(place, origin, tree.lines)
        if not isinstance(content, dict):
            hint = "expected apiVersion, kind and metadata"
            self.errors.append(Problem(at(""), f"{show(content)} is not an object", hint))
            return
        unnamed = [name for name in ("apiVersion", "kind") if not _is_name(content.get(name))]
        for name in unnamed:
            message = f"{show(content[name])}: expected a name" if name in content else "the field is missing"
            self.errors.append(Problem(at(name), message, "every object has an apiVersion and a kind"))
        if unnamed:
            return
        instead = dra_versions.refused(content)
        if instead:
            served_no_more = f"{content['kind']} of {content['apiVersion']} is served no more"
            self.errors.append(Problem(at("apiVersion"), served_no_more, instead))
            return
        type_ = KINDS.get((content["apiVersion"], content["kind"]))
        if type_ is None:
            made: KubeObject = _unknown(content)
            if (made.api_version, made.kind) not in _TELLS:
                self.warnings.append(_unknown_kind(made, at("kind")))
        else:
            content = without_nulls(content)
            at = partial(dra_versions.place, content, at)
            content = dra_versions.as_v1(content)
            typed = convert(content, type_, tree.written)
            if isinstance(typed, list):
                self.errors += [Problem(at(wrong.field), wrong.message, wrong.hint) for wrong in typed]
                return
            made = typed
        self.objects.append(made.remember(origin, tree.lines, content))
        if type_ is not None:
            nameless = [Problem(at(p), text, hint) for p, text, hint in unknown.fields(content, type_)]
            self.warnings += nameless
            refused = validate.check(made, at)
            self.errors += refused
            self.beside += nameless if refused else []
            self.warnings += [] if refused else validate.check_warned(made, at)
        elif isinstance(made, Unknown):
            refused = validate.check_unread(made, at)
            self.errors += refused
            self.warnings += [] if refused else validate.check_warned(made, at)


def _files(paths: Sequence[Path], errors: list[Problem], unmade: list[Problem]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself. ``unmade``: what another program would make of the folders."""
    seen: set[Path] = set()
    for path in paths:
        apart: Collection[Path] = ()
        if path.is_dir():
            found = _below(path)
            if found is None:
                message = f"more than {MOST_FILES:,} manifests or {MOST_ENTRIES:,} files below it"
                errors.append(Problem(Where(str(path)), message, "name the folders that have the manifests"))
                continue
            if not found:
                hint = "expected .yaml, .yml or .json files"
                errors.append(Problem(Where(str(path)), "the folder has no manifests", hint))
            patches, told = beside.of_kustomize(found)
            charts, more = beside.of_helm(found)
            apart = patches | charts
            unmade += [*told, *more]
        elif path.exists():
            found = [path]
        else:
            found = []
            errors.append(Problem(Where(str(path)), "no such file or folder", "check the path"))
        for file in found:
            if file.resolve() not in seen and file.resolve() not in apart:
                seen.add(file.resolve())
                yield file, path == file


def _below(folder: Path) -> list[Path] | None:
    """The manifests in a folder, by name; None where there are too many, of which most are none."""
    found: list[Path] = []
    for number, file in enumerate(folder.rglob("*")):
        if number >= MOST_ENTRIES or len(found) > MOST_FILES:
            return None
        if _is_manifest(file, folder):
            found.append(file)
    return sorted(found)


def _is_manifest(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.suffix in SUFFIXES and not hidden and file.is_file()


def _trees(file: Path) -> Iterator[Tree]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at("not UTF-8 text", file=str(file), hint="expected a YAML or JSON file") from error
    except OSError as error:
        raise InputError.at(f"cannot be read: {error.strerror}", file=str(file), hint="check the path") from error
    if file.suffix == ".json" or (not file.suffix and text.lstrip().startswith("{")):
        yield parse_json(text, str(file))
    else:
        yield from parse(text, str(file))


def _flatten(tree: Tree) -> Iterator[Tree]:
    """The document, or the items of a List (`PodList` and the like need not repeat the items' kind)."""
    whole = tree.value
    kind = whole.get("kind") if isinstance(whole, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(whole.get("items", 0), list | None):
        yield tree
        return
    implied = {"apiVersion": whole.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    documents = []
    for index, item in enumerate(whole["items"] or []):
        content = {**implied, **item} if isinstance(item, dict) else item
        documents.append(Tree(tree.file, tree.lines.get(f"items[{index}]", tree.line), content))
    for path, line in tree.lines.items():
        if inside := _IN_ITEM.match(path):
            documents[int(inside[1])].lines[path[inside.end() :]] = line
    for path, text in tree.written.items():
        if inside := _IN_ITEM.match(path):
            documents[int(inside[1])].written[path[inside.end() :]] = text
    yield from documents


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _unknown(content: dict[str, Any]) -> Unknown:
    metadata = content.get("metadata")
    written = metadata if isinstance(metadata, dict) else {}
    names = {name: written[name] for name in ("name", "namespace") if _is_name(written.get(name))}
    return Unknown(
        api_version=content["apiVersion"], kind=content["kind"], metadata=ObjectMeta(**names), content=content
    )


def _unknown_kind(made: KubeObject, at: Where) -> Problem:
    others = sorted(version for version, kind in KINDS if kind == made.kind)
    message = f"kind {made.kind} of {made.api_version} is not read here"
    if others:
        return Problem(at, message, f"{made.kind} is read as {', '.join(others)}")
    return Problem(at, message, _NO_EFFECT)
