"""What the API server refuses in pods and workloads. Each case adds lines to a good manifest, from line 9 on."""

from __future__ import annotations

import pytest
from objects_builders import DEPLOYMENT, POD, refusals


def pod_with(*lines: str) -> list[str]:
    return [problem.removeprefix("x.yaml:") for problem in refusals(POD + "".join(f"{line}\n" for line in lines))]


def resources(requests: str = "", limits: str = "") -> list[str]:
    found = pod_with(f"      resources: {{requests: {{{requests}}}, limits: {{{limits}}}}}")
    return [problem.removeprefix("9:spec.containers[0].resources.") for problem in found]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ("cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1", "cpu: 1, memory: 1Gi, nvidia.com/gpu: 1", []),
        ("", "nvidia.com/gpu: 1", []),
        ("cpu: 0", "cpu: 0", []),
        (
            "ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi",
            "hugepages-2Mi: 4Mi",
            ["9:spec.containers[0].resources: HugePages require cpu or memory"],
        ),
        ("cpu: -1", "", ["requests.cpu: -1: must be greater than or equal to 0"]),
        ("", "nvidia.com/gpu: -1", ["limits.nvidia.com/gpu: -1: must be greater than or equal to 0"]),
        (
            "memory: 1 Gi",
            "",
            ['requests.memory: "1 Gi": expected a quantity, e.g. 500m, 8 or 32Gi (did you mean 1Gi?)'],
        ),
        (
            "memory: 64GB",
            "",
            ['requests.memory: "64GB": expected a quantity, e.g. 500m, 8 or 32Gi (did you mean 64G?)'],
        ),
        ("memory: much", "", ['requests.memory: "much": expected a quantity, e.g. 500m, 8 or 32Gi']),
        (
            "",
            "nvidia.com/gpu: 0.5",
            [
                "limits.nvidia.com/gpu: 0.5: must be an integer (share a GPU by time-slicing, MPS or MIG, or ask for a whole one)"
            ],
        ),
        (
            "",
            "nvidia.com/gpu: 500m",
            [
                'limits.nvidia.com/gpu: "500m": must be an integer (share a GPU by time-slicing, MPS or MIG, or ask for a whole one)'
            ],
        ),
        (
            "nvidia.com/gpu: 1",
            "cpu: 1",
            [
                "requests.nvidia.com/gpu: Limit must be set for non overcommitable resources (add the same amount under limits)"
            ],
        ),
        (
            "nvidia.com/gpu: 1",
            "nvidia.com/gpu: 2",
            ["requests.nvidia.com/gpu: 1: must be equal to nvidia.com/gpu limit of 2"],
        ),
        (
            "hugepages-2Mi: 4Mi",
            "hugepages-2Mi: 8Mi",
            [
                'requests.hugepages-2Mi: "4Mi": must be equal to hugepages-2Mi limit of 8Mi',
                "9:spec.containers[0].resources: HugePages require cpu or memory",
            ],
        ),
        ("cpu: 2", "cpu: 1500m", ["requests.cpu: 2: must be less than or equal to cpu limit of 1500m"]),
        ("memory: 2Gi", "memory: 2G", ['requests.memory: "2Gi": must be less than or equal to memory limit of 2G']),
        ("nvidia.com/gpu: 1000m", "nvidia.com/gpu: 1", []),
        (
            "",
            "gpu: 1",
            [
                "limits.gpu: 1: must be a standard resource type or fully qualified (extended resources have a domain, e.g. nvidia.com/gpu)",
                "limits.gpu: 1: must be a standard resource for containers (extended resources have a domain, e.g. nvidia.com/gpu)",
            ],
        ),
        (
            "",
            "nvidia.com/: 1",
            [
                "limits.nvidia.com/: 1: name part must be non-empty",
                "limits.nvidia.com/: 1: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')",
                "limits.nvidia.com/: 1: doesn't follow extended resource name standard",
            ],
        ),
        (
            "",
            "requests.nvidia.com/gpu: 1",
            ["limits.requests.nvidia.com/gpu: 1: doesn't follow extended resource name standard"],
        ),
    ],
)
def test_resources_that_the_api_server_refuses(requests: str, limits: str, expected: list[str]) -> None:
    assert resources(requests, limits) == expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ("{operator: Exists}", []),
        ("{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", []),
        ("{key: a, value: b, effect: NoExecute, tolerationSeconds: 3}", []),
        ("{key: a, operator: exists}", ['operator: "exists": expected one of Equal, Exists (did you mean Exists?)']),
        (
            "{value: b}",
            ['operator: "": operator must be Exists when `key` is empty, which means "match all values and all keys"'],
        ),
        (
            "{key: a, operator: Exists, value: b}",
            ["value: \"b\": value must be empty when `operator` is 'Exists'"],
        ),
        (
            "{key: a, effect: NoSchedul}",
            ['effect: "NoSchedul": expected one of NoSchedule, PreferNoSchedule, NoExecute (did you mean NoSchedule?)'],
        ),
        (
            "{key: a, effect: NoSchedule, tolerationSeconds: 3}",
            ["effect: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
        ),
        (
            "{key: 'a b'}",
            [
                "key: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')"
            ],
        ),
        (
            "{key: a, value: '-'}",
            [
                "value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345')"
            ],
        ),
    ],
)
def test_tolerations_that_the_api_server_refuses(toleration: str, expected: list[str]) -> None:
    assert pod_with(f"  tolerations: [{toleration}]") == [f"9:spec.tolerations[0].{one}" for one in expected]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("{matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: Exists}]}", []),
        ("{matchExpressions: [{key: a, operator: Gt, values: ['4']}]}", []),
        ("{matchFields: [{key: metadata.name, operator: In, values: [node]}]}", []),
        (
            "{matchExpressions: [{key: a, operator: in, values: [b]}]}",
            ['matchExpressions[0].operator: "in": not a valid selector operator'],
        ),
        (
            "{matchExpressions: [{key: a, operator: NotIn}]}",
            ["matchExpressions[0].values: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            ["matchExpressions[0].values: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"],
        ),
        (
            "{matchExpressions: [{key: a, operator: Lt, values: ['1', '2']}]}",
            ["matchExpressions[0].values: must be specified single value when `operator` is 'Lt' or 'Gt'"],
        ),
        (
            "{matchFields: [{key: metadata.namespace, operator: In, values: [node]}]}",
            ['matchFields[0].key: "metadata.namespace": not a valid field selector key'],
        ),
        (
            "{matchFields: [{key: metadata.name, operator: In, values: [node, other]}]}",
            [
                "matchFields[0].values: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            ],
        ),
    ],
)
def test_node_affinity_terms_that_the_api_server_refuses(term: str, expected: list[str]) -> None:
    terms = f"{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}"
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    assert pod_with(f"  affinity: {{nodeAffinity: {terms}}}") == [f"9:{path}.{one}" for one in expected]


