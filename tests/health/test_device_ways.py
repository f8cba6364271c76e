"""Device plugin or ResourceClaims: what is advised, and manifests converted from one to the other."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tonnage.errors import Where
from tonnage.health.device_ways.advice import Choice, advise, autoscalers, releases
from tonnage.health.device_ways.convert import Converted, convert
from tonnage.health.device_ways.pods import profile_of
from tonnage.health.device_ways.written import Written
from tonnage.objects import load
from tonnage.objects.dump import written

DEAD = Path(__file__).parents[1] / "data" / "dead-claims"
GPU = "nvidia.com/gpu"


def read(text: str) -> list[Written]:
    return [Written(one, Where("m.yaml", 1)) for one in yaml.safe_load_all(text)]


def pod(resources: str = "", *, above: str = "", below: str = "", kind: str = "Pod", replicas: int = 1) -> str:
    """A pod, or a Deployment of such."""
    spec = f"""\
containers: [{{name: main, image: app, resources: {{limits: {{cpu: 1{resources}}}}}}}]
{below}"""
    meta = f"metadata: {{name: chat, namespace: team, {above}}}"
    if kind == "Pod":
        return f"apiVersion: v1\nkind: Pod\n{meta}\nspec:\n" + _indented(spec, 2)
    template = f"template:\n  metadata: {{labels: {{app: chat}}, {above}}}\n  spec:\n" + _indented(spec, 4)
    own = f"replicas: {replicas}\nselector: {{matchLabels: {{app: chat}}}}\n{template}"
    return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: chat, namespace: team}\nspec:\n" + _indented(own, 2)


def _indented(text: str, columns: int) -> str:
    return "".join(" " * columns + line + "\n" for line in text.splitlines())


def made(found: Converted, kind: str) -> dict[str, Any]:
    (one,) = [each for each in found.documents if each["kind"] == kind]
    return one


def losses(found: Converted) -> list[str]:
    return [f"{one.about}: {one.text}" for one in found.lost]


def is_taken(found: Converted, tmp_path: Path) -> bool:
    """Whether what is written is read back without an error."""
    file = tmp_path / "converted.yaml"
    file.write_text(written(found.documents))
    return len(load.read([file]).objects) == len(found.documents)


# ---- from the device plugin ----


def test_whole_gpus_of_a_pod_are_devices_of_a_template_made_for_it(tmp_path: Path) -> None:
    found = convert(read(pod(f", {GPU}: 2")))
    template, converted = made(found, "ResourceClaimTemplate"), made(found, "Pod")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "count": 2}
    assert template["metadata"] == {"name": "chat-gpus", "namespace": "team"}
    resources = converted["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": 1}, "claims": [{"name": "gpus", "request": request["name"]}]}
    assert converted["spec"]["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "chat-gpus"}]
    assert made(found, "DeviceClass")["metadata"]["name"] == "gpu.nvidia.com"
    assert not found.lost and is_taken(found, tmp_path)


def test_mig_instances_are_asked_for_by_their_profile(tmp_path: Path) -> None:
    found = convert(read(pod(", nvidia.com/mig-1g.5gb: 2, nvidia.com/mig-3g.20gb: 1")))
    requests = made(found, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"]
    asked = {one["exactly"]["selectors"][0]["cel"]["expression"]: one["exactly"].get("count", 1) for one in requests}
    profile = "device.attributes['gpu.nvidia.com'].profile"
    assert asked == {f"{profile} == '1g.5gb'": 2, f"{profile} == '3g.20gb'": 1}
    assert {one["exactly"]["deviceClassName"] for one in requests} == {"mig.nvidia.com"}
    assert not found.lost and is_taken(found, tmp_path)


def test_a_profile_with_media_engines_is_written_with_a_plus() -> None:
    assert profile_of("nvidia.com/mig-1g.5gb.me") == "1g.5gb+me"
    assert profile_of("nvidia.com/mig-9g.99gb") == "9g.99gb"


def test_an_init_container_uses_the_devices_of_the_container_after_it() -> None:
    init = f"initContainers: [{{name: load, image: app, resources: {{limits: {{{GPU}: 1}}}}}}]"
    found = convert(read(pod(f", {GPU}: 1", below=init)))
    spec = made(found, "Pod")["spec"]
    requests = made(found, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"]
    assert len(requests) == 1
    claims = [one["resources"]["claims"] for one in (spec["initContainers"][0], spec["containers"][0])]
    assert claims == [[{"name": "gpus", "request": requests[0]["name"]}]] * 2


def test_more_devices_than_a_claim_has_are_left_to_the_device_plugin() -> None:
    document = read(pod(f", {GPU}: 33"))
    found = convert(document)
    assert found.documents == (document[0].content,)
    assert losses(found) == ["Pod team/chat: is left as it is: it asks for 33 devices, and a claim has 32 at most"]


def test_what_asks_for_no_gpu_stays_as_it_is() -> None:
    document = read(pod() + "---\n" + "apiVersion: v1\nkind: Service\nmetadata: {name: chat}\n")
    found = convert(document)
    assert found.documents == tuple(one.content for one in document) and not found.notes


def test_a_fraction_of_a_gpu_that_is_known_is_the_smallest_mig_profile_that_covers_it(tmp_path: Path) -> None:
    selector = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}"
    found = convert(read(pod(above='annotations: {gpu-fraction: "0.3"}', below=selector)))
    (request,) = made(found, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["selectors"][0]["cel"]["expression"].endswith("profile == '3g.40gb'")
    assert "annotations" not in made(found, "Pod")["metadata"]
    assert losses(found) == [
        "Pod team/chat: 0.3 of a GPU is the MIG profile 3g.40gb, which has 3 of 7 compute and 4 of 8 memory slices, and"
        " no more"
    ]
    assert is_taken(found, tmp_path)


def test_pods_whose_fractions_fit_on_one_gpu_share_it_by_one_claim(tmp_path: Path) -> None:
    text = pod(above='annotations: {gpu-fraction: "0.25"}', kind="Deployment", replicas=4)
    found = convert(read(text))
    (config,) = made(found, "ResourceClaim")["spec"]["devices"]["config"]
    sharing = config["opaque"]["parameters"]["sharing"]
    assert sharing == {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 25}}
    named = made(found, "Deployment")["spec"]["template"]["spec"]["resourceClaims"]
    assert named == [{"name": "gpus", "resourceClaimName": "chat-gpus"}]
    assert len(found.lost) == 1 and "limits threads, not memory" in found.lost[0].text
    assert is_taken(found, tmp_path)


def test_fractions_that_nothing_counts_are_left_as_they_are() -> None:
    text = pod(above='annotations: {gpu-fraction: "0.25"}', kind="Deployment", replicas=5)
    document = read(text)
    found = convert(document)
    assert found.documents == (document[0].content,)
    assert "0.25 of a GPU is left as it is" in losses(found)[0]


def test_replicas_of_a_time_sliced_gpu_are_one_claim_that_counts_nobody() -> None:
    found = convert(read(pod(", nvidia.com/gpu.shared: 1", kind="Deployment", replicas=3)))
    sharing = made(found, "ResourceClaim")["spec"]["devices"]["config"][0]["opaque"]["parameters"]["sharing"]
    assert sharing == {"strategy": "TimeSlicing"}
    assert "its 3 pods share one GPU" in losses(found)[0]
    limits = made(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": 1}


def test_a_quota_of_gpus_counts_claims_too() -> None:
    quota = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: team}
spec: {hard: {requests.nvidia.com/gpu: 8, requests.nvidia.com/mig-1g.5gb: 4}}
"""
    found = convert(read(quota))
    hard = made(found, "ResourceQuota")["spec"]["hard"]
    assert hard["gpu.nvidia.com.deviceclass.resource.k8s.io/devices"] == hard["requests.nvidia.com/gpu"] == 8
    assert losses(found) == [
        "ResourceQuota team/q: requests.nvidia.com/mig-1g.5gb counts no claims: a quota of the class mig.nvidia.com counts"
        " MIG devices of all profiles"
    ]


