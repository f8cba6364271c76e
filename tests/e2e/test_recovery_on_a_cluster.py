"""What holds and what is released when something goes wrong with claims, on a real API server with its own resource claim
controller: with our scheduler as with kube-scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from e2e_builders import HOSTNAME, condition, node, pod_spec
from e2e_controllers import USERS, Process, controller, grant

from e2e.api import Api, Json
from e2e.control_plane import UNTOUCHED, ControlPlane
from e2e.processes import until

DEVICES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICES}/namespaces/default/resourceclaims"
TEMPLATES = f"{DEVICES}/namespaces/default/resourceclaimtemplates"
SLICES, PODS = f"{DEVICES}/resourceslices", "/api/v1/namespaces/default/pods"
DRIVER, CLASS, HOLD = "gpu.nvidia.com", "gpu", "example.com/hold"
AMOUNTS = {"cpu": "16", "memory": "64Gi", "pods": "110"}
CONTROLLERS = ("serviceaccount-controller", "resourceclaim-controller", "garbage-collector-controller")
LONG_S, STAYS_S = 40, 2


@dataclass(frozen=True)
class Side:
    """A scheduler with two nodes of its own, each with two GPUs. Names of nodes are of one length."""

    api: Api
    scheduler: str
    nodes: tuple[str, str]

    def prepare(self) -> None:
        for name in self.nodes:
            self.api.create("/api/v1/nodes", node(name, AMOUNTS, {"side": self.scheduler}))
            self.publish(name, 1, "gpu-0", "gpu-1")

    def publish(self, on: str, generation: int, *devices: str) -> None:
        """The driver of a node starts: these are its devices."""
        self.withdraw(on)
        pool = {"name": on, "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": on, "pool": pool, "devices": [{"name": one} for one in devices]}
        self.api.create(SLICES, {"metadata": {"name": f"{on}-gpus"}, "spec": spec})

    def withdraw(self, on: str) -> None:
        """Nothing is published of the node."""
        self.api.raw("DELETE", f"{SLICES}/{on}-gpus")

    def pod(self, name: str, on: str = "", *, claim: str = "", template: str = "one-gpu") -> str:
        """A pod with a claim by the template, or with one of its own name; its path."""
        named = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        selector = {"side": self.scheduler} | ({HOSTNAME: on} if on else {})
        spec = pod_spec(schedulerName=self.scheduler, nodeSelector=selector, resourceClaims=[{"name": "gpu", **named}])
        spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        full = f"{name}-{self.nodes[0]}"
        self.api.create(PODS, {"metadata": {"name": full}, "spec": spec})
        return f"{PODS}/{full}"

    def bound(self, path: str) -> Json:
        until(f"{path} is bound", lambda: self.api.get(path)["spec"].get("nodeName"), LONG_S, 0.05)
        return self.api.get(path)

    def waits(self, path: str) -> None:
        """It is refused for want of devices."""

        def said() -> str:
            return str(condition(self.api.get(path), "PodScheduled").get("message", ""))

        until(f"{path} gets no devices", lambda: "cannot allocate all claims" in said(), LONG_S, 0.05)
        assert not self.api.get(path)["spec"].get("nodeName")

    def stays(self, path: str) -> str:
        """It is not bound for a while; why, where the scheduler says it: kube-scheduler looks at no pod whose claim
        is not there, or is being deleted."""
        end, said = time.monotonic() + STAYS_S, ""
        while time.monotonic() < end or (self.scheduler == "tonnage" and not said and time.monotonic() < end + LONG_S):
            one = self.api.get(path)
            assert not one["spec"].get("nodeName")
            said = str(condition(one, "PodScheduled").get("message", ""))
            time.sleep(0.05)
        return said

    def devices(self, path: str) -> list[tuple[str, str]]:
        """Node and name of each device of the pod's claim."""
        pod = self.api.get(path)
        (written,) = pod["spec"]["resourceClaims"]
        made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())}
        claim = self.api.get(f"{CLAIMS}/{written.get('resourceClaimName') or made[written['name']]}")
        results = claim["status"]["allocation"]["devices"]["results"]
        return [(one["pool"], one["device"]) for one in results]

    def kill(self, path: str) -> None:
        """The pod is gone at once, as that of a lost node."""
        self.api.delete(path, {"gracePeriodSeconds": 0})
        until(f"{path} is gone", lambda: self.api.raw("GET", path)[0] == 404, LONG_S, 0.05)


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    found: ControlPlane = start_plane(controllers=CONTROLLERS, admission_off=UNTOUCHED[:1], users=USERS)
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    found.api().create(f"{DEVICES}/deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": selectors}})
    return found


@pytest.fixture(scope="module")
def sides(plane: ControlPlane) -> Iterator[tuple[Side, Side]]:
    both = (
        Side(plane.api(), "tonnage", ("our-a", "our-b")),
        Side(plane.api(), "default-scheduler", ("its-a", "its-b")),
    )
    grant(plane, "scheduler")
    process: Process = controller(plane, "scheduler", more=("--no-leader-elect",))
    process.start()
    yield both
    assert process.end() == 0, process.tail()
    assert process.complaints() == []


REQUEST = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]}}


