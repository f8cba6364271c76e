"""What Karpenter's custom resource definitions refuse."""

from __future__ import annotations

import pytest
from objects_builders import NODE_POOL, refusals

from tonnage.objects.api.fields import structs

WAITS = "e.g. 30s, 1h30m or Never"


def pool(*lines: str) -> list[str]:
    """Problems of a NodePool with these lines below its spec, from line 6 on."""
    text = NODE_POOL.replace("spec:\n", "spec:\n" + "".join(f"  {line}\n" for line in lines), 1)
    return [one.removeprefix("x.yaml:") for one in refusals(text)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["weight: 1"], []),
        (["weight: 100"], []),
        (["weight: 0"], ["6:spec.weight: 0: expected 1 to 100"]),
        (["weight: 101"], ["6:spec.weight: 101: expected 1 to 100"]),
        (["limits: {cpu: 1000, memory: 4000Gi, nvidia.com/gpu: 64, nodes: 3}"], []),
        (
            ["limits: {cpu: -1, nvidia.com/gpu: many}"],
            [
                "6:spec.limits.cpu: -1: expected a quantity of at least 0",
                '6:spec.limits.nvidia.com/gpu: "many": expected a quantity, e.g. 500m, 8 or 32Gi',
            ],
        ),
        (["replicas: 3", "limits: {nodes: 5}"], []),
        (["replicas: -1"], ["6:spec.replicas: -1: expected at least 0"]),
        (
            ["replicas: 3", "weight: 5", "limits: {cpu: 5}"],
            [
                "7:spec.weight: weight is set together with replicas (a static NodePool has no weight: remove it)",
                "8:spec.limits.cpu: a static NodePool can only limit nodes (use limits.nodes)",
            ],
        ),
        (["disruption: {consolidateAfter: Never, consolidationPolicy: WhenEmpty}"], []),
        (["disruption: {consolidateAfter: 1h30m, consolidationPolicy: Balanced}"], []),
        (
            ["disruption: {consolidationPolicy: WhenEmpty}"],
            ["6:spec.disruption.consolidateAfter: the field is missing (the API server requires it)"],
        ),
        (
            ["disruption: {consolidateAfter: 0s, consolidationPolicy: WhenUnderutilized}"],
            [
                '6:spec.disruption.consolidationPolicy: "WhenUnderutilized": expected one of WhenEmpty, '
                "WhenEmptyOrUnderutilized, Balanced (v1beta1's WhenUnderutilized is WhenEmptyOrUnderutilized in v1)"
            ],
        ),
        (["disruption: {consolidateAfter: 1d}"], [f'6:spec.disruption.consolidateAfter: "1d": expected {WAITS}']),
        (["disruption: {consolidateAfter: 1.5h}"], [f'6:spec.disruption.consolidateAfter: "1.5h": expected {WAITS}']),
        (["disruption: {consolidateAfter: never}"], [f'6:spec.disruption.consolidateAfter: "never": expected {WAITS}']),
    ],
)
def test_node_pools_that_the_api_server_refuses(lines: list[str], expected: list[str]) -> None:
    assert pool(*lines) == expected


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ('nodes: "5"', []),
        ("nodes: 100%, reasons: [Empty, Drifted, Underutilized]", []),
        ('nodes: "0", schedule: "0 9 * * 1-5", duration: 8h', []),
        ('nodes: 10%, schedule: "@daily", duration: 1h30m', []),
        ("nodes: 10%, schedule: '@hourly', duration: 5m0s", []),
        ("nodes: 101%", ['nodes: "101%": expected "10%" up to "100%", or a number as "5"']),
        ("nodes: 5.5%", ['nodes: "5.5%": expected "10%" up to "100%", or a number as "5"']),
        ('nodes: "-1"', ['nodes: "-1": expected "10%" up to "100%", or a number as "5"']),
        (
            "nodes: 10%, reasons: [Expired]",
            ['reasons[0]: "Expired": expected one of Underutilized, Empty, Drifted'],
        ),
        ('nodes: 10%, schedule: "@daily"', ["schedule: schedule without duration (set both or neither)"]),
        ("nodes: 10%, duration: 1h", ["duration: duration without schedule (set both or neither)"]),
        (
            'nodes: 10%, schedule: "@daily", duration: 30s',
            ['duration: "30s": expected hours and minutes, e.g. 8h or 1h30m'],
        ),
        *(
            (
                f'nodes: 10%, schedule: "{schedule}", duration: 1h',
                [
                    f'schedule: "{schedule}": expected the 5 fields of cron or one of @hourly, @daily, @weekly, '
                    '@monthly, @yearly (e.g. "0 9 * * 1-5"; times are UTC)'
                ],
            )
            for schedule in ("0 9 * *", "0 0 9 * * 1", "@noon", "TZ=UTC 9 * * 1", "daily")
        ),
    ],
)
def test_budgets_that_the_api_server_refuses(budget: str, expected: list[str]) -> None:
    found = pool("disruption:", "  consolidateAfter: 0s", f"  budgets: [{{{budget}}}]")
    assert found == [f"8:spec.disruption.budgets[0].{one}" for one in expected]