def test_versions_that_are_still_served_are_written_as_v1(tmp_path: Path) -> None:
    claim = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: one, namespace: team}
spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.nvidia.com}]}}
"""
    found = convert(read(claim))
    assert made(found, "ResourceClaim")["apiVersion"] == "resource.k8s.io/v1"
    assert made(found, "ResourceClaim")["spec"]["devices"]["requests"][0]["exactly"]
    assert not found.lost and is_taken(found, tmp_path)


# ---- from APIs that are gone ----


def dead(name: str) -> Converted:
    return convert([Written(one.value, Where(one.file, one.line)) for one in load.documents([DEAD / f"{name}.yaml"])])


@pytest.mark.parametrize("name", sorted(path.stem for path in DEAD.glob("*.yaml")))
def test_what_is_made_of_dead_manifests_is_taken_by_the_api(name: str, tmp_path: Path) -> None:
    found = dead(name)
    assert is_taken(found, tmp_path)
    assert all("v1alpha" not in one["apiVersion"] for one in found.documents)


def test_states_of_a_dead_claim_are_named_as_lost() -> None:
    found = dead("states")
    assert [one["kind"] for one in found.documents] == ["DeviceClass", "ResourceClaim"]
    said = losses(found)
    assert "the GpuClaimParameters h100 is not among the files: what it asks for is not known" in said[0]
    assert any("status is left out" in one for one in said)
    assert any(one.startswith("the document: is no object") for one in said)


def test_a_dead_mig_claim_asks_for_its_profile_and_the_missing_template_is_made_of_it() -> None:
    found = dead("mig")
    template = made(found, "ResourceClaimTemplate")
    assert template["metadata"] == {"name": "small-slice", "namespace": "serving"}
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    expression = request["exactly"]["selectors"][0]["cel"]["expression"]
    assert expression == "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
    assert made(found, "Pod")["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "small-slice"}]
    said = "\n".join(losses(found))
    for lost in ("structuredParameters", "parametersSchema", "it is made from the ResourceClaim slice"):
        assert lost in said


def test_pods_of_a_dead_time_sliced_claim_share_one_gpu_and_its_replicas_are_lost() -> None:
    found = dead("time-slicing")
    spec = made(found, "Deployment")["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimName": "slice"}]
    config = made(found, "ResourceClaim")["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert (config["kind"], config["sharing"]) == ("GpuConfig", {"strategy": "TimeSlicing"})
    said = "\n".join(losses(found))
    assert "timeSlicing.replicas 4 is said no more" in said and "contextSwitchInterval 100" in said


def test_a_class_of_another_driver_becomes_a_device_class_by_its_driver() -> None:
    text = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: fpga.example.com}
driverName: fpga.example.com
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: one, namespace: team}
spec: {metadata: {labels: {a: b}}, spec: {resourceClassName: fpga.example.com, allocationMode: WaitForFirstConsumer}}
"""
    found = convert(read(text))
    (selector,) = made(found, "DeviceClass")["spec"]["selectors"]
    assert selector["cel"]["expression"] == "device.driver == 'fpga.example.com'"
    spec = made(found, "ResourceClaimTemplate")["spec"]
    assert spec["metadata"] == {"labels": {"a": "b"}}
    assert spec["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "fpga.example.com"}
    assert any("allocationMode WaitForFirstConsumer" in one for one in losses(found))


def test_parameters_of_the_old_driver_are_selectors_count_and_sharing() -> None:
    text = """\
apiVersion: gpu.resource.nvidia.com/v1alpha1
kind: GpuClaimParameters
metadata: {name: p, namespace: team}
spec:
  count: 2
  selector: {productName: "*a100*", orExpression: []}
  sharing: {strategy: TimeSlicing, timeSlicingConfig: {timeSlice: Long}}
  migEnabled: false
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: two, namespace: team}
spec: {resourceClassName: gpu.nvidia.com, parametersRef: {kind: GpuClaimParameters, name: p}}
"""
    found = convert(read(text))
    devices = made(found, "ResourceClaim")["spec"]["devices"]
    exactly = devices["requests"][0]["exactly"]
    product = "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')"
    assert exactly["count"] == 2
    assert exactly["selectors"] == [{"cel": {"expression": product}}]
    sharing = devices["config"][0]["opaque"]["parameters"]["sharing"]
    assert sharing == {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    said = "\n".join(losses(found))
    assert "selector.orExpression is not converted" in said and "migEnabled is said no more" in said


# ---- advice ----

CLAIMS = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: part, namespace: team}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: mig.nvidia.com}}]}}}
---
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: rack, namespace: team}
spec: {numNodes: 0, channel: {resourceClaimTemplate: {name: channel}}}
---
"""


@pytest.mark.parametrize(
    ("text", "by", "choices"),
    [
        (pod(f", {GPU}: 1"), [], ["device plugin", "device plugin", "either"]),
        (pod(f", {GPU}: 1"), ["cluster-autoscaler"], ["device plugin", "device plugin", "either"]),
        (pod(f", {GPU}: 1"), ["karpenter"], ["device plugin", "device plugin", "device plugin"]),
        (pod(f", {GPU}: 1"), ["auto-mode", "cluster-autoscaler"], ["device plugin", "device plugin", "either"]),
        (pod(", nvidia.com/mig-1g.5gb: 1"), [], ["device plugin", "device plugin", "claims"]),
        (pod(", nvidia.com/mig-1g.5gb: 1"), ["karpenter"], ["device plugin", "device plugin", "device plugin"]),
        (pod(above='annotations: {gpu-fraction: "0.5"}'), [], ["device plugin"] * 3),
        (pod(", nvidia.com/gpu.shared: 1"), [], ["device plugin"] * 3),
        (pod(", amd.com/gpu: 1"), [], ["device plugin"] * 3),
        (CLAIMS + pod(below="resourceClaims: [{name: a, resourceClaimTemplateName: part}]"), [], ["nothing", "claims", "claims"]),
        (CLAIMS + pod(below="resourceClaims: [{name: a, resourceClaimTemplateName: channel}]"), ["karpenter"], ["nothing", "claims", "claims"]),
    ],
)  # fmt: skip
def test_the_choice_follows_the_workload_the_version_and_who_launches_nodes(
    text: str, by: list[str], choices: list[str]
) -> None:
    assert releases() == ((1, 33), (1, 34), (1, 36))
    (found,) = advise(read(text), releases(), by)
    assert [str(one.choice) for one in found.verdicts] == choices
    assert all(one.reasons for one in found.verdicts)


def test_reasons_name_gates_and_autoscalers() -> None:
    (mig,) = advise(read(pod(", nvidia.com/mig-1g.5gb: 1")), [(1, 35), (1, 36)], [])
    assert "DRAPartitionableDevices" in mig.verdicts[0].reasons[0] and "1.36" in mig.verdicts[0].reasons[0]
    assert mig.verdicts[1].choice is Choice.CLAIMS and "DynamicMIG is alpha and off" in mig.verdicts[1].reasons[1]
    text = CLAIMS + pod(below="resourceClaims: [{name: a, resourceClaimTemplateName: channel}]")
    (spans,) = advise(read(text), [(1, 36)], ["karpenter"])
    assert spans.asks == "ResourceClaims and a ComputeDomain"
    assert spans.verdicts[0].reasons[0] == "no device plugin serves NVLink between nodes"
    assert "--ignore-dra-requests" in spans.verdicts[0].reasons[1]


def test_what_launches_nodes_is_read_from_the_manifests() -> None:
    pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\n"
    assert autoscalers(read(pool)) == ("karpenter",)
    auto = "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nautoModeConfig: {enabled: true}\nmanagedNodeGroups: [{name: g}]\n"
    assert autoscalers(read(auto + "---\n" + pool)) == ("auto-mode", "cluster-autoscaler")
    assert autoscalers(read(pod())) == ()


# ---- manifests as people have them ----


def test_workloads_of_one_name_get_templates_of_names_of_their_own(tmp_path: Path) -> None:
    stateful = pod(f", {GPU}: 1", kind="Deployment").replace("Deployment", "StatefulSet")
    found = convert(read("---\n".join([pod(f", {GPU}: 4", kind="Deployment"), stateful, pod(f", {GPU}: 2")])))
    counts = {
        one["metadata"]["name"]: one["spec"]["spec"]["devices"]["requests"][0]["exactly"].get("count", 1)
        for one in found.documents
        if one["kind"] == "ResourceClaimTemplate"
    }
    assert counts == {"chat-gpus": 4, "chat-statefulset-gpus": 1, "chat-pod-gpus": 2}
    named = made(found, "StatefulSet")["spec"]["template"]["spec"]["resourceClaims"]
    assert named == [{"name": "gpus", "resourceClaimTemplateName": "chat-statefulset-gpus"}]
    assert is_taken(found, tmp_path)


def test_names_that_are_taken_are_not_given_again(tmp_path: Path) -> None:
    spec = "spec: {devices: {requests: [{name: a, exactly: {deviceClassName: nic.example.com}}]}}"
    nic = (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: chat-gpus, namespace: team}}\n{spec}\n"
    )
    below = "resourceClaims: [{name: gpus, resourceClaimName: chat-gpus}]"
    found = convert(read(nic + "---\n" + pod(f", {GPU}: 1", below=below)))
    assert made(found, "ResourceClaimTemplate")["metadata"]["name"] == "chat-pod-gpus"
    assert made(found, "Pod")["spec"]["resourceClaims"] == [
        {"name": "gpus", "resourceClaimName": "chat-gpus"},
        {"name": "gpus-2", "resourceClaimTemplateName": "chat-pod-gpus"},
    ]
    assert made(found, "Pod")["spec"]["containers"][0]["resources"]["claims"][0]["name"] == "gpus-2"
    assert is_taken(found, tmp_path)


@pytest.mark.parametrize(("meta", "name"), [("generateName: run-", "run-gpus"), ("labels: {a: b}", "pod-gpus")])
def test_a_pod_without_a_name_gets_a_template_that_the_api_takes(meta: str, name: str) -> None:
    found = convert(read(pod(f", {GPU}: 1").replace("name: chat,", f"{meta},")))
    assert made(found, "ResourceClaimTemplate")["metadata"]["name"] == name


def test_fields_that_a_chart_leaves_empty_are_as_absent() -> None:
    empty = "nodeSelector:\ntolerations:\ninitContainers:\n"
    text = pod(f", {GPU}: 2", above="annotations: ", below=empty, kind="Deployment")
    found = convert(read(text.replace("replicas: 1", "replicas:")))
    requests = made(found, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"]
    assert requests[0]["exactly"]["count"] == 2 and not found.lost
    (advice,) = advise(read(text), [(1, 36)], ())
    assert advice.asks == "nvidia.com/gpu: 2"
    shared = pod(", nvidia.com/gpu.shared: 1", below=empty, kind="Deployment").replace("replicas: 1", "replicas:")
    assert "its 1 pods share one GPU" in convert(read(shared)).lost[0].text


def test_what_controllers_made_in_a_dump_is_advised_and_converted_once() -> None:
    def owner(kind: str, name: str, uid: str) -> str:
        return f"ownerReferences: [{{kind: {kind}, name: {name}, uid: {uid}, controller: true}}]"

    def named(text: str, name: str, more: str) -> str:
        return text.replace("metadata: {name: chat,", f"metadata: {{name: {name}, {more},", 1)

    workload = named(pod(f", {GPU}: 2", kind="Deployment"), "chat", "uid: u1")
    replica_set = pod(f", {GPU}: 2", kind="Deployment").replace("kind: Deployment", "kind: ReplicaSet")
    replica_set = named(replica_set, "chat-5d", "uid: u2, " + owner("Deployment", "chat", "u1"))
    pods = [named(pod(f", {GPU}: 2"), f"chat-5d-{n}", owner("ReplicaSet", "chat-5d", "u2")) for n in (1, 2)]
    other = named(pod(f", {GPU}: 1"), "old", owner("ReplicaSet", "chat-5d", "u0"))
    node = f"apiVersion: v1\nkind: Node\nmetadata: {{name: n1, {owner('NodeClaim', 'c', 'u9')}}}\n"
    documents = read("---\n".join([workload, replica_set, *pods, other, node]))
    assert [one.workload for one in advise(documents, [(1, 36)], ())] == ["Deployment team/chat", "Pod team/old"]
    found = convert(documents)
    kinds = [one["kind"] for one in found.documents if one["kind"] != "ResourceClaimTemplate"]
    assert kinds == ["DeviceClass", "Deployment", "Pod", "Node"]
    assert found.notes[0].about == "Deployment team/chat"
    assert found.notes[0].text.endswith("left out, as it is recreated: 2 Pods, 1 ReplicaSet")


def test_gpus_that_containers_get_by_default_are_named() -> None:
    limits = "spec: {limits: [{type: Container, default: {nvidia.com/gpu: 1, cpu: 2}, max: {nvidia.com/gpu: 8}}]}"
    found = convert(read(f"apiVersion: v1\nkind: LimitRange\nmetadata: {{name: d, namespace: team}}\n{limits}\n"))
    assert losses(found) == [
        "LimitRange team/d: its default nvidia.com/gpu: 1 is given to containers beside their claims: remove it"
    ]


def test_the_slices_of_an_a30_are_counted_as_it_has_them() -> None:
    selector = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-A30}"
    (lost,) = losses(convert(read(pod(above='annotations: {gpu-fraction: "0.3"}', below=selector))))
    assert "2g.12gb, which has 2 of 4 compute and 2 of 4 memory slices" in lost


def test_a_fraction_that_is_none_is_served_by_nothing() -> None:
    (advice,) = advise(read(pod(above='annotations: {gpu-fraction: "1.3"}')), [(1, 36)], ())
    (verdict,) = advice.verdicts
    assert verdict.choice is Choice.NOTHING and verdict.reasons == (
        "gpu-fraction '1.3' is not a number between 0 and 1",
    )


# ---- what nobody should write ----


def _spoilt(value: Any, draw: Random) -> Any:
    """The value with one part of it, somewhere, of another type."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(sorted(value, key=str))
        return {**value, key: _spoilt(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], _spoilt(value[at], draw), *value[at + 1 :]]
    return draw.choice((None, [], {}, "x", -1, 1.5, True, [None], ["x"], {"x": None}, {"": []}, [{}], "9" * 40))


def test_nothing_that_is_written_crashes_the_conversion() -> None:
    draw = Random("spoilt manifests")
    texts = [path.read_text() for path in sorted(DEAD.glob("*.yaml"))]
    init = f"initContainers: [{{name: load, image: app, resources: {{limits: {{{GPU}: 1}}}}}}]"
    texts += [
        pod(f", {GPU}: 2", below=init),
        CLAIMS + pod(below="resourceClaims: [{name: a, source: {resourceClaimName: b}}]"),
    ]
    texts += [pod(above='annotations: {gpu-fraction: "0.25"}', kind="Deployment"), pod(", nvidia.com/gpu.shared: 1")]
    texts += ["apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.nvidia.com/gpu: 8}}\n"]
    for _ in range(1_000):
        documents = read(draw.choice(texts))
        at = draw.randrange(len(documents))
        spoilt = _spoilt(documents[at].content, draw)
        documents[at] = Written(spoilt if isinstance(spoilt, dict) else {}, documents[at].where)
        convert(documents)
        advise(documents, releases(), autoscalers(documents))
