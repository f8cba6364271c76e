"""CUDA tables: keys, order, and values that are published."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import tonnage.facts
from tonnage.errors import InputError
from tonnage.facts import cuda, gpus

DATA = Path(tonnage.facts.__file__).parent / "data"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cuda_toolkits.csv", ("cuda",)),
        ("cuda_floors.csv", ("cuda_major",)),
        ("cuda_branches.csv", ("branch",)),
        ("cuda_architectures.csv", ("arch",)),
        ("cuda_gpus.csv", ("name",)),
        ("cuda_image_requirements.csv", ("cuda",)),
        ("cuda_images.csv", ("repository", "tag", "version_from", "cuda")),
    ],
)
def test_no_two_rows_are_about_the_same_thing(name: str, key: tuple[str, ...]) -> None:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        found = [tuple(row[column] for column in key) for row in csv.DictReader(file)]
    assert len(found) == len(set(found))


def test_a_newer_toolkit_comes_with_a_newer_driver() -> None:
    drivers = [one.driver for one in cuda.toolkits()]
    assert drivers == sorted(drivers, reverse=True)


def test_every_gpu_whose_rates_are_known_has_a_compute_capability_by_name_and_by_product() -> None:
    for one in gpus.all():
        assert cuda.gpu(one.name).arch == cuda.gpu(one.product).arch
        assert cuda.gpu(one.name).arch in cuda.architectures()


@pytest.mark.parametrize(
    ("arch", "names"),
    [
        ("7.0", ["v100"]),
        ("7.5", ["t4"]),
        ("8.0", ["a100", "a30"]),
        ("8.6", ["a10", "a16", "a2", "a40"]),
        ("8.9", ["l4", "l40", "l40s"]),
        ("9.0", ["gh200", "h100", "h200"]),
        ("10.0", ["b200", "gb200"]),
        ("10.3", ["b300", "gb300"]),
        ("11.0", ["thor"]),
        ("12.0", ["rtx-pro-6000"]),
        ("12.1", ["gb10"]),
    ],
)
def test_gpus_of_a_compute_capability(arch: str, names: list[str]) -> None:
    assert {cuda.cuda_text(cuda.gpu(name).arch) for name in names} == {arch}


@pytest.mark.parametrize("name", ["a100", "a30", "h100", "h200", "gh200", "b200", "b300", "rtx-pro-6000", "thor"])
def test_a_gpu_that_can_be_partitioned(name: str) -> None:
    assert cuda.gpu(name).mig is True
    assert [one.name for one in cuda.gpus() if one.mig and one.arch < (8, 0)] == []


def test_the_conditions_of_an_image_are_those_of_the_published_one() -> None:
    brands = ("tesla", "unknown", "nvidia", "nvidiartx", "geforce", "geforcertx", "quadro", "quadrortx", "titan")
    brands = (*brands, "titanrtx")
    listed = [f"brand={one},driver>={b},driver<{b + 1}" for b in (470, 525, 535) for one in brands]
    assert cuda.image_requirement((12, 4)) == " ".join(["cuda>=12.4", *listed])
    assert cuda.image_requirement((12, 2)).startswith(
        "cuda>=12.2 brand=tesla,driver>=450,driver<451 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470"
    )
    assert cuda.image_requirement((13, 1)).endswith("brand=cloudgaming,driver>=580,driver<581")
    assert cuda.image_requirement((12, 5)) == ""


def test_an_image_that_installs_cuda_compat_names_the_branches_that_it_runs_on() -> None:
    assert cuda.compat_branches((12, 8)) == {470, 535, 550, 560, 565}
    assert cuda.compat_branches((13, 0)) == {535, 550, 565, 570, 575}
    assert cuda.compat_branches((12, 5)) is None


@pytest.mark.parametrize("text", ["", "535.", "v535", "535.x", "-1", "５３５.1x"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a version"):
        cuda.parse_version(text)


def test_versions_compare_number_by_number_with_zeros_for_what_is_not_written() -> None:
    assert cuda.at_least((535,), (535, 0, 0))
    assert cuda.at_least((550, 54, 15), (550, 54, 14))
    assert not cuda.at_least((550, 9), (550, 54))
