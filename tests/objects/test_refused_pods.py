"""What the API server refuses in pods and workloads. Each case adds lines to a good manifest, from line 9 on."""

from __future__ import annotations

import pytest
from objects_builders import DEPLOYMENT, POD, refusals

NAMES = "a-z, 0-9, '-' and '.', beginning and ending with a letter or digit"
VALUES = "A-Z, a-z, 0-9, '-', '_' and '.', beginning and ending with a letter or digit"
QUALIFIED = "an optional domain and '/', then at most 63 of A-Z, a-z, 0-9, '-', '_' and '.'"


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
        ("ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi", "hugepages-2Mi: 4Mi", []),
        ("cpu: -1", "", ["requests.cpu: -1: expected a quantity of at least 0"]),
        ("", "nvidia.com/gpu: -1", ["limits.nvidia.com/gpu: -1: expected a quantity of at least 0"]),
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
                "limits.nvidia.com/gpu: 0.5: expected a whole number of nvidia.com/gpu "
                "(share a GPU by time-slicing, MPS or MIG, or ask for a whole one)"
            ],
        ),
        (
            "",
            "nvidia.com/gpu: 500m",
            [
                'limits.nvidia.com/gpu: "500m": expected a whole number of nvidia.com/gpu '
                "(share a GPU by time-slicing, MPS or MIG, or ask for a whole one)"
            ],
        ),
        (
            "nvidia.com/gpu: 1",
            "cpu: 1",
            [
                "requests.nvidia.com/gpu: nvidia.com/gpu has a request and no limit: Limit must be set for non "
                "overcommitable resources (add limits with nvidia.com/gpu: 1)"
            ],
        ),
        (
            "nvidia.com/gpu: 1",
            "nvidia.com/gpu: 2",
            ["requests.nvidia.com/gpu: 1: expected the limit's 2 (nvidia.com/gpu cannot be overcommitted)"],
        ),
        (
            "hugepages-2Mi: 4Mi",
            "hugepages-2Mi: 8Mi",
            ['requests.hugepages-2Mi: "4Mi": expected the limit\'s 8Mi (hugepages-2Mi cannot be overcommitted)'],
        ),
        ("cpu: 2", "cpu: 1500m", ["requests.cpu: 2: expected at most the limit of 1500m"]),
        ("memory: 2Gi", "memory: 2G", ['requests.memory: "2Gi": expected at most the limit of 2G']),
        ("nvidia.com/gpu: 1000m", "nvidia.com/gpu: 1", []),
        (
            "",
            "gpu: 1",
            [
                'limits.gpu: "gpu": not a resource that a container can ask for '
                "(extended resources have a domain, e.g. nvidia.com/gpu)"
            ],
        ),
        (
            "",
            "nvidia.com/: 1",
            ['limits.nvidia.com/: "nvidia.com/": expected the name of an extended resource, e.g. nvidia.com/gpu'],
        ),
        (
            "",
            "requests.nvidia.com/gpu: 1",
            [
                'limits.requests.nvidia.com/gpu: "requests.nvidia.com/gpu": expected the name of an extended resource, e.g. nvidia.com/gpu'
            ],
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
        ("{value: b}", ['operator: "Equal": expected Exists, as there is no key (name a key)']),
        (
            "{key: a, operator: Exists, value: b}",
            ['value: "b": expected no value beside Exists (remove it or use Equal)'],
        ),
        (
            "{key: a, effect: NoSchedul}",
            ['effect: "NoSchedul": expected one of NoSchedule, PreferNoSchedule, NoExecute (did you mean NoSchedule?)'],
        ),
        (
            "{key: a, effect: NoSchedule, tolerationSeconds: 3}",
            ['effect: "NoSchedule": expected NoExecute, as there are tolerationSeconds'],
        ),
        ("{key: 'a b'}", [f'key: "a b": expected {QUALIFIED}']),
        ("{key: a, value: '-'}", [f'value: "-": expected at most 63 of {VALUES}']),
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
            [
                'matchExpressions[0].operator: "in": expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt '
                "(did you mean In?)"
            ],
        ),
        (
            "{matchExpressions: [{key: a, operator: NotIn}]}",
            ["matchExpressions[0].values: NotIn needs at least one value (list the values)"],
        ),
        (
            "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            ["matchExpressions[0].values: Exists takes no values (remove them or use In)"],
        ),
        (
            "{matchExpressions: [{key: a, operator: Lt, values: ['1', '2']}]}",
            ['matchExpressions[0].values: Lt takes exactly one value, not 2 (e.g. values: ["4"])'],
        ),
        (
            "{matchFields: [{key: metadata.namespace, operator: In, values: [node]}]}",
            ['matchFields[0].key: "metadata.namespace": expected one of metadata.name (did you mean metadata.name?)'],
        ),
        (
            "{matchFields: [{key: metadata.name, operator: In, values: [node, other]}]}",
            ["matchFields[0].values: expected exactly one value, not 2 (name one node a term)"],
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
    preferred = "preferredDuringSchedulingIgnoredDuringExecution[0]"
    assert pod_with("  affinity:", f"    {node}", f"    {pod}") == [
        f"10:spec.affinity.nodeAffinity.{preferred}.weight: 0: expected 1 to 100",
        f"11:spec.affinity.podAntiAffinity.{preferred}.weight: 101: expected 1 to 100",
        f'11:spec.affinity.podAntiAffinity.{preferred}.podAffinityTerm.topologyKey: "": expected {QUALIFIED}',
    ]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, labelSelector: {}}", []),
        (
            "{maxSkew: 1, topologyKey: zone}",
            ["whenUnsatisfiable: the field is missing (the API server requires it)"],
        ),
        (
            "{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: Schedule, nodeTaintsPolicy: Never}",
            [
                "maxSkew: 0: expected at least 1",
                'whenUnsatisfiable: "Schedule": expected one of DoNotSchedule, ScheduleAnyway (did you mean DoNotSchedule?)',
                'nodeTaintsPolicy: "Never": expected one of Honor, Ignore',
            ],
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2, matchLabelKeys: [a]}",
            [
                "minDomains: 2: expected no minDomains unless DoNotSchedule",
                "matchLabelKeys: matchLabelKeys needs a labelSelector (add one or remove it)",
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
        '9:spec.containers[1].name: "main": a container of this name stands twice (rename one)',
        "10:spec.containers[2].name: \"Side_Car\": expected at most 63 of a-z, 0-9 and '-', beginning and ending with a "
        "letter or digit",
        "11:spec.initContainers[0].image: the field is missing (the API server requires it)",
        '11:spec.initContainers[0].name: "main": a container of this name stands twice (rename one)',
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
    at = "spec.containers[0]"
    assert found == [
        f"10:{at}.ports[0].containerPort: 0: expected 1 to 65535",
        f'11:{at}.ports[1].protocol: "tcp": expected one of TCP, UDP, SCTP (did you mean TCP?)',
        f'12:{at}.ports[2].name: "http": a port of this name stands twice (rename or remove one)',
        f"13:{at}.ports[3].name: \"a-very-long-port-name\": expected at most 15 of a-z, 0-9 and '-', with a letter, "
        "without '--'",
        f"14:{at}.env[0].name: \"A=B\": expected a name without '='",
        f"14:{at}.env[1].name: \"\": expected a name without '='",
        f"15:{at}.livenessProbe.periodSeconds: -1: expected at least 0",
        f"15:{at}.livenessProbe.successThreshold: 2: expected 1 (only readiness may need several)",
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
        "10:spec.terminationGracePeriodSeconds: -1: expected at least 0",
        f'11:spec.nodeSelector.a b: "a b": expected {QUALIFIED}',
        f'11:spec.nodeSelector.d: "-e": expected at most 63 of {VALUES}',
        '12:spec.overhead.cpu: "-1m": expected a quantity of at least 0',
        "13:spec.resources: nvidia.com/gpu cannot be requested for the pod as a whole (ask for it in a container)",
        '14:spec.schedulingGates[1].name: "a": a scheduling gate of this name stands twice (rename or remove one)',
    ]


def test_a_pod_needs_containers() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n"
    assert refusals(text) == ["x.yaml:4:spec.containers: a pod needs at least one container (list it under containers)"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("{name: a.b-c, namespace: x, labels: {a: b, a.io/b: '', c: A_b.c}, annotations: {Any.io/x: any thing}}", []),
        ("{}", ["name: the name is missing (every object has a metadata.name)"]),
        ("{name: A}", [f'name: "A": expected at most 253 of {NAMES}']),
        ("{name: a_b}", [f'name: "a_b": expected at most 253 of {NAMES}']),
        (
            "{name: a, namespace: b.c}",
            [
                "namespace: \"b.c\": expected at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
            ],
        ),
        ("{name: a, labels: {/x: b}}", [f'labels./x: "/x": expected {QUALIFIED}']),
        ("{name: a, labels: {x/y/z: b}}", [f'labels.x/y/z: "x/y/z": expected {QUALIFIED}']),
        ("{name: a, labels: {x: a b}}", [f'labels.x: "a b": expected at most 63 of {VALUES}']),
        ("{name: a, annotations: {a b: c}}", [f'annotations.a b: "a b": expected {QUALIFIED}']),
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
        ("spec:\n  sel", "spec:\n  replicas: -1\n  sel", ["6:spec.replicas: -1: expected at least 0"]),
        (
            "spec:\n  sel",
            "spec:\n  replicas: 3000000000\n  sel",
            ["6:spec.replicas: 3000000000: expected 0 to 2147483647"],
        ),
        ("spec:\n  sel", "spec:\n  minReadySeconds: -1\n  sel", ["6:spec.minReadySeconds: -1: expected at least 0"]),
        (
            "spec:\n  sel",
            "spec:\n  strategy: {type: Rolling}\n  sel",
            ['6:spec.strategy.type: "Rolling": expected one of Recreate, RollingUpdate (did you mean RollingUpdate?)'],
        ),
        (
            "spec:\n  sel",
            "spec:\n  strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}\n  sel",
            ["6:spec.strategy.rollingUpdate: rollingUpdate stands beside type Recreate (remove one of them)"],
        ),
        (
            "matchLabels: {app: d}",
            "matchLabels: {}",
            ["6:spec.selector: the selector is empty (select the labels of spec.template.metadata)"],
        ),
        (
            "matchLabels: {app: d}",
            "matchLabels: {app: e}",
            [
                "10:spec.template.metadata.labels: the selector does not match the template's labels (app=d) "
                "(give the template the labels that spec.selector wants)"
            ],
        ),
        (
            "matchLabels: {app: d}",
            "matchExpressions: [{key: app, operator: In}]",
            [
                "7:spec.selector.matchExpressions[0].values: In needs at least one value (list the values)",
                "10:spec.template.metadata.labels: the selector does not match the template's labels (app=d) "
                "(give the template the labels that spec.selector wants)",
            ],
        ),
        (
            "      containers:",
            "      restartPolicy: Never\n      containers:",
            ['12:spec.template.spec.restartPolicy: "Never": expected Always'],
        ),
        (
            "image: img",
            "image: img\n          resources: {limits: {nvidia.com/gpu: 0.5}}",
            [
                "15:spec.template.spec.containers[0].resources.limits.nvidia.com/gpu: 0.5: expected a whole number of "
                "nvidia.com/gpu (share a GPU by time-slicing, MPS or MIG, or ask for a whole one)"
            ],
        ),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_workloads_that_the_api_server_refuses(kind: str, old: str, new: str, expected: list[str]) -> None:
    text = DEPLOYMENT.replace(old, new).replace("Deployment", kind)
    own = [one for one in expected if kind == "Deployment" or not one.startswith(("6:spec.r", "6:spec.m", "6:spec.st"))]
    assert refusals(text) == [f"x.yaml:{one}" for one in own]
