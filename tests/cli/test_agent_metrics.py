"""`tonnage agent metrics`: one scrape printed, and one served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

import pytest
from click.testing import CliRunner

from tonnage.cli import agent_metrics, terminal
from tonnage.cli.agent import agent
from tonnage.errors import InputError
from tonnage.node.devices import DeviceEvent
from tonnage.node.simulated import SimulatedMachine


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
    with pytest.raises(InputError, match="not an address"):
        _run("--listen", address)


def test_a_kubelet_that_does_not_answer_costs_the_labels_of_pods_alone(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    code, out, err = _run("--print", "--pod-resources", str(tmp_path / "none.sock"))
    assert code == 0
    assert "DCGM_FI_DEV_GPU_TEMP" in out
    assert "does not list pods" in err


def test_who_scrapes_gets_metrics_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    got: list[tuple[str, int, bytes]] = []
    state, away = tmp_path / "state.json", tmp_path / "away.json"
    looked = SimulatedMachine.events

    def ask(method: str, path: str) -> None:
        port = int(said[0].partition("127.0.0.1:")[2].partition("/")[0])
        client = HTTPConnection("127.0.0.1", port, timeout=5)
        client.request(method, path)
        answer = client.getresponse()
        got.append((f"{method} {path}", answer.status, answer.read()))
        client.close()

    def scraped(machine: SimulatedMachine, timeout_s: float) -> Sequence[DeviceEvent]:
        assert timeout_s <= 0.1, "what the driver reports is asked for no less often than the cards are read"
        time.sleep(0.1)  # the next reading is due
        if state.exists() and not got:
            for path in ("/metrics", "/metrics?collect[]=x", "/health", "/nothing"):
                ask("GET", path)
            ask("HEAD", "/metrics")
            found = looked(machine, 0)
            state.rename(away)
            return found
        ask("GET", "/metrics")
        if state.exists():
            raise KeyboardInterrupt
        away.rename(state)
        return looked(machine, 0)

    monkeypatch.setattr(SimulatedMachine, "events", scraped)
    monkeypatch.setattr(terminal, "echo", lambda line, **_: said.append(str(line)))
    _run("--listen", "127.0.0.1:0", "--state", str(state), "--interval", "0.1")
    assert [status for _, status, _ in got] == [200, 200, 200, 404, 200, 503, 200]
    assert all(b"DCGM_FI_DEV_GPU_TEMP" in body for _, _, body in (*got[:2], got[-1]))
    assert (got[2][2], got[4][2]) == (b"ok\n", b"")
    assert b"state.json: cannot be read" in got[5][2]
    assert said[-1].startswith(f"warning: {state}: cannot be read")


def test_a_reading_is_kept_for_its_interval_and_refused_when_the_driver_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    texts = iter(["first", "second", "third"])
    reading = agent_metrics._Reading(lambda: next(texts), 5.0)
    assert reading.body() == (b"", "the cards have not been read yet")
    reading.renew()
    now[0] += 4.9
    reading.renew()
    assert reading.body() == (b"first", "")
    reading.renew(at_once=True)
    assert reading.body() == (b"second", "")
    now[0] += 5.0
    reading.renew()
    now[0] += 25.0
    assert reading.body() == (b"third", "")
    now[0] += 0.1
    assert reading.body() == (b"", "the cards were read 25 s ago: the driver does not answer")