@pytest.fixture(autouse=True)
def fresh(plane: ControlPlane, sides: tuple[Side, Side]) -> Iterator[None]:
    """Each test begins with nodes, slices and a template of its own, and without pods and claims."""
    api = plane.api()
    for side in sides:
        side.prepare()
    api.create(TEMPLATES, {"metadata": {"name": "one-gpu"}, "spec": {"spec": REQUEST}})
    yield
    for path in (PODS, CLAIMS):
        api.delete(path, {"gracePeriodSeconds": 0})
    for one in api.items(CLAIMS):
        if HOLD in one["metadata"].get("finalizers", ()):
            api.raw("DELETE", f"{CLAIMS}/{one['metadata']['name']}")
            left = [each for each in one["metadata"]["finalizers"] if each != HOLD]
            api.patch(f"{CLAIMS}/{one['metadata']['name']}", {"metadata": {"finalizers": left}})
    until("no claim is left", lambda: not api.items(CLAIMS), LONG_S, 0.05)
    for path in (TEMPLATES, SLICES, "/api/v1/nodes"):
        api.delete(path)


def test_a_driver_that_starts_again_gives_no_device_twice(sides: tuple[Side, Side]) -> None:
    for side in sides:
        on = side.nodes[0]
        first = side.pod("first", on)
        side.bound(first)
        held = side.devices(first)
        side.withdraw(on)
        second = side.pod("second", on)
        side.waits(second)  # nothing is published
        assert side.devices(first) == held
        side.publish(on, 2, "gpu-0", "gpu-1")
        side.bound(second)
        assert sorted((*held, *side.devices(second))) == [(on, "gpu-0"), (on, "gpu-1")]


def test_a_claim_keeps_a_dead_device_and_nobody_else_gets_it_until_it_is_there_again(sides: tuple[Side, Side]) -> None:
    for side in sides:
        on = side.nodes[0]
        first = side.pod("first", on)
        side.bound(first)
        ((_, dead),) = side.devices(first)
        alive = "gpu-1" if dead == "gpu-0" else "gpu-0"
        side.publish(on, 2, alive)
        second = side.pod("second", on)
        side.bound(second)
        assert side.devices(second) == [(on, alive)]
        side.kill(first)
        third = side.pod("third", on)
        side.waits(third)  # the dead one is free and not there
        side.publish(on, 3, "gpu-0", "gpu-1")
        side.bound(third)
        assert side.devices(third) == [(on, dead)]


def test_pods_of_a_lost_node_get_claims_and_devices_elsewhere(sides: tuple[Side, Side]) -> None:
    for side in sides:
        lost, other = side.nodes
        first = side.pod("first", lost)
        side.bound(first)
        side.withdraw(lost)
        side.api.delete(f"/api/v1/nodes/{lost}")
        side.kill(first)
        second = side.pod("second")
        assert side.bound(second)["spec"]["nodeName"] == other
        assert {at for at, _ in side.devices(second)} == {other}

        def claims(side: Side = side) -> set[str]:
            owners = [one["metadata"].get("ownerReferences") or [{"name": ""}] for one in side.api.items(CLAIMS)]
            return {names[0]["name"] for names in owners}

        until(
            "the claim of the lost pod is gone",
            lambda claims=claims: not any("first" in one for one in claims()),
            LONG_S,
        )


def test_a_claim_that_is_being_deleted_takes_no_new_pod_and_gives_its_device_back_with_its_last(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        on = side.nodes[0]
        name = f"held-{on}"
        side.api.create(CLAIMS, {"metadata": {"name": name, "finalizers": [HOLD]}, "spec": REQUEST})
        first = side.pod("first", on, claim=name)
        side.bound(first)
        held = side.devices(first)
        side.api.delete(f"{CLAIMS}/{name}")
        late = side.pod("late", on, claim=name)
        said = side.stays(late)
        assert "is being deleted" in said or side.scheduler != "tonnage"
        second, third = side.pod("second", on), side.pod("third", on)
        ((more, less),) = [(a, b) for a, b in ((second, third), (third, second)) if _either(side, a, b) == a][:1]
        side.waits(less)  # the claim has its device while its pod is there
        side.api.delete(late)
        side.kill(first)
        side.bound(less)
        assert side.devices(less) == held
        assert side.devices(more) != held
        assert side.api.get(f"{CLAIMS}/{name}")["metadata"]["finalizers"] == [HOLD], "it is still there"
        side.api.patch(f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}})


def _either(side: Side, one: str, other: str) -> str:
    """Which of two pods is bound first."""
    found: list[str] = []

    def bound() -> bool:
        found[:] = [path for path in (one, other) if side.api.get(path)["spec"].get("nodeName")]
        return bool(found)

    until(f"{one} or {other} is bound", bound, LONG_S, 0.05)
    return found[0]


def test_claims_outlive_their_template_and_pods_to_come_wait_for_it(sides: tuple[Side, Side]) -> None:
    first = {side: side.pod("first", side.nodes[0]) for side in sides}
    for side in sides:
        side.bound(first[side])
    sides[0].api.delete(f"{TEMPLATES}/one-gpu")
    second = {side: side.pod("second", side.nodes[0]) for side in sides}
    for side in sides:
        side.stays(second[side])
        assert len(side.devices(first[side])) == 1
    sides[0].api.create(TEMPLATES, {"metadata": {"name": "one-gpu"}, "spec": {"spec": REQUEST}})
    for side in sides:
        side.bound(second[side])
        assert side.devices(second[side]) != side.devices(first[side])
