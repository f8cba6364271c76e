"""The config file: defaults of options, what goes before them, and what is wrong in it by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_builders import make_scenario, tonnage

from tonnage.cli import config


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv(config.VARIABLE, str(path))
    return path


def seed_of(capfd: pytest.CaptureFixture[str], *arguments: object) -> int:
    ran = tonnage(capfd, "simulate", *arguments, "-q", "-o", "json")
    assert ran.code == 0, ran.err
    seed: int = json.loads(ran.out)["seed"]
    return seed


def test_a_flag_goes_before_the_command_that_before_all_commands_and_these_before_the_default(
    capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    scenario = make_scenario(file.parent)
    file.write_text("# nothing\n")
    assert seed_of(capfd, scenario) == 0
    file.write_text("seed = 3\n")
    assert seed_of(capfd, scenario) == 3
    file.write_text("seed = 3\n[simulate]\nseed = 5\n[compare]\nseed = 7\n")
    assert seed_of(capfd, scenario) == 5
    assert seed_of(capfd, scenario, "--seed", 9) == 9


def test_a_variable_of_the_environment_goes_before_the_file(
    capfd: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = file.with_name("log.jsonl")
    log.write_text(json.dumps({"timestamp": 0, "prompt_token_ids": list(range(32)), "output_tokens": 1}))

    def hashed(*options: str) -> str:
        ran = tonnage(capfd, "trace", "hash", log, "--block-size", 16, "-o", "-", *options)
        assert ran.code == 0, ran.err
        return ran.out

    file.write_text("")
    of_file, of_variable = hashed("--salt", "file"), hashed("--salt", "variable")
    file.write_text('[trace.hash]\nsalt = "file"\n')
    assert hashed() == of_file != of_variable
    monkeypatch.setenv("TONNAGE_TRACE_SALT", "variable")
    assert hashed() == of_variable
    assert hashed("--salt", "file") == of_file


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("seeed = 1\n", ":1:seeed: ", "no command has the option --seeed (did you mean seed?)"),
        ("\n[simulate]\nsede = 1\n", ":3:simulate.sede: ", "simulate has no option --sede (did you mean seed?)"),
        ("[simulat]\nseed = 1\n", ":1:simulat: ", "no command 'simulat' (did you mean simulate?)"),
        ("[trace]\n[trace.fitt]\n", ":2:trace.fitt: ", "no command 'trace fitt' (did you mean fit?)"),
        ('[simulate]\n# many\nseed = "many"\n', ":3:simulate.seed: ", "'many' is not a valid"),
        ("[simulate]\nquiet = 1\n", ":2:simulate.quiet: ", "1, expected true or false"),
        ("[simulate]\nseed = true\n", ":2:simulate.seed: ", "True is for options that are on or off"),
        ("[compare]\npolicy = 'slo'\n", ":2:compare.policy: ", "'slo', expected a list"),
        ("[simulate]\npolicy = ['slo']\n", ":2:simulate.policy: ", "not a list"),
        ("seed = 1\nseed = 2\n", ":2: ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_by_its_line_and_key(
    capfd: pytest.CaptureFixture[str], file: Path, text: str, place: str, said: str
) -> None:
    file.write_text(text)
    for words in (("config",), ("mig", "layouts", "h100")):
        ran = tonnage(capfd, *words)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.errors) == 1
        assert ran.err.startswith(f"error: {file}{place}")
        assert said in ran.err


def test_every_wrong_line_is_told_at_once_and_help_is_there_all_the_same(
    capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    file.write_text("sede = 1\n[simulate]\nquite = true\n")
    assert len(tonnage(capfd, "mig", "layouts", "h100").errors) == 2
    assert tonnage(capfd, "simulate", "--help").code == 0
    assert tonnage(capfd).code == 0


def test_what_holds_is_shown_with_its_line_and_commands(capfd: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text('output = "json"\n\n[size]\ngpu = ["h100", "l40s"]\n')
    ran = tonnage(capfd, "config", "-o", "json")
    first, second = json.loads(ran.out)["settings"]
    assert (first["option"], first["value"], first["line"]) == ("--output", "json", 1)
    assert {"simulate", "size"} <= set(first["commands"])
    assert not {"trace hash", "trace fit"} & set(first["commands"]), "there it is a file to write"
    assert second == {"option": "--gpu", "value": ["h100", "l40s"], "line": 4, "commands": ["size"]}
    assert yaml.safe_load(tonnage(capfd, "config", "-o", "yaml").out) == json.loads(ran.out)
    told = tonnage(capfd, "config", "-o", "table").out
    assert told.startswith(f"{file}: 2 settings\n") and "line 4: --gpu h100, l40s for size" in told


def test_a_value_that_some_commands_do_not_take_holds_for_those_that_do(
    capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    file.write_text('output = "table"\n')
    (one,) = json.loads(tonnage(capfd, "config", "-o", "json").out)["settings"]
    assert "simulate" in one["commands"] and "version" not in one["commands"]
    assert tonnage(capfd, "version").out.startswith("tonnage ")


def test_the_file_is_found_below_the_home_folder_unless_the_variable_is_there(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "tonnage" / "config.toml"
    home.parent.mkdir(parents=True)
    home.write_text("seed = 2\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parents[1]))
    monkeypatch.setenv(config.VARIABLE, "")
    assert config.find() is None
    monkeypatch.delenv(config.VARIABLE)
    assert config.find() == home
    monkeypatch.setenv(config.VARIABLE, str(tmp_path / "none.toml"))
    ran = tonnage(capfd, "version")
    assert ran.code == 2 and "none.toml" in ran.err and config.VARIABLE in ran.err
