"""MPS control daemons: started with the limits of a replica, waited for, and missed when they have ended."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.node.mps_daemon import MpsCard, MpsDaemon, answers, handed_out, pipe_folder, run_program
from tonnage.node.simulated_mps import SimulatedMps
from tonnage.units import NS_PER_S

GPU = "nvidia.com/gpu"
CARDS = (MpsCard("GPU-0", 0, 20480), MpsCard("GPU-1", 1, None))


def _daemon(root: Path, run: Any) -> MpsDaemon:
    return MpsDaemon(GPU, root, CARDS, 4, run)


def test_a_daemon_is_started_with_a_replicas_share_of_threads_and_memory_and_its_cards_are_its_own(
    tmp_path: Path,
) -> None:
    run = SimulatedMps()
    daemon = _daemon(tmp_path, run)
    assert daemon.look(0)
    assert run.modes == {"GPU-0": "EXCLUSIVE_PROCESS", "GPU-1": "EXCLUSIVE_PROCESS"}
    assert run.told[str(pipe_folder(GPU, tmp_path))] == [
        "set_default_device_pinned_mem_limit 0 20480M",
        "set_default_active_thread_percentage 25",
    ]
    daemon.stop()
    assert not answers(pipe_folder(GPU, tmp_path))


def test_one_that_has_ended_is_missed_and_started_again_half_a_minute_later(tmp_path: Path) -> None:
    run = SimulatedMps()
    daemon = _daemon(tmp_path, run)
    daemon.look(0)
    run.end(str(pipe_folder(GPU, tmp_path)))
    assert (pipe_folder(GPU, tmp_path) / "control").exists(), "what it leaves behind does not count"
    assert not daemon.look(5 * NS_PER_S)
    assert daemon.look(31 * NS_PER_S)


def test_one_that_does_not_start_is_told_with_the_reason(tmp_path: Path) -> None:
    run = SimulatedMps()
    run.broken = "the driver is not loaded"
    daemon = _daemon(tmp_path, run)
    assert not daemon.look(0)
    assert daemon.problem == f"{GPU}: no MPS control daemon: the driver is not loaded"


def test_one_that_was_not_told_its_limits_is_of_no_use_until_it_is(tmp_path: Path) -> None:
    run = SimulatedMps()
    run.deaf = "Cannot find MPS control daemon process"
    daemon = _daemon(tmp_path, run)
    assert not daemon.look(0)
    assert not daemon.look(1 * NS_PER_S), "it answers, and a pod would run without limits"
    assert daemon.problem == f"{GPU}: the MPS control daemon has no limits: Cannot find MPS control daemon process"
    run.deaf = ""
    assert daemon.look(31 * NS_PER_S)
    assert run.told[str(pipe_folder(GPU, tmp_path))] == [
        "set_default_device_pinned_mem_limit 0 20480M",
        "set_default_active_thread_percentage 25",
    ]
    daemon.stop()


def test_one_that_somebody_else_has_started_is_used_and_left_running(tmp_path: Path) -> None:
    folder = pipe_folder(GPU, tmp_path)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as theirs:  # of another type than ours asks with
        theirs.bind(str(folder / "control"))
        theirs.listen()
        run = SimulatedMps()
        daemon = _daemon(tmp_path, run)
        assert daemon.look(0)
        daemon.stop()
        assert (run.told, run.modes) == ({}, {})
        assert answers(folder)


def test_a_named_pipe_of_an_older_driver_answers_while_somebody_reads_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    assert stat.S_ISFIFO((tmp_path / "control").stat().st_mode)
    assert not answers(tmp_path)
    reading = os.open(tmp_path / "control", os.O_RDONLY | os.O_NONBLOCK)
    assert answers(tmp_path)
    os.close(reading)


def test_a_container_finds_its_daemon_and_the_shared_memory(tmp_path: Path) -> None:
    environment, mounts = handed_out(GPU, tmp_path)
    assert environment == {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"}
    assert [(one.container_path, one.host_path) for one in mounts] == [
        ("/mps/nvidia.com/gpu/pipe", str(tmp_path / "nvidia.com/gpu/pipe")),
        ("/dev/shm", str(tmp_path / "shm")),
    ]


def test_a_program_is_run_with_its_environment_and_input_and_its_failure_told() -> None:
    run_program(["sh", "-c", '[ "$A" = 1 ] && [ "$(cat)" = text ]'], {"A": "1"}, "text")
    with pytest.raises(InputError, match="out of order"):
        run_program(["sh", "-c", "echo out of order >&2; exit 3"], {}, "")
    with pytest.raises(InputError, match="cannot be run"):
        run_program(["no-such-program"], {}, "")
