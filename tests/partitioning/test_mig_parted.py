"""mig-parted's files: what is read, what is refused with its line, what is written."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.partitioning import documents, mig_hooks
from tonnage.partitioning.mig_parted import DeviceId, Entry, Spec, device_id, parse, render

GOOD = """\
version: v1
mig-configs:
  idle:
    - devices: all
      mig-enabled: false
  mixed:
    - device-filter: "0x20B710DE"
      devices: [0, 2]
      mig-enabled: true
      mig-devices: {"1g.6gb": 2, "2g.12gb": 1}
    - device-filter: ["0x233010DE", "0x233510DE:0x18BE10DE"]
      devices: all
      mig-enabled: true
      mig-devices: {}
"""


def read(text: str) -> Spec:
    [document] = documents.read(text, "mig.yaml")
    return parse(document)


def refusals(text: str) -> list[str]:
    with pytest.raises(InputError) as raised:
        read(text)
    return [str(problem) for problem in raised.value.problems]


def test_filters_are_a_string_or_a_list_and_devices_all_or_indices() -> None:
    spec = read(GOOD)
    assert list(spec.configs) == ["idle", "mixed"]
    assert spec.configs["idle"] == (Entry("all", False),)
    first, second = spec.configs["mixed"]
    assert (first.ids, first.devices) == ((DeviceId(0x20B7, 0x10DE),), [0, 2])
    assert first.profiles == ("1g.6gb", "1g.6gb", "2g.12gb")
    assert second.ids == (DeviceId(0x2330, 0x10DE), DeviceId(0x2335, 0x10DE, 0x18BE10DE))
    assert second.mig_devices == {}


def test_what_is_written_reads_as_what_was_read() -> None:
    spec = read(GOOD)
    assert read(render(spec)).configs == spec.configs
    assert '"0x20B710DE"' in render(spec)


@pytest.mark.parametrize("text", ["0x233010DE", "0x20B710DE", "0x233510DE:0x18BE10DE", "0x000010DE:0x00000000"])
def test_a_device_id_is_written_as_it_was_read(text: str) -> None:
    assert str(device_id(text)) == text


@pytest.mark.parametrize("text", ["", "2330", "0x", "0x1233010DE", "0x233010DE:", "0x1:0x2:0x3", "0x233010DG"])
def test_what_is_no_device_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a device id"):
        device_id(text)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("version: v1", "verison: v1", 1, "version", "the field is missing"),
        ("version: v1", "version: v2", 1, "version", "unknown version 'v2'"),
        ("mig-configs:", "mig-config:", 2, "mig-config", "did you mean mig-configs?"),
        ("devices: all\n      mig-enabled: false", "device: all\n      mig-enabled: false", 4, "mig-configs.idle[0].device", "unknown field 'device'"),
        ("mig-enabled: false", "mig-enabled: no way", 5, "mig-configs.idle[0].mig-enabled", "expected true or false"),
        ("mig-enabled: false", "mig-enabled: false\n      mig-devices: {1g.6gb: 1}", 6, "mig-configs.idle[0].mig-devices", "mig-enabled is false"),
        ("      mig-devices: {}\n", "", 11, "mig-configs.mixed[1].mig-devices", "required where mig-enabled is true"),
        ("devices: [0, 2]", "devices: [0, -2]", 8, "mig-configs.mixed[0].devices[1]", "-2 is not an index"),
        ("devices: [0, 2]", "devices: [0, 0]", 8, "mig-configs.mixed[0].devices[1]", "0 appears twice"),
        ("devices: [0, 2]", "devices: []", 8, "mig-configs.mixed[0].devices", "matches no GPU"),
        ("devices: [0, 2]", "devices: some", 8, "mig-configs.mixed[0].devices", "'some' names no devices"),
        ('"1g.6gb": 2, "2g.12gb": 1', '"1g.6gb": 0, "2g.12gb": 0', 10, "mig-configs.mixed[0].mig-devices", "all counts are 0"),
        ('"1g.6gb": 2', '"1g.6gb": -1', 10, "mig-configs.mixed[0].mig-devices.1g.6gb", "-1: expected a count of 1 or more"),
        ('"1g.6gb": 2', '"1g.6gb": 0', 10, "mig-configs.mixed[0].mig-devices.1g.6gb", "0: expected a count of 1 or more"),
        ('"1g.6gb": 2', '"1g.6gb": 2000000000', 10, "mig-configs.mixed[0].mig-devices.1g.6gb", "2000000000 instances on one card"),
        ('"1g.6gb": 2', '"1g6gb": 2', 10, "mig-configs.mixed[0].mig-devices.1g6gb", "is not a MIG profile"),
        ('"1g.6gb": 2', '"1g.6gb": two', 10, "mig-configs.mixed[0].mig-devices.1g.6gb", "expected an integer"),
        ('device-filter: "0x20B710DE"', 'device-filter: "0x20B71002"', 7, "mig-configs.mixed[0].device-filter", "vendor 1002 makes no NVIDIA GPU"),
        ('device-filter: "0x20B710DE"', "device-filter: 0x20B710DE", 7, "mig-configs.mixed[0].device-filter", "0x20B710DE: expected a string or a list, YAML reads it as"),
        ('"0x233510DE:0x18BE10DE"', '"h200"', 11, "mig-configs.mixed[1].device-filter[1]", "'h200' is not a device id"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_refused_with_its_line_and_field(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in GOOD
    said = refusals(GOOD.replace(old, new, 1))
    assert [one for one in said if one.startswith(f"mig.yaml:{line}:{field}:") and words in one], said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: v1\n", "mig.yaml:1:mig-configs: the field is missing"),
        ("version: v1\nmig-configs: {}\n", "mig.yaml:2:mig-configs: no configuration in it"),
        ("version: v1\nmig-configs:\n  a: []\n", "mig.yaml:3:mig-configs.a: expected a list with at least one entry"),
        ("version: v1\nmig-configs:\n  a:\n  b:\n  - {devices: all, mig-enabled: false}\n", "mig.yaml:3:mig-configs.a: expected a list with at least one entry"),
        ("version: v1\nmig-configs:\n  a: [1]\n", "mig.yaml:3:mig-configs.a[0]: 1 is not a mapping"),
        ("- 1\n", "mig.yaml:1: [1] is not a mapping"),
        ("version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: false}\n  a:\n  - {devices: all, mig-enabled: false}\n", "mig.yaml:5:mig-configs.a: the key 'a' appears twice"),
        ("", "no configuration in it"),
        ("a: [", "not valid YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_whole_is_refused(text: str, words: str) -> None:
    assert any(words in one for one in refusals(text))


def test_a_name_that_yaml_reads_as_something_else_is_quoted() -> None:
    spec = Spec({"off": (Entry("all", False),), "1e3": (Entry("all", False),)})
    assert list(read(render(spec)).configs) == ["off", "1e3"]


def test_all_problems_of_a_file_are_said_in_the_order_of_lines() -> None:
    said = refusals(GOOD.replace("version: v1", "version: v9").replace("[0, 2]", "[0, 0]").replace("2g.12gb", "2g"))
    assert [int(one.split(":")[1]) for one in said] == [1, 8, 10]


def test_a_config_map_is_read_with_the_lines_of_its_file() -> None:
    inner = "".join(f"    {line}\n" for line in GOOD.replace("[0, 2]", "[0, 0]").splitlines())
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: mig\ndata:\n  any.yaml: |\n{inner}"
    [document] = documents.read(text, "map.yaml")
    assert document.key == "any.yaml"
    with pytest.raises(InputError, match=r"map.yaml:14:mig-configs.mixed\[0\].devices\[1\]: 0 appears twice"):
        parse(document)


def test_a_config_map_that_is_written_holds_the_same_configurations() -> None:
    spec = read(GOOD)
    text = documents.config_map("mig", {"config.yaml": render(spec)}, "gpu-operator")
    [document] = documents.read(text, "map.yaml")
    assert parse(document).configs == spec.configs
    assert spec.configs == read(GOOD).configs
    assert document.where("mig-configs.idle").line == text.splitlines().index("      idle:") + 1


def test_broken_yaml_in_a_config_map_has_the_line_of_its_file() -> None:
    text = "kind: ConfigMap\ndata:\n  a: |\n    version: v1\n    b: [\n  c: |\n    version: v1\n"
    with pytest.raises(InputError) as raised:
        documents.read(text, "map.yaml")
    assert 5 <= raised.value.problems[0].where.line <= 6


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Entry("all", False), Entry([3], False), True),
        (Entry([0, 1], False), Entry([2], False), False),
        (Entry("all", False, "0x233010DE"), Entry("all", False, "0x233510DE"), False),
        (Entry("all", False, "0x233010DE"), Entry("all", False, ["0x233510DE", "0x233010DE:0x16C110DE"]), True),
        (Entry("all", False, "0x233010DE:0x16C010DE"), Entry("all", False, "0x233010DE:0x16C110DE"), False),
    ],
)
def test_two_entries_meet_where_a_gpu_can_match_both(one: Entry, other: Entry, both: bool) -> None:
    assert one.overlaps(other) is both
    assert other.overlaps(one) is both


HOOKS = """\
version: v1
hooks:
  pre-apply-mode:
    - workdir: /etc/mig
      command: /bin/bash
      args: ["-x", "-c", "stop"]
      envs: {LEVEL: "1"}
  apply-exit:
    - command: /bin/true