def test_affinity_weights_are_1_to_100() -> None:
    node = "nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}"
    term = "{weight: 101, podAffinityTerm: {topologyKey: ''}}"
    pod = f"podAntiAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{term}]}}"
    assert pod_with("  affinity:", f"    {node}", f"    {pod}") == [
        "10:spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: 0: must be in the range 1-100",
        "11:spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: 101: must be in the range 1-100",
        "11:spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: can not be empty",
        '11:spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: "": name part must be non-empty',
        "11:spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')",
    ]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, labelSelector: {}}", []),
        (
            "{maxSkew: 1, topologyKey: zone}",
            ['whenUnsatisfiable: "": expected one of DoNotSchedule, ScheduleAnyway'],
        ),
        (
            "{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: Schedule, nodeTaintsPolicy: Never}",
            [
                "maxSkew: 0: must be greater than zero",
                'whenUnsatisfiable: "Schedule": expected one of DoNotSchedule, ScheduleAnyway (did you mean DoNotSchedule?)',
                'nodeTaintsPolicy: "Never": expected one of Honor, Ignore',
            ],
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2, matchLabelKeys: [a]}",
            [
                "minDomains: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
                "matchLabelKeys: must not be specified when labelSelector is not set (add one or remove it)",
            ],
        ),
    ],
)
def test_spread_constraints_that_the_api_server_refuses(constraint: str, expected: list[str]) -> None:
    found = pod_with(f"  topologySpreadConstraints: [{constraint}]")
    assert found == [f"9:spec.topologySpreadConstraints[0].{one}" for one in expected]


