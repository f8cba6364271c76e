"""`tonnage agent metrics`: one scrape printed, and one served."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tonnage.cli.agent import agent
from tonnage.errors import InputError


def _run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(agent, ["metrics", "--simulated", "2xh100", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_one_scrape_is_printed_and_what_is_missing_with_its_reason() -> None:
    code, out, err = _run("--print", "--node", "n")
    assert code == 0
    assert out.count("\nDCGM_FI_DEV_GPU_TEMP{") == 2
    assert 'Hostname="n"' in out
    assert "GPU 1: DCGM_FI_DEV_VGPU_LICENSE_STATUS: the driver does not say" in err


def test_a_file_of_counters_says_what_is_served(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    file.write_text("DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n")
    _, out, _ = _run("--print", "-f", str(file))
    assert "# HELP DCGM_FI_DEV_POWER_USAGE Power." in out
    assert "DCGM_FI_DEV_GPU_TEMP" not in out
    file.write_text("DCGM_FI_DEV_POWER_USAGE, gauge\n")
    with pytest.raises(InputError, match="2 fields, expected 3"):
        _run("--print", "-f", str(file))


@pytest.mark.parametrize("address", ["9400x", ":99999", "nowhere"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="no address"):
        _run("--listen", address)


def test_a_kubelet_that_does_not_answer_costs_the_labels_of_pods_alone(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    code, out, err = _run("--print", "--pod-resources", str(tmp_path / "none.sock"))
    assert code == 0
    assert "DCGM_FI_DEV_GPU_TEMP" in out
    assert "does not list pods" in err