def requirements(*written: str) -> list[str]:
    text = NODE_POOL.replace(
        "        - key: karpenter.sh/capacity-type\n          operator: In\n          values: [spot]\n",
        "".join(f"        - {{{one}}}\n" for one in written),
    )
    return [one.removeprefix("x.yaml:").replace("spec.template.spec.requirements", "") for one in refusals(text)]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("key: kubernetes.io/arch, operator: In, values: [amd64, arm64], minValues: 2", []),
        ("key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ['0']", []),
        ("key: karpenter.k8s.aws/instance-cpu, operator: Lte, values: ['64']", []),
        ("key: my.company/team, operator: Exists", []),
        ("key: beta.kubernetes.io/arch, operator: NotIn, values: [arm64]", []),
        ("key: topology.kubernetes.io/zone, operator: In", ["values: In needs at least one value (list the values)"]),
        (
            "key: a, operator: Has",
            ['operator: "Has": expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte'],
        ),
        *(
            (
                f"key: a, operator: {operator}, values: {values}",
                [f'values: {values}: expected one whole number of at least 0, as a string (e.g. values: ["4"])'],
            )
            for operator, values in (("Gt", '["1", "2"]'), ("Lt", "[]"), ("Gte", '["1.5"]'), ("Lte", '["many"]'))
        ),
        (
            "key: a, operator: In, values: [b], minValues: 2",
            ["minValues: 2: expected at most the number of values, 1 (list more values)"],
        ),
        ("key: a, operator: Exists, minValues: 50", []),
        ("key: a, operator: Exists, minValues: 51", ["minValues: 51: expected 1 to 50"]),
        ("key: a, operator: Exists, minValues: 0", ["minValues: 0: expected 1 to 50"]),
        *(
            (
                f"key: {key}, operator: Exists",
                [
                    f'key: "{key}": expected a label that Karpenter does not keep for itself '
                    "(use a well-known label or a domain of your own)"
                ],
            )
            for key in (
                "karpenter.sh/nodepool",
                "karpenter.sh/x",
                "a.karpenter.sh/x",
                "kubernetes.io/hostname",
                "karpenter.k8s.aws/x",
            )
        ),
    ],
)
def test_requirements_that_the_api_server_refuses(requirement: str, expected: list[str]) -> None:
    assert requirements(requirement) == [f"9:[0].{one}" for one in expected]


def test_a_node_pool_has_at_most_100_requirements_and_50_budgets() -> None:
    assert requirements(*["key: a, operator: Exists"] * 100) == []
    assert requirements(*["key: a, operator: Exists"] * 101) == [
        "8:: 101 requirements: expected at most 100 (merge some)"
    ]
    budgets = ", ".join(['{nodes: "1"}'] * 51)
    assert pool(f"disruption: {{consolidateAfter: 0s, budgets: [{budgets}]}}") == [
        "6:spec.disruption.budgets: 51 budgets: expected at most 50 (merge some)"
    ]


def test_taints_node_class_and_times_of_the_template() -> None:
    text = NODE_POOL.replace(
        "group: karpenter.k8s.aws, kind: EC2NodeClass, name: c", "group: karpenter.k8s.aws/v1, kind: '', name: c"
    )
    text += """\
      taints:
        - {key: a, effect: NoSchedule}
        - {key: b, effect: Never}
      startupTaints:
        - {key: a, value: x, effect: NoSchedule}
      expireAfter: 30d
      terminationGracePeriod: Never
"""
    assert refusals(text) == [
        'x.yaml:12:spec.template.spec.nodeClassRef.kind: "": expected a name (the API server requires it)',
        'x.yaml:12:spec.template.spec.nodeClassRef.group: "karpenter.k8s.aws/v1": expected a group, e.g. karpenter.k8s.aws (the version is left out)',
        'x.yaml:15:spec.template.spec.taints[1].effect: "Never": expected one of NoSchedule, PreferNoSchedule, NoExecute',
        'x.yaml:17:spec.template.spec.startupTaints[0]: "a:NoSchedule": appears twice (rename or remove one)',
        'x.yaml:18:spec.template.spec.expireAfter: "30d": expected e.g. 720h, 30m or Never',
        'x.yaml:19:spec.template.spec.terminationGracePeriod: "Never": expected e.g. 48h or 30m',
    ]


