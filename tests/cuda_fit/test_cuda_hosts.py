"""Nodes by labels and by what a user names."""

from __future__ import annotations

import pytest

from tonnage.cuda_fit import host
from tonnage.cuda_fit.host import Host
from tonnage.errors import InputError

NEW = {
    "nvidia.com/cuda.driver-version.full": "535.161.08",
    "nvidia.com/cuda.driver-version.major": "535",
    "nvidia.com/cuda.driver-version.minor": "161",
    "nvidia.com/cuda.driver-version.revision": "08",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "2",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.family": "hopper",
}
OLD = {
    "nvidia.com/cuda.driver.major": "535",
    "nvidia.com/cuda.driver.minor": "161",
    "nvidia.com/cuda.driver.rev": "08",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "2",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
}


@pytest.mark.parametrize("labels", [NEW, OLD], ids=["present labels", "deprecated labels"])
def test_labels_of_feature_discovery_say_driver_cuda_and_gpu(labels: dict[str, str]) -> None:
    found = host.of_labels(labels)
    assert (found.driver, found.branch, found.cuda) == ((535, 161, 8), 535, (12, 2))
    assert (found.arch, found.gpu, found.forward_compat) == ((9, 0), "h100", True)
    assert found.brands == {"nvidia", "unknown"}


def test_labels_and_names_of_the_same_node_agree() -> None:
    assert host.of_labels(OLD) == host.of("535.161.08", "h100")


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "a100"),
        ("NVIDIA-A10-SHARED", "a10"),
        ("NVIDIA-A10G", "a10g"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA-H100-NVL-MIG-INVALID", "h100"),
        ("NVIDIA-H200", "h200"),
        ("NVIDIA-GH200-480GB", "gh200"),
        ("Tesla-V100-SXM2-16GB", "v100"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"),
        ("NVIDIA-H1000", "NVIDIA-H1000"),
    ],
)
def test_a_slice_or_a_share_is_of_its_gpu(product: str, name: str) -> None:
    assert host.of_labels({"nvidia.com/gpu.product": product}).gpu == name


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"app": "x", "nvidia.com/gpu.count": "8"},
        {"nvidia.com/cuda.driver-version.full": "unknown"},
        {"nvidia.com/cuda.driver.major": "x", "nvidia.com/gpu.compute.major": "9"},
        {"nvidia.com/cuda.driver-version.full": "9" * 5000, "nvidia.com/cuda.driver.major": "9" * 5000},
    ],
)
def test_labels_that_say_nothing_are_not_known(labels: dict[str, str]) -> None:
    assert host.of_labels(labels) == Host()
    assert not host.has_gpu(labels)


def test_the_cuda_version_that_a_label_says_stands_over_the_table() -> None:
    newer = {"nvidia.com/cuda.driver-version.full": "615.10", "nvidia.com/cuda.runtime-version.major": "13"}
    assert host.of_labels(newer).cuda is None
    assert host.of_labels({**newer, "nvidia.com/cuda.runtime-version.minor": "5"}).cuda == (13, 5)
    assert host.of_labels({**newer, "nvidia.com/cuda.runtime-version.full": "13.5"}).cuda == (13, 5)


@pytest.mark.parametrize(("branch", "cuda"), [("535", (12, 2)), ("565", (12, 6)), ("580", (13, 0)), ("400", None)])
def test_a_branch_alone_runs_what_its_releases_run(branch: str, cuda: tuple[int, int] | None) -> None:
    assert host.of(branch).cuda == cuda


def test_a_named_driver_and_gpu_replace_all_that_labels_say_of_them() -> None:
    labelled = host.of_labels(NEW)
    assert host.of("615.10", labelled=labelled).cuda is None
    assert host.of("535.161.08", labelled=labelled) == labelled
    assert host.of(gpu="thor", labelled=labelled) == host.of("535.161.08", "thor")
    with pytest.raises(InputError, match=r"h100 has compute capability 9\.0, not 8\.0"):
        host.of(arch="8.0", labelled=labelled)


@pytest.mark.parametrize("written", ["90", "9.0.0", "9" * 5000])
def test_what_is_no_compute_capability_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="--arch"):
        host.of(arch=written)


def test_a_compute_capability_that_is_not_that_of_the_gpu_is_refused() -> None:
    assert host.of(gpu="h100", arch="9").arch == (9, 0)
    with pytest.raises(InputError, match=r"h100 has compute capability 9\.0, not 8\.0"):
        host.of(gpu="h100", arch="8.0")


def test_a_gpu_that_nobody_knows_proposes_near_names() -> None:
    with pytest.raises(InputError, match="did you mean"):
        host.of(gpu="h1000")
