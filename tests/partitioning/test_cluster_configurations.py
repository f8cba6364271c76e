"""Which ConfigMaps are configurations of the GPU operator's programs, and what a ClusterPolicy makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.facts.labels import GPU, MIG_CONFIG
from tonnage.objects import core, load
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.partitioning.configurations import read
from tonnage.partitioning.node_cuts import MIG_STRATEGY, PLUGIN_CONFIG, Configurations, cut_node

SIX = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 6}]}}\n"
HALVES = "version: v1\nmig-configs:\n  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]\n"
BALANCED = {MIG_CONFIG: "all-balanced"}


def config_map(name: str, namespace: str = "gpu-operator", **data: str) -> str:
    lines = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:"]
    for key, text in data.items():
        lines.append(f"  {key}: |\n" + "".join(f"    {line}\n" for line in text.splitlines()))
    return "\n".join(lines)


def policy(spec: str, name: str = "cluster-policy") -> str:
    return f"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def manifest(folder: Path, *texts: str) -> load.Manifest:
    file = folder / "all.yaml"
    file.write_text("\n---\n".join(texts), encoding="utf-8")
    return load.read([file])


def configured(folder: Path, *texts: str) -> Configurations:
    made = manifest(folder, *texts)
    return read(made.of(core.ConfigMap), made.of(ClusterPolicy))


def offers(configurations: Configurations, labels: dict[str, str], gpu: str = "h100") -> object:
    made = cut_node(configurations, labels, gpu, 1)
    return made.offers or str(made.problems[0])


def test_a_node_without_the_label_is_not_shared_though_there_is_only_one_configuration(tmp_path: Path) -> None:
    only = configured(tmp_path, config_map("plugin", any=SIX))
    assert offers(only, {}) == {GPU: 1}
    assert offers(only, {PLUGIN_CONFIG: "any"}) == {GPU: 6}


def test_a_node_without_the_label_has_the_configuration_called_default(tmp_path: Path) -> None:
    assert offers(configured(tmp_path, config_map("plugin", default=SIX)), {}) == {GPU: 6}


def test_a_cluster_policy_names_the_default_and_else_there_is_none(tmp_path: Path) -> None:
    maps = config_map("plugin", any=SIX, default=SIX)
    named = policy("{devicePlugin: {config: {name: plugin, default: any}}}")
    assert offers(configured(tmp_path, maps, named), {}) == {GPU: 6}
    without = policy("{devicePlugin: {config: {name: plugin}}}")
    assert offers(configured(tmp_path, maps, without), {}) == {GPU: 1}


def test_a_config_map_that_the_cluster_policy_does_not_name_is_not_in_use(tmp_path: Path) -> None:
    found = configured(tmp_path, config_map("plugin", six=SIX), policy("{}"))
    assert offers(found, {}) == {GPU: 1}
    assert offers(found, {PLUGIN_CONFIG: "six"}) == (
        f"{PLUGIN_CONFIG}: unknown device-plugin configuration 'six' (for the device plugin the ClusterPolicy says "
        "devicePlugin.config.name: none, and it is not in there)"
    )


def test_the_config_map_of_a_cluster_policy_replaces_mig_parteds_own_configurations(tmp_path: Path) -> None:
    mig = config_map("custom", **{"config.yaml": HALVES})
    free = configured(tmp_path, mig)
    mixed = {MIG_STRATEGY: "mixed"}
    assert offers(free, {MIG_CONFIG: "halves", **mixed}) == {"nvidia.com/mig-3g.40gb": 2}
    assert offers(free, {MIG_CONFIG: "all-7g.80gb", **mixed}) == {"nvidia.com/mig-7g.80gb": 1}
    named = configured(tmp_path, mig, policy("{migManager: {config: {name: custom}}}"))
    assert offers(named, {MIG_CONFIG: "halves", **mixed}) == {"nvidia.com/mig-3g.40gb": 2}
    assert "unknown MIG configuration 'all-7g.80gb'" in str(offers(named, {MIG_CONFIG: "all-7g.80gb", **mixed}))
    other = configured(tmp_path, mig, policy("{}"))
    assert "migManager.config.name: default-mig-parted-config" in str(offers(other, {MIG_CONFIG: "halves"}))


def test_the_strategy_of_a_cluster_policy_goes_before_that_of_the_file_and_the_label_before_both(
    tmp_path: Path,
) -> None:
    maps = config_map("plugin", default="version: v1\nflags: {migStrategy: mixed}\n")
    named = "devicePlugin: {config: {name: plugin, default: default}}"
    seven = {MIG_CONFIG: "all-1g.10gb"}
    mixed, single = {"nvidia.com/mig-1g.10gb": 7}, {GPU: 7}
    assert offers(configured(tmp_path, maps), seven) == mixed
    assert offers(configured(tmp_path, maps, policy(f"{{{named}}}")), seven) == mixed
    ruled = configured(tmp_path, maps, policy(f"{{mig: {{strategy: single}}, {named}}}"))
    assert offers(ruled, seven) == single
    assert offers(ruled, {**seven, MIG_STRATEGY: "mixed"}) == mixed


@pytest.mark.parametrize(
    "text",
    [
        'version: "1.4"\nflags:\n  - {key: new-ui, enabled: true}\n',
        "version: 2\nresources: {cpu: 3}\n",
        "version: v1\nresources: {cpu: 3}\n",
        "version: v1\nflags: {new-ui: true}\n",
        "version: v1\nflags: {{ .Values.flags }}\n",
    ],
)
def test_a_config_map_of_another_program_that_looks_like_it_is_passed_over(tmp_path: Path, text: str) -> None:
    found = configured(tmp_path, config_map("app", **{"config.yaml": text}))
    assert (found.plugin, found.mig) == ({}, {})


def test_broken_yaml_is_an_error_where_it_is_surely_the_device_plugins(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"all\.yaml:7"):
        configured(tmp_path, config_map("plugin", six="version: v1\nsharing: {timeSlicing: [}\n"))


def test_a_key_of_two_config_maps_is_fine_where_they_agree_or_nobody_names_it(tmp_path: Path) -> None:
    twins = configured(tmp_path, config_map("a", any=SIX), config_map("a", "other", any=SIX))
    assert offers(twins, {PLUGIN_CONFIG: "any"}) == {GPU: 6}
    unequal = configured(
        tmp_path,
        config_map("a", any=SIX, default=SIX),
        config_map("a", "other", any=SIX.replace("6", "3"), default="version: v1"),
    )
    assert offers(unequal, {}) == {GPU: 1}
    assert "'any' is one thing in a ConfigMap and another in the next" in str(offers(unequal, {PLUGIN_CONFIG: "any"}))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("{mig: {strategy: mix}}", r"spec.mig.strategy: unknown MIG strategy 'mix' \(did you mean mixed\?\)"),
        (
            "{devicePlugin: {config: {name: plugin, default: sixx}}}",
            r"all.yaml:\d+:spec.devicePlugin.config.default: unknown device-plugin configuration 'sixx' .*mean six",
        ),
        (
            "{devicePlugin: {config: {name: elsewhere, default: six}}}",
            "the ConfigMap elsewhere has to be among the manifests, with this key",
        ),
    ],
)
def test_a_cluster_policy_that_names_what_is_not_there_is_refused(tmp_path: Path, spec: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        configured(tmp_path, config_map("plugin", six=SIX), policy(spec))


def test_of_two_cluster_policies_the_operator_follows_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a ClusterPolicy beside one: the operator follows one"):
        configured(tmp_path, policy("{}", "one"), policy("{}", "two"))


def test_the_usual_fields_of_a_cluster_policy_are_no_reason_for_a_warning(tmp_path: Path) -> None:
    spec = (
        "{operator: {defaultRuntime: containerd}, driver: {enabled: true}, toolkit: {enabled: true}, dcgm: {}, "
        "devicePlugin: {enabled: true, args: []}, migManager: {enabled: true, env: []}, mig: {strategy: single}}"
    )
    assert manifest(tmp_path, policy(spec)).problems == ()


@pytest.mark.parametrize(("gpu", "most"), [("h100", 48), ("l40s", 48)])
def test_more_mps_replicas_than_the_server_takes_clients_leave_no_gpu(tmp_path: Path, gpu: str, most: int) -> None:
    def mps(replicas: int) -> str:
        return f"version: v1\nsharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"

    found = configured(tmp_path, config_map("plugin", most=mps(most)))
    assert offers(found, {PLUGIN_CONFIG: "most"}, gpu) == {GPU: most}
    for replicas in (most + 1, 128):
        with pytest.raises(InputError, match=rf"replicas: {replicas} \(MPS takes at most {most} clients on any GPU\)"):
            configured(tmp_path, config_map("plugin", more=mps(replicas)))
    by_hand = {"nvidia.com/gpu.replicas": "101", "nvidia.com/gpu.sharing-strategy": "mps"}
    assert str(offers(found, by_hand, gpu)).startswith("nvidia.com/gpu.replicas: 101 replicas")