def test_labels_of_the_template_are_the_users_own() -> None:
    text = NODE_POOL.replace("  template:\n", "  template:\n    metadata: {labels: {a: b, karpenter.sh/nodepool: x}}\n")
    assert refusals(text) == [
        'x.yaml:7:spec.template.metadata.labels.karpenter.sh/nodepool: "karpenter.sh/nodepool": expected a label that '
        "Karpenter does not keep for itself (use a well-known label or a domain of your own)"
    ]


NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: c}
spec:
  role: r
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("role: r", "instanceProfile: r", []),
        ("role: r", "role: ''", ['5:spec.role: "": expected a name (leave it out or name one)']),
        ("role: r", "{role: r, instanceProfile: p}", None),
        (
            "[{alias: al2023@latest}]",
            "[]",
            ["6:spec.amiSelectorTerms: 0 terms: expected 1 to 30 (name what to select)", "4:spec.amiFamily"],
        ),
        (
            "[{alias: al2023@latest}]",
            "[{id: ami-1}]",
            ["4:spec.amiFamily: the field is missing (it is needed without an alias)"],
        ),
        (
            "alias: al2023@latest",
            "alias: al2023",
            ['6:spec.amiSelectorTerms[0].alias: "al2023": expected family@version, e.g. al2023@latest'],
        ),
        (
            "[{alias: al2023@latest}]",
            "[{alias: al2023@latest}, {id: ami-1}]",
            [
                "6:spec.amiSelectorTerms[0].alias: an alias is combined with other terms (an alias must be the only term)"
            ],
        ),
        (
            "role: r",
            "role: r\n  blockDeviceMappings: [{ebs: {volumeSize: 0Gi, volumeType: gp4}}]\n  instanceStorePolicy: RAID1",
            [
                '6:spec.blockDeviceMappings[0].ebs.volumeType: "gp4": expected one of standard, io1, io2, gp2, sc1, st1, '
                "gp3 (did you mean gp3?)",
                '6:spec.blockDeviceMappings[0].ebs.volumeSize: "0Gi": expected 1Gi to 58Ti, e.g. 200Gi',
                '7:spec.instanceStorePolicy: "RAID1": expected one of RAID0 (did you mean RAID0?)',
            ],
        ),
    ],
)
def test_node_classes_that_the_api_server_refuses(old: str, new: str, expected: list[str] | None) -> None:
    if expected is None:
        new, expected = (
            "role: r\n  instanceProfile: p",
            ["5:spec.role: expected either role or instanceProfile (set exactly one of them)"],
        )
    found = [one.removeprefix("x.yaml:") for one in refusals(NODE_CLASS.replace(old, new))]
    assert len(found) == len(expected)
    assert all(any(one.startswith(start) for one in found) for start in expected)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("role: r", "role: r\n  amiFamily: AL2", '6:spec.amiFamily: "AL2": expected AL2023 or Custom'),
        ("{tags: {a: b}}", "{}", "the term selects nothing"),
        ("{tags: {a: b}}", "{tags: {a: ''}}", "a tag without a key or a value"),
        ("{tags: {a: b}}", "{id: subnet-1, tags: {a: b}}", "an id is combined with other fields"),
        ("role: r", "role: r\n  tags: {'eks:eks-cluster-name': x}", "expected a tag that Karpenter and EKS do not set"),
        (
            "role: r",
            "role: r\n  kubelet: {kubeReserved: {gpu: '1'}}",
            "expected one of cpu, memory, ephemeral-storage, pid",
        ),
        (
            "role: r",
            "role: r\n  kubelet: {evictionSoft: {memory.available: 5%}}",
            "evictionSoftGracePeriod does not have",
        ),
        ("role: r", "role: r\n  metadataOptions: {httpPutResponseHopLimit: 65}", "65: expected 1 to 64"),
        ("role: r", "role: r\n  placementGroupSelector: {}", "expected either name or id"),
        ("role: r", "role: r\n  connectionTracking: {udpTimeout: 29}", "29: expected 30 to 60"),
        (
            "role: r",
            "role: r\n  networkInterfaces: [{networkCardIndex: 0, deviceIndex: 1, interfaceType: interface}]",
            "no primary interface",
        ),
        ("role: r", "role: r\n  blockDeviceMappings: [{ebs: {}}]", "neither volumeSize nor snapshotID"),
        ("role: r", "role: r\n  blockDeviceMappings: [{ebs: {volumeSize: 100Mi}}]", "expected 1Gi to 58Ti"),
    ],
)
def test_more_that_the_api_server_refuses_of_node_classes(old: str, new: str, said: str) -> None:
    found = refusals(NODE_CLASS.replace(old, new, 1))
    assert [one for one in found if said in one], found


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("kubelet: {kubeReserved: {cpu: 1}}", '6:spec.kubelet.kubeReserved.cpu: 1: expected a string (quote it: "1")'),
        ("kubelet: {maxPods: many}", '6:spec.kubelet.maxPods: "many": expected an integer of 32 bits'),
        ("kubelet: {evictionSoft: [5%]}", '6:spec.kubelet.evictionSoft: ["5%"]: expected a mapping'),
        ("networkInterfaces: {}", "6:spec.networkInterfaces: {}: expected a list"),
        ("networkInterfaces: [eth0]", '6:spec.networkInterfaces[0]: "eth0": expected a mapping'),
        ("networkInterfaces: [null]", "6:spec.networkInterfaces[0]: null: expected an entry of the list"),
        ("connectionTracking: 5", "6:spec.connectionTracking: 5: expected a mapping"),
        (
            "metadataOptions: {httpTokens: [required]}",
            '6:spec.metadataOptions.httpTokens: ["required"]: expected a string',
        ),
        (
            "blockDeviceMappings: [{ebs: {volumeSize: 100}}]",
            '6:spec.blockDeviceMappings[0].ebs.volumeSize: 100: expected a string (quote it: "100")',
        ),
        (
            "capacityReservationSelectorTerms: [{id: 7, ownerID: 123456789012}]",
            '6:spec.capacityReservationSelectorTerms[0].id: 7: expected a string (quote it: "7")',
        ),
    ],
)
def test_values_of_other_types_are_named_before_any_rule_of_node_classes(written: str, expected: str) -> None:
    found = refusals(NODE_CLASS.replace("role: r", f"role: r\n  {written}"))
    assert found[0] == f"x.yaml:{expected}"
    assert all(": expected a" in one or "expected an entry" in one for one in found), "no rule is asked of such values"