def test_containers_have_an_image_and_names_of_their_own() -> None:
    assert pod_with(
        "    - {name: main, image: x}", "    - {name: Side_Car, image: x}", "  initContainers: [{name: main}]"
    ) == [
        '9:spec.containers[1].name: "main": appears twice (rename or remove one)',
        "10:spec.containers[2].name: \"Side_Car\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc')",
        '11:spec.initContainers[0].name: "main": appears twice (rename or remove one)',
        "11:spec.initContainers[0].image: the field is missing (the API server requires it)",
    ]


def test_ports_probes_and_variables_of_a_container() -> None:
    found = pod_with(
        "      ports:",
        "        - {containerPort: 0}",
        "        - {containerPort: 80, name: http, protocol: tcp}",
        "        - {containerPort: 81, name: http}",
        "        - {containerPort: 82, name: a-very-long-port-name}",
        "      env: [{name: 'A=B'}, {name: ''}]",
        "      livenessProbe: {periodSeconds: -1, successThreshold: 2}",
    )
    assert found == [
        "10:spec.containers[0].ports[0].containerPort: the field is missing (the API server requires it)",
        '11:spec.containers[0].ports[1].protocol: "tcp": expected one of SCTP, TCP, UDP (did you mean TCP?)',
        '12:spec.containers[0].ports[2].name: "http": appears twice (rename or remove one)',
        '13:spec.containers[0].ports[3].name: "a-very-long-port-name": must be no more than 15 characters',
        "14:spec.containers[0].env[0].name: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        "14:spec.containers[0].env[1].name: the field is missing (the API server requires it)",
        "15:spec.containers[0].livenessProbe: must specify a handler type",
        "15:spec.containers[0].livenessProbe.periodSeconds: -1: must be greater than or equal to 0",
        "15:spec.containers[0].livenessProbe.successThreshold: 2: must be 1",
    ]


def test_the_rest_of_a_pod() -> None:
    found = pod_with(
        "  restartPolicy: always",
        "  terminationGracePeriodSeconds: -1",
        "  nodeSelector: {'a b': c, d: '-e'}",
        "  overhead: {cpu: -1m}",
        "  resources: {requests: {cpu: 1, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}",
        "  schedulingGates: [{name: a}, {name: a}]",
    )
    assert found == [
        '9:spec.restartPolicy: "always": expected one of Always, OnFailure, Never (did you mean Always?)',
        "11:spec.nodeSelector.a b: \"c\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')",
        "11:spec.nodeSelector.d: \"-e\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345')",
        '12:spec.overhead.cpu: "-1m": must be greater than or equal to 0',
        "13:spec.resources.limits.nvidia.com/gpu: 1: expected one of cpu, hugepages-, memory",
        "13:spec.resources.requests.nvidia.com/gpu: 1: expected one of cpu, hugepages-, memory",
        '14:spec.schedulingGates[1]: "a": appears twice (rename or remove one)',
    ]


