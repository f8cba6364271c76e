"""Pods whose devices a DRA driver serves, by an extended resource or by a claim, on a real API server: our scheduler
leaves behind what kube-scheduler leaves for equal pods on an equal node, and claims go with their pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from e2e_builders import GPU, HOSTNAME, condition, node, pod_spec
from e2e_controllers import USERS, Process, controller, grant

from e2e.api import Api, ApiError, Json
from e2e.control_plane import SCHEDULER, UNTOUCHED, ControlPlane
from e2e.processes import until

DEVICES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICES}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
DRIVER, CLASS = "gpu.nvidia.com", "gpu"
OWN_NAME = f"deviceclass.resource.kubernetes.io/{CLASS}"
"""Stands for the class, whatever resource it names."""
AMOUNTS = {"cpu": "16", "memory": "64Gi", "pods": "110"}
GPUS = 4
CONTROLLERS = (
    "serviceaccount-controller",
    "resourceclaim-controller",
    "garbage-collector-controller",
    "resourcequota-controller",
)
"""Those that have to do with claims: no kubelet stands behind the nodes, so none that looks at nodes."""
TEMPLATE, TEMPLATES = "two-gpus", f"{DEVICES}/namespaces/default/resourceclaimtemplates"
DRAWN = 5
"""Letters at the end of a generated name."""


@dataclass(frozen=True)
class Side:
    """One scheduler with nodes of its own: one whose GPUs claims alone serve, one whose device plugin offers some."""

    api: Api
    scheduler: str
    node: str
    plugin: str

    def prepare(self) -> None:
        for name, offered in ((self.node, {}), (self.plugin, {GPU: "2"})):
            self.api.create("/api/v1/nodes", node(name, AMOUNTS | offered))
            spec = {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            }
            spec["devices"] = [{"name": f"gpu-{number}"} for number in range(GPUS)]
            self.api.create(f"{DEVICES}/resourceslices", {"metadata": {"name": f"{name}-gpus"}, "spec": spec})

    def pod(self, name: str, on: str, *limits: Json, inits: tuple[Json, ...] = (), **more: Any) -> str:
        """A pod whose containers have these limits; its path."""
        made = pod_spec(schedulerName=self.scheduler, nodeSelector={HOSTNAME: on}, **more)
        (main,) = made["containers"]
        made["containers"] = [main | {"name": f"c{at}", "resources": {"limits": one}} for at, one in enumerate(limits)]
        made["initContainers"] = [
            main | {"name": f"i{at}", "resources": {"limits": one}} for at, one in enumerate(inits)
        ]
        full = f"{name}-{self.node}"
        self.api.create(PODS, {"metadata": {"name": full}, "spec": made})
        return f"{PODS}/{full}"

    def bound(self, path: str) -> Json:
        until(f"{path} is bound", lambda: self.api.get(path)["spec"].get("nodeName"), 20, 0.02)
        return self.api.get(path)

    def refusal(self, path: str) -> str:
        """Why it waits, without what preemption says."""

        def said() -> Json:
            return condition(self.api.get(path), "PodScheduled")

        until(f"{path} is refused", lambda: said().get("reason") == "Unschedulable", 20, 0.02)
        return str(said()["message"]).partition(" preemption:")[0]

    def claims_of(self, pod: Json) -> list[Json]:
        uid = pod["metadata"]["uid"]
        return [
            one
            for one in self.api.items(CLAIMS)
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ()))
        ]

    def left(self, path: str) -> Json:
        """What the scheduler left for a bound pod, without what tells pods and nodes of the two sides apart."""
        pod = self.bound(path)
        meta, (claim,) = pod["metadata"], self.claims_of(pod)
        its, status = claim["metadata"], claim["status"]
        said = pod["status"].get("extendedResourceClaimStatus") or pod["status"]["resourceClaimStatuses"][0]
        assert said["resourceClaimName"] == its["name"]
        (owner,), (consumer,) = its["ownerReferences"], status["reservedFor"]
        assert (owner.pop("uid"), owner.pop("name")) == (meta["uid"], meta["name"])
        assert (consumer.pop("uid"), consumer.pop("name")) == (meta["uid"], meta["name"])
        (term,) = status["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        (field,) = term["matchFields"]
        assert field.pop("values") == [self.node]
        results = status["allocation"]["devices"]["results"]
        assert {one.pop("pool") for one in results} == {self.node}
        devices = {one.pop("device") for one in results}
        assert len(devices) == len(results), "no device twice"
        return {
            "name": its["name"][:-DRAWN].replace(self.node, "NODE", 1),
            "drawn": len(its["name"]),
            "annotations": its.get("annotations"),
            "labels": its.get("labels"),
            "finalizers": its.get("finalizers"),
            "owner": owner,
            "consumer": consumer,
            "spec": claim["spec"],
            "term": term,
            "results": results,
            "told": [sorted(one) for one in (claim, status, status["allocation"], status["allocation"]["devices"])],
            "mappings": said.get("requestMappings"),
        }


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    found: ControlPlane = start_plane(controllers=CONTROLLERS, admission_off=UNTOUCHED[:1], users=USERS)
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    spec = {"selectors": selectors, "extendedResourceName": GPU}
    found.api().create(f"{DEVICES}/deviceclasses", {"metadata": {"name": CLASS}, "spec": spec})
    requests = [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 2}}]
    inner = {"spec": {"devices": {"requests": requests}}}
    found.api().create(TEMPLATES, {"metadata": {"name": TEMPLATE}, "spec": inner})
    return found


@pytest.fixture(scope="module")
def sides(plane: ControlPlane) -> Iterator[tuple[Side, Side]]:
    """Ours, as a process with the rights of the chart, and theirs; names of nodes are of one length."""
    both = (Side(plane.api(), "tonnage", "our", "us"), Side(plane.api(), "default-scheduler", "its", "it"))
    for side in both:
        side.prepare()
    grant(plane, "scheduler")
    process: Process = controller(plane, "scheduler", more=("--no-leader-elect",))
    process.start()
    yield both
    assert process.end() == 0, process.tail()
    assert process.complaints() == []
    assert plane.programs[SCHEDULER].process is not None


@pytest.fixture(autouse=True)
def alone(plane: ControlPlane) -> Iterator[None]:
    """Each test begins without pods, and ends when the controllers have taken back all claims."""
    yield
    api = plane.api()
    api.delete(PODS)
    until("no claim is left", lambda: not api.items(CLAIMS), 20, 0.05)


KINDS: dict[str, tuple[tuple[Json, ...], tuple[Json, ...]]] = {
    "one container": (({GPU: "2"},), ()),
    "by the name of its class": (({OWN_NAME: "1", "cpu": "1"},), ()),
    "two resources and two containers": (({GPU: "1", "memory": "1Gi"}, {GPU: "1", OWN_NAME: "1"}), ()),
    "init containers that need more": (({GPU: "1"}, {GPU: "1"}), ({GPU: "3"}, {"cpu": "1"}, {GPU: "2"})),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_claim_and_the_pods_status_are_those_that_kube_scheduler_leaves(
    sides: tuple[Side, Side], kind: str
) -> None:
    limits, inits = KINDS[kind]
    ours, theirs = (side.left(side.pod("pod", side.node, *limits, inits=inits)) for side in sides)
    assert ours == theirs


def test_a_claim_that_a_pod_names_is_left_as_kube_scheduler_leaves_it(sides: tuple[Side, Side]) -> None:
    named = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    ours, theirs = (side.left(side.pod("named", side.node, {"cpu": "1"}, resourceClaims=named)) for side in sides)
    assert ours == theirs
    assert len(ours["results"]) == 2


def test_where_a_device_plugin_offers_the_resource_no_claim_is_made(sides: tuple[Side, Side]) -> None:
    for side in sides:
        pod = side.bound(side.pod("plugged", side.plugin, {GPU: "2"}))
        assert side.claims_of(pod) == []
        assert "extendedResourceClaimStatus" not in pod["status"]


def test_a_pod_that_waits_for_devices_gets_them_when_the_claim_of_another_is_gone(sides: tuple[Side, Side]) -> None:
    said = []
    for side in sides:
        first = side.pod("first", side.node, {GPU: str(GPUS - 1)})
        before = side.left(first)
        second = side.pod("second", side.node, {GPU: "2"})
        said.append(side.refusal(second))
        assert side.claims_of(side.api.get(second)) == [], "nothing is made for a pod that waits"
        gone = side.claims_of(side.api.get(first))
        side.api.delete(first)
        assert len(side.left(second)["results"]) == 2 < len(before["results"])
        names = {one["metadata"]["name"] for one in gone}
        until(
            "the claim of the first is gone",
            lambda side=side, names=names: names.isdisjoint(one["metadata"]["name"] for one in side.api.items(CLAIMS)),
            20,
            0.05,
        )
    assert "1 cannot allocate all claims" in said[0] and "1 cannot allocate all claims" in said[1], said


def test_a_claim_that_was_made_by_either_scheduler_counts_for_the_other(sides: tuple[Side, Side]) -> None:
    ours, theirs = sides
    for first, second in ((ours, theirs), (theirs, ours)):
        holder = first.pod("holder", first.node, {GPU: str(GPUS)})
        first.left(holder)
        other = second.pod("other", first.node, {GPU: "1"})
        assert "1 cannot allocate all claims" in second.refusal(other)
        first.api.delete(holder)
        pod = second.bound(other)
        assert pod["spec"]["nodeName"] == first.node
        assert len(second.claims_of(pod)) == 1


def test_a_quota_counts_and_refuses_claims_as_the_embedded_api_does(plane: ControlPlane) -> None:
    """The same numbers and words as in tests/apiserver/controllers/test_quotas_of_claims.py."""
    api, namespace = plane.api(), plane.namespace("counted")
    per_class, served = f"{CLASS}.deviceclass.resource.k8s.io/devices", f"requests.{GPU}"
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {per_class: "35", served: "100", f"requests.{OWN_NAME}": "100", "count/resourceclaims.resource.k8s.io": "9"}
    api.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})

    def used() -> Json:
        found: Json = api.get(f"{quotas}/q")["status"].get("used") or {}
        return found

    def claim(name: str, *requests: Json) -> None:
        spec = {"devices": {"requests": list(requests)}}
        at = f"{DEVICES}/namespaces/{namespace}/resourceclaims"
        api.create(at, {"metadata": {"name": name}, "spec": spec})

    until("the quota is in force", lambda: set(used()) == set(hard), 30)
    ways = [{"name": f"w{count}", "deviceClassName": CLASS, "count": count} for count in (1, 2)]
    claim("all", {"name": "r", "exactly": {"deviceClassName": CLASS, "allocationMode": "All"}})
    claim("either", {"name": "r", "firstAvailable": ways})
    wanted = {per_class: "34", served: "34", f"requests.{OWN_NAME}": "34"} | {
        "count/resourceclaims.resource.k8s.io": "2"
    }
    until(f"it counts {wanted}", lambda: used() == wanted, 20)
    with pytest.raises(ApiError) as caught:
        claim("second", {"name": "r", "exactly": {"deviceClassName": CLASS, "count": 2}})
    said = f"exceeded quota: q, requested: {per_class}=2, used: {per_class}=34, limited: {per_class}=35"
    assert f'resourceclaims.resource.k8s.io "second" is forbidden: {said}' in str(caught.value)
    api.delete(f"{DEVICES}/namespaces/{namespace}/resourceclaims")
