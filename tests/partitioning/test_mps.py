"""CUDA MPS: default limits, how many clients, and how speed divides."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, Where
from tonnage.partitioning.mps import MpsClient, divide, limits

parts = st.floats(0.01, 1.0)


def test_clients_have_equal_parts_of_memory_and_threads_rounded_down() -> None:
    given_ = limits("a100-80", 3)
    assert (given_.percent, given_.memory_mib) == (33, 81920 // 3)


@pytest.mark.parametrize(("gpu", "most"), [("v100", 16), ("t4", 48), ("a100-80", 48), ("h100", 48)])
def test_a_server_takes_48_clients_and_16_before_compute_capability_7_5(gpu: str, most: int) -> None:
    assert limits(gpu, most).clients == most
    with pytest.raises(InputError, match=f"{most + 1} replicas on {gpu} .MPS takes 2 to {most} clients"):
        limits(gpu, most + 1)


def test_mps_on_a_mig_instance_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"pool\.yaml:7:sharing.mps: MPS on the MIG instance h100:1g.10gb"):
        limits("h100:1g.10gb", 2, Where("pool.yaml", 7, "sharing.mps"))


def test_processes_that_fill_the_gpu_divide_it_by_their_percentages() -> None:
    assert divide([MpsClient(percent=25)] * 4) == pytest.approx([0.25] * 4)
    assert divide([MpsClient(percent=75), MpsClient(percent=25)]) == pytest.approx([0.75, 0.25])
    assert divide([MpsClient()] * 2) == pytest.approx([0.5, 0.5])


def test_processes_that_leave_sms_free_run_beside_each_other_at_full_speed() -> None:
    assert divide([MpsClient(sms=0.25, bandwidth=0.2, percent=25)] * 4) == pytest.approx([1.0] * 4)


def test_nobody_gets_nothing() -> None:
    assert divide([]) == ()


def test_memory_bandwidth_is_shared_whatever_the_percentage() -> None:
    assert divide([MpsClient(sms=0.2, bandwidth=1.0, percent=25)] * 4) == pytest.approx([0.25] * 4)


def measured(card: str) -> list[tuple[str, list[dict[str, str]]]]:
    path = Path(__file__).parents[2] / "benchmarks" / "data" / f"gpu_mps_{card}.csv"
    with path.open() as file:
        return [(case, list(rows)) for case, rows in groupby(csv.DictReader(file), key=lambda row: row["case"])]


@pytest.mark.parametrize(("card", "worst"), [("h100", 0.25), ("h200", 0.30)])
def test_speeds_are_near_those_of_a_real_card_where_percentages_add_up_to_100(card: str, worst: float) -> None:
    limited = [(case, rows) for case, rows in measured(card) if sum(int(row["percent"]) for row in rows) <= 100]
    errors = []
    for case, rows in limited:
        clients = [MpsClient(float(row["sms"]), float(row["bandwidth"]), float(row["percent"])) for row in rows]
        for row, speed in zip(rows, divide(clients), strict=True):
            errors.append(abs(speed / float(row["speed"]) - 1))
            assert errors[-1] < worst, case
    assert len(errors) == 21
    assert sorted(errors)[len(errors) // 2] < 0.05


@pytest.mark.parametrize("card", ["h100", "h200"])
def test_without_limits_a_client_of_short_kernels_starves_beside_one_of_long_kernels(card: str) -> None:
    """Which the model does not follow: it is why percentages must be set."""
    (rows,) = [rows for case, rows in measured(card) if case == "matmul@100+decode@100"]
    speed = {row["workload"]: float(row["speed"]) for row in rows}
    assert speed["matmul"] > 0.9
    assert speed["decode"] < 0.2


@given(st.lists(st.builds(MpsClient, parts, parts, st.floats(1, 100)), min_size=1, max_size=12))
def test_no_more_is_used_than_there_is_and_nobody_exceeds_its_percentage(clients: list[MpsClient]) -> None:
    speeds = divide(clients)
    assert sum(one.sms * speed for one, speed in zip(clients, speeds, strict=True)) <= 1 + 1e-9
    assert sum(one.bandwidth * speed for one, speed in zip(clients, speeds, strict=True)) <= 1 + 1e-9
    for one, speed in zip(clients, speeds, strict=True):
        assert 0 < speed <= min(1.0, one.percent / 100 / one.sms) + 1e-9


@pytest.mark.parametrize("one", [MpsClient(sms=0.0), MpsClient(bandwidth=1.1), MpsClient(percent=0)])
def test_parts_outside_0_to_1_are_refused(one: MpsClient) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        divide([one])


def test_nobody_runs_and_nothing_is_divided() -> None:
    assert divide([]) == ()