"""


def test_hooks_are_read() -> None:
    [document] = documents.read(HOOKS, "hooks.yaml")
    hooks = mig_hooks.parse(document)
    first = hooks.hooks["pre-apply-mode"][0]
    assert (first.command, first.args, first.envs, first.workdir) == (
        "/bin/bash", ["-x", "-c", "stop"], {"LEVEL": "1"}, "/etc/mig",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("apply-exit", "apply-end", "hooks.yaml:8:hooks.apply-end: nothing runs 'apply-end' (did you mean apply-exit?)"),
        ("command: /bin/true", "comand: /bin/true", "hooks.yaml:9:hooks.apply-exit[0].comand: unknown field"),
        ("command: /bin/true", "args: []", "hooks.apply-exit[0].command: the field is missing (mig-parted requires it)"),
        ("version: v1", "version: 1", "hooks.yaml:1:version: unknown version 1"),
        ('LEVEL: "1"', "LEVEL: 1", "hooks.pre-apply-mode[0].envs.LEVEL: 1: expected a string"),
    ],
)  # fmt: skip
def test_a_hook_that_would_not_run_is_refused(old: str, new: str, words: str) -> None:
    [document] = documents.read(HOOKS.replace(old, new), "hooks.yaml")
    with pytest.raises(InputError) as raised:
        mig_hooks.parse(document)
    assert words in str(raised.value)
