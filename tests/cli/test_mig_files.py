"""`tonnage mig check`, `render` and `node` as people and scripts see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import tonnage

CONFIGS = """\
version: v1
mig-configs:
  idle:
    - devices: all
      mig-enabled: false
  seven:
    - device-filter: ["0x233010DE", "0x20B710DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
  eighths:
    - device-filter: "0x20B210DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "4g.40gb": 1}
"""

SHARING = """\
version: v1
sharing:
  timeSlicing:
    resources:
      - name: nvidia.com/gpu
        replicas: 4
        rename: small
"""


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("mig.yaml")
    path.write_text(CONFIGS, encoding="utf-8")
    return path


@pytest.fixture
def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("sharing.yaml")
    path.write_text(SHARING, encoding="utf-8")
    return path


def narrow(text: str) -> bool:
    """Whether all lines fit into 80 columns."""
    return all(len(line) <= 80 for line in text.splitlines())


def test_check_says_what_each_configuration_makes_and_draws_what_cannot_be(
    capfd: pytest.CaptureFixture[str], configs: Path
) -> None:
    done = tonnage(capfd, "mig", "check", configs)
    assert done.code == 1
    assert "    MIG off: every GPU\n" in done.out
    assert "    7 x 1g.10gb: h100\n" in done.out
    assert "a30" in done.out and "it has no profile 1g.10gb" in " ".join(done.out.split())
    assert "[---------------4g.40gb---------------] [-----2g.20gb-----] [1g.10gb] ·········\n" in done.out
    assert narrow(done.out)
    assert not done.err


def test_check_in_json_has_layouts_with_places_and_problems_with_lines(
    capfd: pytest.CaptureFixture[str], configs: Path
) -> None:
    answer = json.loads(tonnage(capfd, "mig", "check", configs, "-o", "json").out)
    assert answer["schema"] == "tonnage.dev/mig-check/v1"
    [report] = answer["files"]
    assert (report["kind"], report["key"]) == ("mig-parted", "")
    idle, seven, eighths = report["configs"]
    assert (idle["makes"][0]["mig"], idle["makes"][0]["layout"]) == (False, None)
    [made] = seven["makes"]
    assert (made["gpu"], made["profiles"], made["layout"][:9]) == ("h100", {"1g.10gb": 7}, "1g.10gb@0")
    assert seven["problems"][0]["where"] == f"{configs}:10:mig-configs.seven[0].mig-devices"
    assert len(eighths["refused"][0]["map"]) == 2


def test_check_for_one_gpu_looks_at_that_alone(capfd: pytest.CaptureFixture[str], configs: Path) -> None:
    done = tonnage(capfd, "mig", "check", configs, "--gpu", "h100")
    assert done.code == 0
    assert "eighths\n    nothing on this GPU\n" in done.out
    assert tonnage(capfd, "mig", "check", configs, "--gpu", "h10").code == 2


def test_check_reads_the_device_plugins_file_and_says_what_is_ignored(
    capfd: pytest.CaptureFixture[str], sharing: Path
) -> None:
    done = tonnage(capfd, "mig", "check", sharing)
    assert done.code == 0
    assert "nvidia.com/gpu: 4 replicas of each, offered as nvidia.com/gpu" in done.out
    assert "ignored" in done.out and "small (the device plugin ignores it" in " ".join(done.out.split())
    [report] = json.loads(tonnage(capfd, "mig", "check", sharing, "-o", "json").out)["files"]
    assert (report["kind"], report["sharing"], report["one_each"]) == ("device-plugin", "time-slicing", False)


def test_check_reads_hooks(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "hooks.yaml"
    path.write_text("version: v1\nhooks:\n  apply-exit:\n  - command: /bin/true\n", encoding="utf-8")
    done = tonnage(capfd, "mig", "check", path)
    assert (done.code, "  apply-exit: /bin/true\n" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            CONFIGS.replace("mig-enabled: false", "mig-enabled: 7"),
            ":5:mig-configs.idle[0].mig-enabled: 7: expected true",
        ),
        (CONFIGS.replace("version: v1\n", ""), ":1:version: the field is missing"),
        ("version: v1\nmig-config: {}\n", ":2:mig-config: unknown field 'mig-config' (did you mean mig-configs?)"),
        ("version: v1\n", "no configuration that is known here"),
        ("kind: ConfigMap\n", "the ConfigMap has no data"),
        ("a: [", "not valid YAML"),
        ("", "no configuration in it"),
    ],
)
def test_check_refuses_what_is_no_configuration(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    done = tonnage(capfd, "mig", "check", path)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_check_says_the_problems_of_all_files(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("version: v2\nhooks: {}\n", encoding="utf-8")
    done = tonnage(capfd, "mig", "check", tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert len(done.errors) == 2
    done = tonnage(capfd, "mig", "check", tmp_path / "none.yaml", tmp_path)
    assert (done.code, len(done.errors)) == (2, 2)


def test_what_render_writes_check_reads(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = ("day=h100:7x1g.10gb", "night=h100:off", "night=a30:none#2", "cut=h200:3g.71gb@4,1g.18gb#0-1,3")
    written = tonnage(capfd, "mig", "render", *wanted, "--config-map", "layouts", "--namespace", "gpu")
    path = tmp_path / "made.yaml"
    path.write_text(written.out, encoding="utf-8")
    done = tonnage(capfd, "mig", "check", path, "-o", "json")
    assert done.code == 0
    [report] = json.loads(done.out)["files"]
    assert report["key"] == "config.yaml"
    made = {
        config["name"]: [(one["gpu"], one["mig"], one["profiles"]) for one in config["makes"]]
        for config in report["configs"]
    }
    assert made == {
        "day": [("h100", True, {"1g.10gb": 7})],
        "night": [("h100", False, {}), ("a30", True, {})],
        "cut": [("h200", True, {"1g.18gb": 1, "3g.71gb": 1})],
    }


def test_the_default_configurations_are_all_good(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("defaults.yaml")
    path.write_text(tonnage(capfd, "mig", "render", "--defaults").out, encoding="utf-8")
    done = tonnage(capfd, "mig", "check", path)
    assert done.code == 0
    assert "error" not in done.out
    assert narrow(done.out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to write"),
        (("day",), "names no configuration"),
        (("day=1g.10gb",), "names no GPU"),
        (("day=h100:1g.11gb",), "did you mean 1g.10gb"),
        (("day=a100-80:2x1g.10gb,2g.20gb,4g.40gb",), "there is no place for"),
        (("day=h100:7x1g.10gb#3-1",), "'3-1' is not an index"),
        (("day=h100:7x1g.10gb#0,0",), "has an index twice"),
        (("day=h10:off",), "NAME=GPU:LAYOUT: unknown GPU 'h10' (did you mean h100"),
        (("day=h100:8x1g.10gb",), "NAME=GPU:LAYOUT: h100 cannot hold 8x1g.10gb: at most 7 x 1g.10gb fit"),
        (("day=h100:off", "--config-map", "Bad Name"), '--config-map: "Bad Name": a lowercase RFC 1123 subdomain'),
        (("day=h100:off", "--config-map", "a", "--namespace", "A"), '--namespace: "A": a lowercase RFC 1123 label'),
        (("day=h100:off", "--namespace", "gpu"), "--namespace: no ConfigMap to put there"),
        (("all-enabled=h100:none", "--defaults"), "--defaults has all-enabled too"),
    ],
)
def test_render_refuses_what_it_cannot_write(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    done = tonnage(capfd, "mig", "render", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_render_warns_of_entries_that_a_gpu_can_both_match(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "render", "day=h100:off#0", "day=h100:7x1g.10gb")
    assert done.code == 0
    assert done.err == "warning: day: a GPU can match entry 0 too (mig-parted applies both in turn: the later stays)\n"
    assert not tonnage(capfd, "mig", "render", "day=h100:off#0", "day=h100:7x1g.10gb#1").err


def test_node_predicts_resources_and_labels(capfd: pytest.CaptureFixture[str], sharing: Path) -> None:
    given = ("--gpu", "H100", "--count", 8, "--layout", "7x1g.10gb#0-3", "--strategy", "mixed", "--sharing", sharing)
    done = tonnage(capfd, "mig", "node", *given)
    assert done.code == 0
    assert "  nvidia.com/gpu: 16\n  nvidia.com/mig-1g.10gb: 28\n" in done.out
    assert "  nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3-SHARED\n" in done.out
    assert narrow(done.out)
    answer = json.loads(tonnage(capfd, "mig", "node", *given, "-o", "json").out)
    assert answer["resources"] == {"nvidia.com/gpu": 16, "nvidia.com/mig-1g.10gb": 28}
    assert (answer["strategy"], answer["sharing"]) == ("mixed", "time-slicing")
    assert answer["labels"]["nvidia.com/mig-1g.10gb.count"] == "28"
    assert "ignores it" in answer["notes"][0]


def test_node_that_the_device_plugin_refuses_has_code_1(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "node", "--gpu", "h100", "--count", 2, "--layout", "7g.80gb#0", "--strategy", "single")
    assert done.code == 1
    assert "resources\n  none\n" in done.out
    assert "gpu.product=NVIDIA-H100-80GB-HBM3-MIG-INVALID" in done.out


def test_node_takes_the_strategy_of_the_file_and_the_configuration_of_its_label(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    inner = "".join(f"    {line}\n" for line in SHARING.splitlines())
    path = tmp_path / "map.yaml"
    path.write_text(
        f"kind: ConfigMap\ndata:\n  shared: |\n{inner}  cut: |\n    flags: {{migStrategy: single}}\n", encoding="utf-8"
    )
    cut = ("--gpu", "h100", "--layout", "7x1g.10gb", "--sharing", path, "-o", "json")
    answer = json.loads(tonnage(capfd, "mig", "node", *cut, "--config", "cut").out)
    assert (answer["strategy"], answer["resources"]) == ("single", {"nvidia.com/gpu": 7})
    assert json.loads(tonnage(capfd, "mig", "node", *cut, "--config", "shared").out)["sharing"] == "time-slicing"
    assert json.loads(tonnage(capfd, "mig", "node", *cut).out)["sharing"] == "none"
    refused = tonnage(capfd, "mig", "node", *cut, "--config", "shred")
    assert (refused.code, "did you mean shared" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "h10"), "unknown GPU 'h10'"),
        (("--gpu", "l40s", "--layout", "7x1g.10gb"), "no MIG profiles of l40s are known"),
        (("--gpu", "h100", "--layout", "7x1g.10gb#1"), "there is no GPU 1"),
        (("--gpu", "h100", "--layout", "off", "--layout", "7g.80gb#0"), "GPU 0 has two layouts"),
        (("--gpu", "h100", "--layout", "h200:7g.141gb"), "is not for h100"),
        (("--gpu", "h100", "--sharing", "nowhere.yaml"), "cannot be read"),
        (("--gpu", "h100", "--layout", "1g.11gb"), "--layout: unknown MIG profile '1g.11gb' (did you mean 1g.10gb"),
        (("--gpu", "h100", "--layout", "1g.10gb#x"), "--layout: '1g.10gb#x': 'x' is not an index"),
        (("--gpu", "h100", "--config", "shared"), "--config: no file that has it"),
        (("--gpu", "h100", "--count", "0"), "--count"),
        (("--gpu", "h100", "--driver", "new"), "--driver"),
    ],
)
def test_node_refuses_what_cannot_be(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    done = tonnage(capfd, "mig", "node", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CONFIGS, "f.yaml:2:mig-configs: this is a file of mig-parted"),
        ("version: v1\nhooks: {}\n", "f.yaml:2:hooks: this is a file of mig-parted"),
        ("flags: {}\n---\nsharing: {}\n", "f.yaml:3: a second configuration beside line 1"),
        ("kind: ConfigMap\ndata:\n  a: |\n    flags: {}\n    ---\n    imex: {}\n", "f.yaml:6:data.a: a second"),
    ],
)
def test_sharing_of_a_node_is_one_file_of_the_device_plugin(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text)
    done = tonnage(capfd, "mig", "node", "--gpu", "h100", "--sharing", "f.yaml", "--config", "a")
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_an_empty_text_in_a_config_map_is_a_configuration_without_settings(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "map.yaml"
    path.write_text('kind: ConfigMap\ndata:\n  bare: ""\n  versioned: "version: v1"\n')
    done = tonnage(capfd, "mig", "check", path, "-o", "json")
    assert [(one["key"], one["kind"], one["sharing"]) for one in json.loads(done.out)["files"]] == [
        ("bare", "device-plugin", "none"),
        ("versioned", "device-plugin", "none"),
    ]
    assert tonnage(capfd, "mig", "node", "--gpu", "h100", "--sharing", path, "--config", "bare").code == 0


def test_what_is_no_configuration_in_a_config_map_is_refused_with_its_key(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("kind: ConfigMap\ndata:\n  readme: hello\n")
    done = tonnage(capfd, "mig", "check", path)
    assert done.code == 2
    assert f"{path}:3:data.readme: no configuration that is known here" in done.err


@pytest.mark.parametrize("options", [("--layout", "7x1g.10gb"), ("--strategy", "mixed")])
def test_mps_on_mig_is_refused_with_the_line_of_the_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "mps.yaml"
    path.write_text(SHARING.replace("timeSlicing", "mps"))
    done = tonnage(capfd, "mig", "node", "--gpu", "h100", "--sharing", path, *options)
    assert (done.code, done.out) == (2, "")
    assert f"error: {path}:3:sharing.mps: MPS" in done.err
