"""The device plugin's configuration: what is read, refused, ignored, written; where a setting comes from."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.partitioning import documents
from tonnage.partitioning.device_plugin import (
    Config,
    Replicas,
    Replicated,
    Sharing,
    choose,
    flags,
    parse,
    render,
    settle,
)

GOOD = """\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  plugin:
    deviceListStrategy: [cdi-cri, envvar]
    deviceIDStrategy: index
  gfd:
    sleepInterval: 1m30s
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
      - name: gpu
        replicas: 4
      - name: nvidia.com/mig-1g.10gb
        replicas: 2
imex:
  channelIDs: [0]
  required: true
"""


def read(text: str) -> Config:
    [document] = documents.read(text, "dp.yaml")
    return parse(document)


def test_a_configuration_is_read() -> None:
    config = read(GOOD)
    assert config.flags == {
        "migStrategy": "mixed",
        "failOnInitError": False,
        "plugin.deviceListStrategy": ["cdi-cri", "envvar"],
        "plugin.deviceIDStrategy": "index",
        "gfd.sleepInterval": "1m30s",
    }
    sharing = config.sharing
    assert (sharing.strategy, sharing.one_each) == ("time-slicing", False)
    assert [one.resource for one in sharing.active.resources] == ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]
    assert (sharing.replicas("nvidia.com/gpu"), sharing.replicas("nvidia.com/mig-2g.20gb")) == (4, 1)
    assert sharing.advertised("nvidia.com/gpu") == "nvidia.com/gpu.shared"
    assert sharing.advertised("nvidia.com/mig-2g.20gb") == "nvidia.com/mig-2g.20gb"
    assert (config.imex.channel_ids, config.imex.required, config.ignored) == ([0], True, ())


def test_what_is_written_reads_as_what_was_read() -> None:
    again = read(render(read(GOOD)))
    assert (again.flags, again.imex) == (read(GOOD).flags, read(GOOD).imex)
    assert again.sharing.active.rename_by_default
    assert render(again) == render(read(GOOD))
    assert render(Config()) == "version: v1\n"


@pytest.mark.parametrize("text", ["flags: {migStrategy: single}\n", "version: v1\nflags: {}\n", "imex: {}\n"])
def test_little_is_required(text: str) -> None:
    assert read(text).sharing.strategy == "none"


@pytest.mark.parametrize(("given", "each"), [("", True), ("    failRequestsGreaterThanOne: false\n", False)])
def test_under_mps_a_container_gets_one_replica_unless_the_file_says_otherwise(given: str, each: bool) -> None:
    sharing = read(f"sharing:\n  mps:\n{given}    resources: [{{name: gpu, replicas: 3}}]\n").sharing
    assert (sharing.strategy, sharing.one_each) == ("mps", each)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("version: v1", "version: v2", 1, "version", "unknown version 'v2'"),
        ("mixed", "both", 3, "flags.migStrategy", "expected none or single or mixed"),
        ("failOnInitError: false", "failOnInitError: maybe", 4, "flags.failOnInitError", "expected true or false"),
        ("[cdi-cri, envvar]", "[cdi, envvar]", 6, "flags.plugin.deviceListStrategy", "expected envvar or volume-mounts"),
        ("index", "name", 7, "flags.plugin.deviceIDStrategy", "expected uuid or index"),
        ("1m30s", "90", 9, "flags.gfd.sleepInterval", "expected a text"),
        ("1m30s", "soon", 9, "flags.gfd.sleepInterval", "is not a duration"),
        ("replicas: 4", "replicas: 1", 15, "sharing.timeSlicing.resources[0].replicas", "1: expected 2 or more"),
        ("replicas: 4", "replicas: four", 15, "sharing.timeSlicing.resources[0].replicas", "expected an integer"),
        ("        replicas: 2\n", "", 16, "sharing.timeSlicing.resources[1].replicas", "the device plugin requires it"),
        ("name: gpu", "name: G PU", 14, "sharing.timeSlicing.resources[0].name", "is not a name of a resource"),
        ("name: gpu", f"name: {'g' * 53}", 14, "sharing.timeSlicing.resources[0].name", "64 characters"),
        ("name: gpu", "name: mig-1g.10gb", 14, "sharing.timeSlicing.resources[0].name", "appears 2 times"),
        ("replicas: 4", "replicas: 4\n        devices: some", 16, "sharing.timeSlicing.resources[0].devices", "'some' names no device"),
        ("replicas: 4", "replicas: 4\n        devices: 0", 16, "sharing.timeSlicing.resources[0].devices", "0 names no device"),
        ("replicas: 4", "replicas: 4\n        devices: [GPU-1]", 16, "sharing.timeSlicing.resources[0].devices", "'GPU-1' names no device"),
        ("channelIDs: [0]", "channelIDs: [1]", 19, "imex.channelIDs", "expected [] or [0]"),
        ("    sleepInterval: 1m30s", "    - 1", 8, "flags.gfd", "[1]"),
        ("  timeSlicing:", "  mps: {resources: [{name: gpu, replicas: 2}]}\n  timeSlicing:", 10, "sharing", "timeSlicing and mps"),
    ],
)  # fmt: skip
def test_what_the_device_plugin_refuses_is_refused_with_line_and_field(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as raised:
        read(GOOD.replace(old, new, 1))
    said = [str(problem) for problem in raised.value.problems]
    assert [one for one in said if one.startswith(f"dp.yaml:{line}:{field}:") and words in one], said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sharing: {timeSlicing: {}}\n", "sharing.timeSlicing.resources: the field is missing"),
        ("sharing: {timeSlicing: {resources: []}}\n", "sharing.timeSlicing.resources: no resource"),
        ("sharing: {mps: {resources: [{name: mig-1g.10gb, replicas: 2}]}}\n", "MPS on nvidia.com/mig-1g.10gb"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}\n", "replicas: 49 (MPS takes at most 48 clients"),
        ("flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n", "dp.yaml:1:flags.migStrategy: mixed, and sharing.mps"),
        ("resources: {gpus: [{pattern: '*'}]}\n", "resources.gpus[0].name: the field is missing"),
        ("7\n", "7 is not a mapping"),
    ],
)  # fmt: skip
def test_sharing_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: shared}]}}", "resources[0].rename: shared (the device plugin ignores it"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 2}]}}", "resources[0].devices: 2 (the device plugin ignores it"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, '1:0', GPU-b1028956-cfa2-0990-bf4a-5da9abb51763, MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/3/0]}]}}", "devices"),
        ("resources: {gpus: [{pattern: '*', name: a}]}", "resources.gpus: resources cannot be renamed yet"),
        ("flags: {migStratgy: single}", "unknown field 'migStratgy' (did you mean migStrategy?)"),
        ("flags: {plugin: {passDeviceSpec: true}}", "flags.plugin.passDeviceSpec: unknown field 'passDeviceSpec' (did you mean plugin.passDeviceSpecs?)"),
        ("imex: {}\nsharng: {}", "dp.yaml:2:sharng: unknown field 'sharng' (did you mean sharing?)"),
    ],
)  # fmt: skip
def test_what_the_device_plugin_ignores_is_said_to_be_ignored(text: str, words: str) -> None:
    ignored = read(text + "\n").ignored
    assert len(ignored) == 1
    assert words in str(ignored[0])


def test_the_command_line_wins_over_the_environment_that_over_the_file_that_over_the_default() -> None:
    config = read("flags: {migStrategy: single, failOnInitError: false, gdsEnabled: true}\n")
    variables = {"MIG_STRATEGY": "mixed", "FAIL_ON_INIT_ERROR": "true", "DEVICE_LIST_STRATEGY": "envvar,cdi-cri"}
    settled = settle(config, variables, {"mig-strategy": "none"})
    assert settled["migStrategy"] == ("none", "command line")
    assert settled["failOnInitError"] == (True, "environment")
    assert settled["gdsEnabled"] == (True, "file")
    assert settled["mofedEnabled"] == (False, "default")
    assert settled["plugin.deviceListStrategy"] == (["envvar", "cdi-cri"], "environment")
    assert list(settled) == [flag.field for flag in flags()]


def test_the_root_of_device_nodes_is_that_of_the_driver_unless_it_is_set() -> None:
    assert (
        settle(read("flags: {nvidiaDriverRoot: /run/nvidia/driver}\n"))["nvidiaDevRoot"].value == "/run/nvidia/driver"
    )
    assert settle(Config(), {"NVIDIA_DEV_ROOT": "/dev-root"})["nvidiaDevRoot"] == ("/dev-root", "environment")


@pytest.mark.parametrize(
    ("environment", "arguments", "words"),
    [
        ({"MIG_STRATEGY": "all"}, {}, "MIG_STRATEGY: 'all': expected none or single or mixed"),
        ({}, {"fail-on-init-error": "perhaps"}, "--fail-on-init-error: 'perhaps': expected true or false"),
        ({}, {"mig-stratgy": "none"}, "did you mean mig-strategy"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_where_it_stands(
    environment: dict[str, str], arguments: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as raised:
        settle(Config(), environment, arguments)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("configs", "label", "default", "chosen"),
    [
        (["a", "default"], "a", "default", "a"),
        (["a", "b"], "", "b", "b"),
        (["a", "default"], "", "", "default"),
        (["a"], "", "", "a"),
        (["a", "b"], "", "", ""),
    ],
)
def test_a_node_gets_the_configuration_of_its_label_else_the_default_else_a_fallback(
    configs: list[str], label: str, default: str, chosen: str
) -> None:
    assert choose(configs, label, default) == chosen


def test_a_configuration_that_is_not_there_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match=r"nvidia.com/device-plugin.config: unknown configuration 'a100x' \(did you"):
        choose(["a100", "t4"], "a100x")
    with pytest.raises(InputError, match="no configuration for the node"):
        choose(["a", "b"], fallbacks=("named", "single"))
    with pytest.raises(InputError, match="unknown fallback 'nmed'"):
        choose(["a"], fallbacks=("nmed",))


def test_mps_wins_where_a_program_gives_both() -> None:
    both = Sharing(Replicas([Replicated("gpu", 2)]), Replicas([Replicated("gpu", 5)]))
    assert (both.strategy, both.replicas("nvidia.com/gpu")) == ("mps", 5)


@pytest.mark.report(306)
@pytest.mark.parametrize(
    ("text", "where", "belongs"),
    [
        ("flags: {renameByDefault: true}", "flags.renameByDefault", "sharing.timeSlicing.renameByDefault"),
        (
            "flags: {failRequestsGreaterThanOne: false}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
            "flags.failRequestsGreaterThanOne",
            "sharing.mps.failRequestsGreaterThanOne",
        ),
        ("flags: {timeSlicing: {resources: []}}", "flags.timeSlicing", "sharing.timeSlicing"),
        ("flags: {deviceListStrategy: envvar}", "flags.deviceListStrategy", "flags.plugin.deviceListStrategy"),
        ("flags: {plugin: {migStrategy: mixed}}", "flags.plugin.migStrategy", "flags.migStrategy"),
        ("flags: {plugin: {sleepInterval: 5s}}", "flags.plugin.sleepInterval", "flags.gfd.sleepInterval"),
        ("migStrategy: mixed", "migStrategy", "flags.migStrategy"),
        ("sharing: {renameByDefault: true}", "sharing.renameByDefault", "sharing.timeSlicing.renameByDefault"),
    ],
)
def test_an_option_in_the_wrong_place_is_told_where_it_belongs(text: str, where: str, belongs: str) -> None:
    (ignored,) = read(text + "\n").ignored
    assert ignored.where.field == where
    assert ignored.hint == f"it belongs at {belongs}; the device plugin ignores it here"
