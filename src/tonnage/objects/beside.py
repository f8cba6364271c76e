"""What stands beside manifests in a folder and is none: files of other programs, and what only kustomize or Helm makes.

Of kustomize: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
Of Helm: https://helm.sh/docs/topics/charts/
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, Problem, Where
from tonnage.objects.tree import parse

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
CHART = "Chart.yaml"
_TEMPLATES = "templates"
_OF_AN_OBJECT = ("apiVersion", "kind", "metadata", "spec")
_WITH_PATHS = ("patches", "patchesJson6902", "patchesStrategicMerge", "replacements", "configurations", "openapi")
"""Fields of a kustomization that name files which are no objects by themselves."""


def is_other(values: Sequence[Any]) -> bool:
    """Whether no document of a file is meant as a Kubernetes object: such as Helm's values, or a dashboard."""
    return bool(values) and not any(isinstance(one, dict) and any(f in one for f in _OF_AN_OBJECT) for one in values)


def passed_over(file: Path) -> Problem:
    """That a file is none."""
    return Problem(Where(str(file)), "passed over: it has neither apiVersion nor kind, so it is no manifest")


def of_kustomize(files: Sequence[Path]) -> tuple[frozenset[Path], list[Problem]]:
    """Of the files below a folder: which are not read as they are kustomizations or named by one as a patch, and what
    that leaves undone. A kustomization that cannot be read is left to whoever reads all files."""
    apart: set[Path] = set()
    told: list[Problem] = []
    for file in files:
        if file.name not in KUSTOMIZATIONS:
            continue
        try:
            (whole,) = [one.value for one in parse(file.read_text(encoding="utf-8-sig"), str(file))]
        except (InputError, OSError, UnicodeDecodeError, ValueError):
            continue
        if not isinstance(whole, dict):
            continue
        apart.add(file.resolve())
        apart |= {(file.parent / one).resolve() for one in _named(whole)}
        message = "what kustomize changes or generates is left out: files are read as they stand, and patches are not"
        told.append(
            Problem(Where(str(file)), message, f"kubectl kustomize {shlex.quote(str(file.parent))} | tonnage … -")
        )
    return frozenset(apart), told


def of_helm(files: Sequence[Path]) -> tuple[frozenset[Path], list[Problem]]:
    """Of the files below a folder: which are a Helm chart's own, its templates and its values, and what that leaves
    undone, once for a chart and its subcharts. What is in ``crds`` are objects as they stand."""
    charts = [file.parent for file in files if file.name == CHART]
    apart: set[Path] = set()
    told: list[Problem] = []
    for chart in charts:
        own = (one for one in files if one.parent == chart or one.is_relative_to(chart / _TEMPLATES))
        apart |= {one.resolve() for one in own}
        if not any(other in chart.parents for other in charts):
            message = "a Helm chart is not rendered here: its templates and values are left out"
            told.append(
                Problem(Where(str(chart / CHART)), message, f"helm template {shlex.quote(str(chart))} | tonnage … -")
            )
    return frozenset(apart), told


def _named(kustomization: dict[str, Any]) -> Iterator[str]:
    """The files that it names, and that are no objects."""
    for field in _WITH_PATHS:
        given = kustomization.get(field)
        for one in given if isinstance(given, list) else [given]:
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and "\n" not in path:
                yield path
