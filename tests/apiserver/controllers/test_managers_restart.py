"""The managers hold nothing that the API does not: they may stop anywhere, and the API may fail anywhere."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from managed_cluster import Cluster, deployment, rolling

from deep_seeds import part
from tonnage.kube.resources import DAEMON_SETS, DEPLOYMENTS, PODS, REPLICA_SETS


def sequence(cluster: Cluster) -> None:
    """What a user does."""
    cluster.node("node-a")
    cluster.node("node-b")
    cluster.deploy(replicas=4, strategy=rolling(1, 1))
    cluster.daemon()
    cluster.budget(minAvailable="50%")


def finish(cluster: Cluster) -> None:
    for _ in range(20):
        cluster.settle()
        cluster.wait(40)


def end_state(cluster: Cluster) -> dict[str, object]:
    return {
        "sizes": cluster.sizes(),
        "pods": Counter(pod["spec"]["containers"][0]["image"] for pod in cluster.pods(app="web")),
        "agents": len(cluster.pods(app="agent")),
        "available": cluster.get(DEPLOYMENTS, "web")["status"]["availableReplicas"],
        "revision": cluster.get(DEPLOYMENTS, "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "daemons": cluster.get(DAEMON_SETS, "agent")["status"]["numberReady"],
    }


class Stop(Exception):
    pass


def stop_after(cluster: Cluster, writes: int) -> None:
    """The process ends right after this many writes: the API did the last one, nobody learned of it."""
    real, left = cluster.api.request, [writes]

    def request(method: str, path: str, **rest: object) -> object:
        reply = real(method, path, **rest)  # type: ignore[arg-type]
        if method != "GET":
            left[0] -= 1
            if left[0] == 0:
                raise Stop
        return reply

    cluster.api.request = request  # type: ignore[assignment,method-assign]
    try:
        cluster.step()
    except Stop:
        pass
    finally:
        cluster.api.request = real  # type: ignore[method-assign]


@pytest.mark.parametrize("writes", range(1, 40))
def test_stopped_after_any_write_they_go_on_and_make_nothing_twice(writes: int) -> None:
    cluster = Cluster()
    sequence(cluster)
    stop_after(cluster, writes)
    cluster.restart()
    created = [entry for entry in cluster.api.log if entry == ("POST", "/api/v1/namespaces/default/pods")]
    assert len(created) <= 6
    cluster.step()
    assert len(cluster.pods()) == 6
    created = [entry for entry in cluster.api.log if entry == ("POST", "/api/v1/namespaces/default/pods")]
    assert len(created) == 6
    assert len(cluster.all(REPLICA_SETS)) == 1


@pytest.mark.parametrize("writes", part(range(1, 26)))
def test_stopped_in_the_middle_of_a_rollout_they_finish_it(writes: int) -> None:
    cluster = Cluster()
    sequence(cluster)
    cluster.settle()
    cluster.set_image("web", "v2")
    cluster.set_image("agent", "v2", DAEMON_SETS)
    stop_after(cluster, writes)
    cluster.restart()
    finish(cluster)
    assert end_state(cluster) == {
        "sizes": {"v1": 0, "v2": 4},
        "pods": {"v2": 4},
        "agents": 2,
        "available": 4,
        "revision": "2",
        "daemons": 2,
    }


@pytest.mark.parametrize("seed", part(range(8)))
def test_with_an_api_that_fails_at_random_the_end_is_the_same(seed: int) -> None:
    cluster = Cluster()
    rng = random.Random(seed)
    cluster.node("node-a")
    cluster.node("node-b")
    managing = [False]
    step = cluster.managers.step

    def guarded() -> int:
        managing[0] = True
        try:
            return step()
        finally:
            managing[0] = False

    cluster.managers.step = guarded  # type: ignore[method-assign]
    cluster.api.fail = lambda method, path: (
        rng.choice([409, 500, 503]) if managing[0] and method != "GET" and rng.random() < 0.15 else 0
    )
    cluster.deploy(replicas=4, strategy=rolling(1, 1))
    cluster.daemon()
    finish(cluster)
    cluster.set_image("web", "v2")
    cluster.set_image("agent", "v2", DAEMON_SETS)
    finish(cluster)
    assert end_state(cluster) == {
        "sizes": {"v1": 0, "v2": 4},
        "pods": {"v2": 4},
        "agents": 2,
        "available": 4,
        "revision": "2",
        "daemons": 2,
    }


def test_the_same_input_gives_the_same_writes_in_the_same_order() -> None:
    def log() -> list[tuple[str, str]]:
        cluster = Cluster(seed=7)
        sequence(cluster)
        cluster.settle()
        cluster.set_image("web", "v2")
        cluster.settle()
        cluster.delete(DEPLOYMENTS, "web")
        cluster.settle()
        return cluster.api.log

    assert log() == log()


def test_nothing_is_written_when_nothing_changed() -> None:
    cluster = Cluster()
    sequence(cluster)
    cluster.settle()
    assert cluster.step() == 0
    cluster.restart()
    assert cluster.step() == 0


def test_changes_by_others_in_the_same_moment_are_not_lost() -> None:
    """A Deployment that is scaled while the managers act on what they read before."""
    cluster = Cluster()
    cluster.client.create(DEPLOYMENTS, deployment("web", 3), "default")
    real, done = cluster.api.request, [False]

    def request(method: str, path: str, **rest: object) -> object:
        if method == "PUT" and path.endswith("deployments/web/status") and not done[0]:
            done[0] = True
            cluster.scale("web", 5)
        return real(method, path, **rest)  # type: ignore[arg-type]

    cluster.api.request = request  # type: ignore[assignment,method-assign]
    cluster.settle()
    assert done[0]
    assert len(cluster.pods()) == 5
    deployed = cluster.get(DEPLOYMENTS, "web")
    assert deployed["status"]["observedGeneration"] == deployed["metadata"]["generation"]


def test_the_cost_of_one_pods_news_does_not_grow_with_their_number() -> None:
    """Counted, not timed: writes are about one a pod, and one pod's news costs a look at few objects."""
    cluster = Cluster()
    cluster.deploy(replicas=600)
    assert cluster.step() < 700
    assert len(cluster.names()) == 600
    pod = cluster.pods()[432]
    cluster.make_ready(pod)
    cluster.step()
    looked: list[str] = []
    cache = cluster.managers._cache
    real = cache.find

    def find(uid: str) -> object:
        looked.append(uid)
        return real(uid)

    cache.find = find  # type: ignore[assignment,method-assign]
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    cluster.client.patch(PODS, pod["metadata"]["name"], not_ready, "default", subresource="status")
    cluster.step()
    assert cluster.get(DEPLOYMENTS, "web")["status"].get("readyReplicas", 0) == 0
    assert 0 < len(looked) < 30
