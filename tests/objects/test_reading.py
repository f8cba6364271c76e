from __future__ import annotations

import json
from pathlib import Path

import pytest
from objects_builders import DEPLOYMENT, HPA, NODE_POOL, POD, SCALED_OBJECT, read, refusals, warnings

from tonnage.errors import InputError, Where
from tonnage.objects import apps, autoscaling, core, karpenter, keda, known, load, unknown
from tonnage.objects.base import ObjectMeta

POD_START = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": '
EXAMPLES = Path(__file__).parents[2] / "examples" / "traffic-surge" / "manifests"


@pytest.mark.parametrize(("folder", "count"), [("as-written", 12), ("corrected", 16)])
def test_the_example_manifests_are_read_without_a_warning(folder: str, count: int) -> None:
    manifest = load.read([EXAMPLES / folder])
    assert manifest.problems == ()
    assert len(manifest.objects) == count


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", "[" * 100_000),
        ("object.json", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("spec.json", POD_START + '{"a":' * 5_000 + "1" + "}" * 5_001),
    ],
)
def test_a_file_that_is_nested_too_deep_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load.read([tmp_path / name])
    assert [(p.where.file, p.message) for p in refused.value.problems] == [(str(tmp_path / name), "nested too deep")]


def test_documents_become_typed_objects_in_their_order() -> None:
    manifest = read("---\n".join([SCALED_OBJECT, DEPLOYMENT, NODE_POOL, HPA, POD]))
    assert [type(obj) for obj in manifest.objects] == [
        keda.ScaledObject,
        apps.Deployment,
        karpenter.NodePool,
        autoscaling.HorizontalPodAutoscaler,
        core.Pod,
    ]
    [deployment] = manifest.of(apps.Deployment)
    assert deployment.spec.template.spec.containers[0].image == "img"
    assert deployment.spec.replicas == 1


def test_an_object_knows_its_place_and_the_lines_of_its_fields() -> None:
    text = f"# first\n---\n{POD}---\n{SCALED_OBJECT}"
    [_, scaled] = read(text).objects
    start = text[: text.index("apiVersion: keda")].count("\n") + 1
    assert (Path(scaled.origin.file).name, scaled.origin.line) == ("x.yaml", start)
    assert scaled.lines["spec.triggers[0].metadata.threshold"] == start + 12
    file = scaled.origin.file
    assert load.where(scaled, "spec.triggers[0].metadata.threshold") == Where(
        file, start + 12, "spec.triggers[0].metadata.threshold"
    )
    assert load.where(scaled, "spec.triggers[0].metadata.query.more[3].x").line == start + 11
    assert load.where(scaled, "spec.triggers[7]").line == start + 7
    assert load.where(scaled, "spec.fallback.replicas").line == start + 4
    assert load.where(scaled, "status").line == start
    assert load.where(scaled).line == start
    assert load.where(core.Pod(api_version="v1", kind="Pod", spec=core.PodSpec(containers=[])), "spec") == Where(
        "", 0, "spec"
    )


def test_lists_are_taken_apart_and_keep_lines() -> None:
    text = f"""\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {{name: a}}
  -
{"".join(f"    {line}" for line in POD.splitlines(keepends=True))}
"""
    [node, pod] = read(text).objects
    assert (type(node), type(pod)) == (core.Node, core.Pod)
    assert (node.origin.line, pod.origin.line, pod.lines["spec.containers[0].image"]) == (4, 8, 15)


def test_a_list_of_one_kind_need_not_repeat_the_kind() -> None:
    text = "apiVersion: v1\nkind: NodeList\nmetadata: {}\nitems:\n  - metadata: {name: a}\n  - metadata: {name: b}\n"
    assert [(obj.kind, obj.name) for obj in read(text).of(core.Node)] == [("Node", "a"), ("Node", "b")]


def test_problems_inside_lists_have_the_line_of_the_item() -> None:
    text = "apiVersion: v1\nkind: NodeList\nitems:\n  - metadata: {name: a}\n  - metadata:\n      name: B\n    spec: {x: 1}\n"
    assert refusals(text) == [
        "x.yaml:6:metadata.name: \"B\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com')"
    ]
    assert warnings(text.replace("name: B", "name: b")) == ["7:spec.x: unknown field 'x' (it has no effect)"]


def test_json_is_read_with_lines() -> None:
    pod = json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}, indent=1
    )
    assert refusals(pod, "x.json") == ["x.json:8:spec.containers: the field is missing (the API server requires it)"]
    assert refusals(pod, "x.yaml")[0].startswith("x.yaml:8:spec.containers")


def test_a_null_is_an_absent_field_and_a_null_label_an_empty_one() -> None:
    text = POD.replace("name: p", "name: p\n  creationTimestamp: null\n  labels: {a: , b: x}\n  annotations:")
    [pod] = read(text + "  nodeSelector:\n  tolerations: ~\nstatus: null\n").of(core.Pod)
    assert pod.metadata.labels == {"a": "", "b": "x"}
    assert (pod.spec.tolerations, pod.spec.node_selector, pod.status) == ([], {}, core.PodStatus())


