"""Parts of GPUs that there cannot be are refused by check, at the annotation, and those that there can be are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.health.diagnose import diagnose
from tonnage.health.setting import Setting
from tonnage.objects.load import read
from tonnage.provisioning.catalogue import Catalogue

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    owner: me
{annotations}
spec:
  containers:
    - {{name: main, image: busybox, resources: {{limits: {limits}}}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata:
      labels: {app: d}
      annotations:
        gpu-fraction: "1.5"
    spec:
      containers: [{name: main, image: busybox}]
"""


def said(folder: Path, text: str) -> list[tuple[int, str]]:
    """(line, message) of what is said of parts of GPUs."""
    file = folder / "set.yaml"
    file.write_text(text)
    found = diagnose(Setting(read([file]).objects, Catalogue.load()))
    return [(one.where.line, one.message) for one in found if one.rule == "gpu-part-invalid"]


@pytest.mark.parametrize(
    ("annotations", "limits", "line", "why"),
    [
        ({"gpu-fraction": "1.5"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-fraction": "0"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-fraction": "-0.2"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-fraction": "half"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-memory": "2Gi"}, "{}", 7, "is not a whole number"),
        ({"gpu-fraction": "0.5", "gpu-memory": "2000"}, "{}", 7, "exclude each other"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "none"}, "{}", 8, "is not a whole number"),
        ({"gpu-fraction": "0.5"}, "{nvidia.com/gpu: 1}", 7, "cannot be combined with a request for a whole GPU"),
        ({"gpu-fraction": "1.0"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-fraction": "NaN"}, "{}", 7, "is not a number between 0 and 1"),
        ({"gpu-memory": "0"}, "{}", 7, "is not a whole number"),
        ({"gpu-fraction-num-devices": "2"}, "{}", 7, "is of no use without gpu-fraction"),
        ({}, "{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 150}", 10, "more than 100 per cent"),
        ({}, "{nvidia.com/gpu: 1, nvidia.com/gpucores: 130}", 10, "nvidia.com/gpucores 130 is more than 100 per cent"),
        ({}, "{nvidia.com/gpumem: 4000, nvidia.com/mig-1g.5gb: 1}", 10, "cannot be combined with MIG instances"),
    ],
)
def test_a_part_that_there_cannot_be_is_an_error(
    tmp_path: Path, annotations: dict[str, str], limits: str, line: int, why: str
) -> None:
    text = "\n".join(f'    {name}: "{value}"' for name, value in annotations.items())
    ((at, message),) = said(tmp_path, POD.format(annotations=text or "    other: x", limits=limits))
    assert why in message
    assert at == line


def test_the_annotation_of_a_template_is_named_at_its_line(tmp_path: Path) -> None:
    ((at, message),) = said(tmp_path, DEPLOYMENT)
    assert (at, "'1.5'" in message) == (10, True)


def test_what_helps_is_said_of_resources_where_there_are_no_annotations(tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    for annotation, helps in (
        ("other: x", "nvidia.com/gpucores up to 100"),
        ("gpu-fraction: '2'", "above 0 and below"),
    ):
        file.write_text(
            POD.format(annotations=f"    {annotation}", limits="{nvidia.com/gpu: 1, nvidia.com/gpucores: 130}")
        )
        (found,) = diagnose(Setting(read([file]).objects, Catalogue.load()))
        assert helps in found.help


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({"gpu-fraction": "0.5"}, "{}"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "{}"),
        ({"gpu-memory": "2000"}, "{cpu: 1}"),
        ({}, "{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50, nvidia.com/gpucores: 30}"),
        ({}, "{nvidia.com/gpu: 1}"),
    ],
)
def test_a_part_that_there_can_be_is_no_error(tmp_path: Path, annotations: dict[str, str], limits: str) -> None:
    text = "\n".join(f'    {name}: "{value}"' for name, value in annotations.items())
    assert said(tmp_path, POD.format(annotations=text or "    other: x", limits=limits)) == []
