from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.objects.core import PodSpec, pod_requests

GIB = 2**30


def container(
    name: str = "c", *, sidecar: bool = False, limits: dict[str, Any] | None = None, **requests: Any
) -> dict[str, Any]:
    resources = {
        "requests": {k.replace("gpu", "nvidia.com/gpu"): v for k, v in requests.items()},
        "limits": limits or {},
    }
    return {"name": name, "resources": resources, "restartPolicy": "Always" if sidecar else ""}


def requests(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, int]:
    return pod_requests(
        msgspec.convert({"containers": list(containers), "initContainers": init or [], **spec}, PodSpec)
    )


def test_containers_add_up() -> None:
    found = requests(container(cpu="500m", memory="1Gi", gpu=1), container(cpu=2, gpu="3"))
    assert found == {"cpu": 2500, "memory": GIB, "nvidia.com/gpu": 4}


def test_a_limit_without_a_request_is_the_request() -> None:
    found = requests(container(cpu="1", limits={"cpu": "4", "memory": "2Gi", "nvidia.com/gpu": 1}))
    assert found == {"cpu": 1000, "memory": 2 * GIB, "nvidia.com/gpu": 1}


def test_an_init_container_counts_where_it_asks_for_more_than_all_that_follow() -> None:
    found = requests(
        container(cpu=2, memory="1Gi"), container(cpu=1), init=[container(cpu=4, memory="512Mi"), container(cpu=1)]
    )
    assert found == {"cpu": 4000, "memory": GIB}


def test_sidecars_run_beside_the_containers() -> None:
    found = requests(container(cpu=2), init=[container(sidecar=True, cpu=1), container(sidecar=True, cpu="500m")])
    assert found == {"cpu": 3500}


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([container(cpu=6), container(sidecar=True, cpu=2)], 6000),  # before the sidecar: alone
        ([container(sidecar=True, cpu=2), container(cpu=6)], 8000),  # after it: beside it
        ([container(sidecar=True, cpu=2), container(cpu=1)], 4000),  # the containers and the sidecar need more
    ],
)
def test_an_init_container_runs_beside_the_sidecars_that_were_started_before_it(
    init: list[dict[str, Any]], cpu: int
) -> None:
    assert requests(container(cpu=2), init=init) == {"cpu": cpu}


def test_overhead_comes_on_top_of_the_larger_of_both() -> None:
    found = requests(container(cpu=1), init=[container(cpu=3)], overhead={"cpu": "250m", "memory": "64Mi"})
    assert found == {"cpu": 3250, "memory": 64 * 2**20}


def test_requests_of_the_pod_as_a_whole_replace_the_sum() -> None:
    whole = {"requests": {"cpu": "2"}, "limits": {"cpu": "8", "memory": "4Gi"}}
    found = requests(container(cpu=5, gpu=1), resources=whole)
    assert found == {"cpu": 2000, "memory": 4 * GIB, "nvidia.com/gpu": 1}


def test_a_limit_of_the_pod_as_a_whole_does_not_replace_what_containers_request() -> None:
    found = requests(container(cpu=1, memory="1Gi"), resources={"limits": {"cpu": "8", "memory": "4Gi"}})
    assert found == {"cpu": 1000, "memory": GIB}


def test_a_pod_that_asks_for_nothing_requests_nothing() -> None:
    assert requests(container()) == {}