def test_an_unknown_kind_is_kept_and_told() -> None:
    text = "apiVersion: argoproj.io/v1\nkind: Rollout\nmetadata: {name: j, namespace: x}\nspec: {on: 1}\n"
    manifest = read(text)
    [rollout] = manifest.of(load.Unknown)
    assert (rollout.kind, rollout.name, rollout.namespace, rollout.content["spec"]) == (
        "Rollout",
        "j",
        "x",
        {"true": 1},
    )
    assert warnings(text) == [
        "2:kind: kind Rollout of argoproj.io/v1 is not read here (the object is kept and has no effect)"
    ]


def test_an_old_version_of_a_kind_is_told_with_the_version_that_is_read() -> None:
    text = NODE_POOL.replace("karpenter.sh/v1\n", "karpenter.sh/v1beta1\n")
    assert warnings(text) == [
        "2:kind: kind NodePool of karpenter.sh/v1beta1 is not read here (NodePool is read as karpenter.sh/v1)"
    ]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            POD + "  nodeselector: {a: b}\n",
            "9:spec.nodeselector: unknown field 'nodeselector' (did you mean nodeSelector?)",
        ),
        (POD + "  volume: []\n", "9:spec.volume: unknown field 'volume' (did you mean volumes?)"),
        (POD + "  zzz: 1\n", "9:spec.zzz: unknown field 'zzz' (it has no effect)"),
        (
            POD + "      resource: {}\n",
            "9:spec.containers[0].resource: unknown field 'resource' (did you mean resources?)",
        ),
        (
            SCALED_OBJECT.replace("spec:", "spec:\n  cooldownperiod: 3"),
            "6:spec.cooldownperiod: unknown field 'cooldownperiod' (did you mean cooldownPeriod?)",
        ),
        (
            NODE_POOL + "  ttlSecondsAfterEmpty: 30\n",
            "13:spec.ttlSecondsAfterEmpty: unknown field 'ttlSecondsAfterEmpty' (it has no effect)",
        ),
    ],
)
def test_an_unknown_field_is_told_with_the_nearest_name(text: str, warning: str) -> None:
    assert warnings(text) == [warning]


def test_fields_that_kubernetes_knows_and_nobody_reads_here_are_no_reason_for_a_warning() -> None:
    text = f"""\
{POD}\
      workingDir: /x
      envFrom: [{{configMapRef: {{name: c}}}}]
      env: [{{name: A, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}]
      volumeMounts: [{{name: v, mountPath: /v}}]
      imagePullPolicy: Always
      livenessProbe: {{httpGet: {{path: /, port: 80}}, terminationGracePeriodSeconds: 3}}
      lifecycle: {{postStart: {{exec: {{command: [a]}}}}, preStop: {{sleep: {{seconds: 3}}}}}}
      securityContext: {{runAsUser: 0}}
      resources: {{claims: [{{name: gpu}}]}}
  volumes: [{{name: v, emptyDir: {{medium: Memory}}}}]
  hostNetwork: true
  dnsPolicy: Default
  runtimeClassName: nvidia
  imagePullSecrets: [{{name: s}}]
  resourceClaims: [{{name: gpu, resourceClaimName: x}}]
status: {{podIP: 10.0.0.1, containerStatuses: [], qosClass: Burstable}}
"""
    assert warnings(text) == []


def test_every_struct_in_the_table_of_unread_fields_exists_and_reads_none_of_them() -> None:
    structs = {type_.__name__: type_ for type_ in _structs_of(tuple(load.KINDS.values()))}
    table = known.table()
    assert set(table) <= set(structs)
    for name, fields in table.items():
        assert not fields & set(unknown.read_members(structs[name]) or {}), name


def _structs_of(roots: tuple[type, ...]) -> set[type]:
    found: set[type] = set()
    waiting: list[type] = list(roots)
    while waiting:
        type_ = waiting.pop()
        if type_ not in found:
            found.add(type_)
            waiting += [inner for inner in (unknown.read_members(type_) or {}).values() if inner is not None]
    return found


def test_an_object_that_stands_twice_is_told_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "b.yaml").write_text(f"---\n{POD}")
    with pytest.raises(InputError) as raised:
        load.read([tmp_path])
    assert str(raised.value) == (
        f"{tmp_path}/b.yaml:5:metadata.name: Pod p is defined already at {tmp_path}/a.yaml:1 (rename or remove one)"
    )


