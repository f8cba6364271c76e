"""Which configuration the device plugin goes by, as the node's label and the files say now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_builders import tonnage

from tonnage.cli.agent_config import PluginConfig
from tonnage.errors import InputError
from tonnage.kube.transport import ClientError
from tonnage.partitioning.device_plugin import CONFIG_LABEL, Config


def _write(path: Path, replicas: int) -> None:
    text = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: %d}\n"
    new = path.with_name(f".{path.name}.new")
    new.write_text(text % replicas)
    new.replace(path)  # as a ConfigMap's files change: at once


def _replicas(config: Config) -> int:
    shared = config.sharing.time_slicing
    return shared.resources[0].replicas if shared is not None else 1


def test_the_nodes_label_chooses_of_a_configmap_and_another_label_another(tmp_path: Path) -> None:
    labels: dict[str, str] = {}
    for name, replicas in (("default", 2), ("a100", 4), ("l4", 8)):
        _write(tmp_path / name, replicas)
    (tmp_path / "..data").mkdir()
    config = PluginConfig(tmp_path, lambda: labels)
    assert _replicas(config.read()) == 2
    assert not config.changed()
    labels[CONFIG_LABEL] = "a100"
    assert config.changed()
    assert _replicas(config.read()) == 4
    assert config.name == str(tmp_path / "a100")
    _write(tmp_path / "a100", 6)
    assert config.changed()
    assert _replicas(config.read()) == 6
    _write(tmp_path / "l4", 9)
    assert not config.changed(), "what other nodes go by is nothing to this one"


def test_the_default_counts_without_label_and_nothing_is_the_default_configuration(tmp_path: Path) -> None:
    for name, replicas in (("a100", 4), ("l4", 8)):
        _write(tmp_path / name, replicas)
    assert _replicas(PluginConfig(tmp_path, dict, "l4").read()) == 8
    assert _replicas(PluginConfig(tmp_path, dict).read()) == 1, "neither named default, nor the only one"
    assert _replicas(PluginConfig(None).read()) == 1
    (tmp_path / "l4").unlink()
    assert _replicas(PluginConfig(tmp_path, dict).read()) == 4, "the only one"


def test_a_label_that_names_nothing_is_said_once_and_mended_by_the_file(tmp_path: Path) -> None:
    _write(tmp_path / "a100", 4)
    config = PluginConfig(tmp_path, lambda: {CONFIG_LABEL: "h100"})
    with pytest.raises(InputError, match="unknown configuration 'h100'"):
        config.read()
    assert not config.changed()
    _write(tmp_path / "h100", 3)
    assert config.changed()
    assert _replicas(config.read()) == 3


def test_while_the_label_cannot_be_asked_the_last_one_counts(tmp_path: Path) -> None:
    for name, replicas in (("default", 2), ("a100", 4)):
        _write(tmp_path / name, replicas)
    down = False

    def labels() -> dict[str, str]:
        if down:
            raise ClientError("no answer")
        return {CONFIG_LABEL: "a100"}

    config = PluginConfig(tmp_path, labels)
    assert _replicas(config.read()) == 4
    down = True
    assert not config.changed()
    assert config.problem == "no answer"
    assert _replicas(config.read()) == 4
    down = False
    assert not config.changed()
    assert config.problem == ""


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    _write(file, 2)
    config = PluginConfig(file)
    config.read()
    assert not config.changed()
    os.utime(file, ns=(1, 1))
    assert config.changed()


@pytest.mark.parametrize("part", ["dra", "labels", "doctor"])
def test_an_empty_name_of_simulated_cards_is_not_this_machine(capfd: pytest.CaptureFixture[str], part: str) -> None:
    ran = tonnage(capfd, "agent", part, "--simulated", "")
    assert ran.code == 2
    assert "--simulated" in ran.err and "the name is empty" in ran.err