def test_a_pod_needs_containers() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n"
    assert refusals(text) == ["x.yaml:4:spec.containers: the field is missing (the API server requires it)"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("{name: a.b-c, namespace: x, labels: {a: b, a.io/b: '', c: A_b.c}, annotations: {Any.io/x: any thing}}", []),
        ("{}", ["name: name or generateName is required"]),
        (
            "{name: A}",
            [
                "name: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com')"
            ],
        ),
        (
            "{name: a_b}",
            [
                "name: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com')"
            ],
        ),
        (
            "{name: a, namespace: b.c}",
            ['namespace: "b.c": must not contain dots'],
        ),
        ("{name: a, labels: {/x: b}}", ['labels./x: "b": prefix part must be non-empty']),
        (
            "{name: a, labels: {x/y/z: b}}",
            [
                "labels.x/y/z: \"b\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')"
            ],
        ),
        (
            "{name: a, labels: {x: a b}}",
            [
                "labels.x: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345')"
            ],
        ),
        (
            "{name: a, annotations: {a b: c}}",
            [
                "annotations.a b: \"c\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc')"
            ],
        ),
    ],
)
def test_names_labels_and_annotations(metadata: str, expected: list[str]) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\n"
    assert refusals(text) == [f"x.yaml:3:metadata.{one}" for one in expected]


def test_names_have_a_longest_length() -> None:
    assert refusals(POD.replace("name: p", f"name: {'p' * 253}")) == []
    assert len(refusals(POD.replace("name: p", f"name: {'p' * 254}"))) == 1
    assert refusals(POD.replace("name: p", f"name: p\n  labels: {{a: {'v' * 63}}}")) == []
    assert len(refusals(POD.replace("name: p", f"name: p\n  labels: {{a: {'v' * 64}}}"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("spec:\n  sel", "spec:\n  replicas: 0\n  sel", []),
        ("spec:\n  sel", "spec:\n  replicas: -1\n  sel", ["6:spec.replicas: -1: must be greater than or equal to 0"]),
        (
            "spec:\n  sel",
            "spec:\n  replicas: 3000000000\n  sel",
            ["6:spec.replicas: 3000000000: expected an integer of 32 bits"],
        ),
        (
            "spec:\n  sel",
            "spec:\n  minReadySeconds: -1\n  sel",
            ["6:spec.minReadySeconds: -1: must be greater than or equal to 0"],
        ),
        (
            "spec:\n  sel",
            "spec:\n  strategy: {type: Rolling}\n  sel",
            ['6:spec.strategy.type: "Rolling": expected one of Recreate, RollingUpdate (did you mean RollingUpdate?)'],
        ),
        (
            "spec:\n  sel",
            "spec:\n  strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}\n  sel",
            ["6:spec.strategy.rollingUpdate: may not be specified when strategy `type` is 'Recreate'"],
        ),
        (
            "matchLabels: {app: d}",
            "matchLabels: {}",
            [
                "6:spec.selector: {}: empty selector is invalid for deployment (select the labels of spec.template.metadata)"
            ],
        ),
        (
            "matchLabels: {app: d}",
            "matchLabels: {app: e}",
            [
                '10:spec.template.metadata.labels: {"app": "d"}: `selector` does not match template `labels` (give the template the labels that spec.selector wants)'
            ],
        ),
        (
            "matchLabels: {app: d}",
            "matchExpressions: [{key: app, operator: In}]",
            [
                '6:spec.selector: {"matchExpressions": [{"key": "app", "operator": "In"}]}: invalid label selector',
                "7:spec.selector.matchExpressions[0].values: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        ),
        (
            "      containers:",
            "      restartPolicy: Never\n      containers:",
            ['12:spec.template.spec.restartPolicy: "Never": expected one of Always'],
        ),
        (
            "image: img",
            "image: img\n          resources: {limits: {nvidia.com/gpu: 0.5}}",
            [
                "15:spec.template.spec.containers[0].resources.limits.nvidia.com/gpu: 0.5: must be an integer (share a GPU by time-slicing, MPS or MIG, or ask for a whole one)"
            ],
        ),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_workloads_that_the_api_server_refuses(kind: str, old: str, new: str, expected: list[str]) -> None:
    text = DEPLOYMENT.replace(old, new).replace("Deployment", kind)
    own = [one for one in expected if kind == "Deployment" or not one.startswith(("6:spec.r", "6:spec.st"))]
    own = [one.replace("for deployment", f"for {kind.lower()}") for one in own]
    assert refusals(text) == [f"x.yaml:{one}" for one in own]