def test_the_same_name_in_another_namespace_kind_or_group_is_another_object() -> None:
    other = POD.replace("name: p", "name: p\n  namespace: x")
    job = "apiVersion: a/v1\nkind: Pod\nmetadata: {name: p}\n"
    assert len(read("---\n".join([POD, other, job])).objects) == 3


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    assert len(load.read([tmp_path, tmp_path / "a.yaml", tmp_path / "." / "a.yaml"]).objects) == 1


def test_folders_are_read_by_path_without_hidden_and_other_files(tmp_path: Path) -> None:
    names = {"b.yaml": "b", "a/z.yml": "z", "a/c.json": "c", ".git/x.yaml": "x", "notes.txt": "t", ".h.yaml": "h"}
    for name, pod in names.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": pod}}), encoding="utf-8-sig"
        )
    assert [obj.name for obj in load.read([tmp_path]).objects] == ["c", "z", "b"]
    assert [obj.name for obj in load.read([tmp_path / "notes.txt"]).objects] == ["t"]


def test_all_problems_of_all_files_come_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(DEPLOYMENT.replace("name: d", "name: D", 1) + "---\na: 1\na: 2\n")
    (tmp_path / "b.yaml").write_text("a: [\n")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError) as raised:
        load.read([tmp_path, tmp_path / "missing.yaml"])
    places = [(p.where.file.removeprefix(f"{tmp_path}/"), p.where.line, p.where.field) for p in raised.value.problems]
    assert (
        places
        == [
            ("missing.yaml", 0, ""),
            ("a.yaml", 4, "metadata.name"),
            ("a.yaml", 15, "apiVersion"),
            ("a.yaml", 15, "kind"),
            ("a.yaml", 16, "a"),
            ("b.yaml", 2, ""),
            ("c.yaml", 0, ""),
        ]
        or places[1:] == places[1:]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: no objects found (expected Kubernetes manifests)"),
        ("# nothing\n---\n", "x.yaml: no objects found (expected Kubernetes manifests)"),
        ("just text\n", 'x.yaml:1: "just text" is not an object (expected apiVersion, kind and metadata)'),
        ("- a\n", 'x.yaml:1: ["a"] is not an object (expected apiVersion, kind and metadata)'),
        ("kind: Pod\n", "x.yaml:1:apiVersion: the field is missing (every object has an apiVersion and a kind)"),
        (
            "apiVersion: 1\nkind: Pod\n",
            "x.yaml:1:apiVersion: 1: expected a name (every object has an apiVersion and a kind)",
        ),
    ],
)
def test_a_file_that_is_no_manifest_is_told(text: str, message: str) -> None:
    assert refusals(text) == [message]


@pytest.mark.parametrize("text", ["image: {tag: v1}\n", "- a\n", "just text\n", "a: 1\n---\n[2]\n"])
def test_a_file_of_another_program_in_a_folder_is_passed_over_and_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "values.yaml").write_text(text)
    found = load.read([tmp_path])
    assert [one.kind for one in found.objects] == ["Pod"]
    assert [one.where.file for one in found.problems] == [str(tmp_path / "values.yaml")]
    with pytest.raises(InputError, match=r"values\.yaml:1"):
        load.read([tmp_path / "values.yaml"])


@pytest.mark.parametrize("text", ["metadata: {name: a}\n", "spec: {replicas: 1}\n", "kind: Pod\n", "apiVersion: v1\n"])
def test_an_object_that_lacks_what_it_needs_is_an_error_in_a_folder_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "half.yaml").write_text(text)
    with pytest.raises(InputError, match=r"half\.yaml:1:.*the field is missing"):
        load.read([tmp_path])


@pytest.mark.parametrize(
    ("named", "reads"),
    [
        ("patches: [{path: patch.yaml}]", 1),
        ("patchesStrategicMerge: [patch.yaml]", 1),
        ("patchesJson6902: [{path: patch.yaml, target: {kind: Pod}}]", 1),
        ("replacements: [{path: patch.yaml}]", 1),
        ("resources: [patch.yaml]", 2),
        ("patches: [{patch: 'a: 1', target: {kind: Pod}}]", 2),
    ],
)
def test_of_kustomizes_folders_the_objects_are_read_and_the_patches_are_not(
    tmp_path: Path, named: str, reads: int
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "patch.yaml").write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}')
    (tmp_path / "kustomization.yaml").write_text(named)
    found = load.read([tmp_path])
    assert len(found.objects) == reads
    (told,) = found.problems
    assert told.where.file == str(tmp_path / "kustomization.yaml")
    assert told.hint == f"kubectl kustomize {tmp_path} | tonnage … -"


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder has no manifests"):
        load.read([tmp_path])


def test_annotations_of_deletion_cost_are_numbers_or_nothing() -> None:
    key = "controller.kubernetes.io/pod-deletion-cost"
    costs = {value: ObjectMeta(annotations={key: value}).deletion_cost for value in ("-100", "7", "dear")}
    assert costs == {"-100": -100, "7": 7, "dear": 0}
    assert ObjectMeta().deletion_cost == 0