@pytest.mark.parametrize(
    "value", ["null", "3", "2.5", "true", "text", "[]", "[x]", "[null]", "{}", "{a: b}", "[{a: [1]}]", "{a: {b: null}}"]
)
def test_any_value_of_any_field_of_a_node_class_is_answered(value: str) -> None:
    fields = structs()["EC2NodeClassSpec"]
    written = [(name, value) for name in fields]
    for name, known in fields.items():
        for inner in structs().get(known.of, {}):
            one = f"{{{inner}: {value}}}"
            written.append((name, f"[{one}]" if known.shape else one))
    for name, text in written:
        kept = [line for line in NODE_CLASS.splitlines() if not line.startswith(f"  {name}:")]
        found = refusals("\n".join([*kept, f"  {name}: {text}", ""]))  # raises nothing but InputError
        assert all(one.startswith("x.yaml:") for one in found)


OVERLAY = """\
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: o}
spec:
  requirements: [{key: karpenter.sh/nodepool, operator: In, values: [gpu]}]
  price: "1.25"
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('price: "1.25"', 'priceAdjustment: "-15%"', ""),
        ('price: "1.25"', 'price: "1"\n  priceAdjustment: "+1"', "7:spec.priceAdjustment: price is given too"),
        ('"1.25"', '"-1"', '6:spec.price: "-1": expected an amount'),
        ('price: "1.25"', 'priceAdjustment: "-101%"', '"-101%": expected e.g. "+0.5"'),
        ('price: "1.25"', "capacity: {cpu: 4}", "expected an extended resource"),
        ('price: "1.25"', "weight: 10001", "10001: expected 1 to 10000"),
        ("operator: In, values: [gpu]", "operator: NotIn", "NotIn needs at least one value"),
        ("karpenter.sh/nodepool", "karpenter.sh/custom", "a label that Karpenter does not keep for itself"),
    ],
)
def test_node_overlays_that_the_api_server_refuses(old: str, new: str, said: str) -> None:
    found = refusals(OVERLAY.replace(old, new))
    assert [one for one in found if said in one] if said else not found, found
