"""``nvidia.com/gpumem`` and the like: a number on a node that lists them itself, a share of a GPU on every other."""

from __future__ import annotations

from pathlib import Path

import pytest

from live.reading.watched import GPU, Json, Watched, node, pod, why
from tonnage.fleet import invariants

GPUMEM, CORES, PERCENT = "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"
MEMORY = {"nvidia.com/gpu.memory": "40000"}
HAMI = "hami.io/node-nvidia-register"


def counts(name: str = "n1", gpus: int = 2, gpumem: int = 16000, **labels: str) -> Json:
    return node(name, labels, offers={GPU: str(gpus), GPUMEM: str(gpumem)})


def annotated(written: Json, name: str) -> Json:
    meta = {**written["metadata"], "annotations": {name: "GPU-1,10,40000,100,NVIDIA-A100,0,true:"}}
    return {**written, "metadata": meta}


def asks(name: str, gpus: int = 1, **amounts: int) -> Json:
    parts = {f"nvidia.com/{key.replace('_', '-')}": str(n) for key, n in amounts.items()}
    return pod(name, requests=({GPU: str(gpus)} if gpus else {}) | parts)


def bind(seen: Watched, name: str, on: str = "n1") -> tuple[int, ...]:
    fleet = seen.state.fleet
    held = fleet.bind(fleet.pod_by_key["default", name], fleet.node_by_name[on])
    assert invariants.violations(fleet) == []
    return held


def test_a_node_that_lists_gpu_memory_counts_it_and_gives_whole_gpus() -> None:
    seen = Watched(counts(gpus=3))
    for name in ("a", "b"):
        seen.see(asks(name, gpumem=8000))
        assert seen.feasible(name) == {"n1"}
        bind(seen, name)
    seen.see(asks("c", gpumem=1))
    assert seen.answer("c") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpumem"
    seen.see(pod("whole", requests={GPU: "2"}))
    assert seen.answer("whole") == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    seen.see(pod("last", requests={GPU: "1"}))
    assert bind(seen, "last") == (2,)
    fleet = seen.state.fleet
    fleet.unbind(fleet.pod_by_key["default", "a"])
    assert invariants.violations(fleet) == []
    assert seen.feasible("c") == {"n1"}


def test_why_says_of_it_what_the_scheduler_does(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "would be bound to n1" in why(capfd, tmp_path, [counts(), asks("p", gpumem=8000)], "p")
    said = why(capfd, tmp_path, [counts(), asks("p", gpumem=20000)], "p")
    assert "Insufficient nvidia.com/gpumem" in said
    assert "16000" in said


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        (asks("p", gpumem=8000, gpucores=10), "1 Insufficient nvidia.com/gpucores"),
        (asks("p", gpumem_percentage=50), "1 Insufficient nvidia.com/gpumem-percentage"),
        (asks("p", 3, gpumem=8000), "1 Insufficient nvidia.com/gpu"),
        (asks("p", 3, gpumem=20000), "1 Insufficient nvidia.com/gpu, 1 Insufficient nvidia.com/gpumem"),
    ],
)
def test_what_such_a_node_does_not_have_is_insufficient_there(wanted: Json, answer: str) -> None:
    seen = Watched(counts())
    seen.see(wanted)
    assert seen.answer("p") == f"0/1 nodes are available: {answer}"


def test_gpu_memory_without_a_gpu_takes_none_where_it_is_a_number() -> None:
    seen = Watched(counts(gpus=1), asks("only-memory", 0, gpumem=16000), asks("whole"))
    assert bind(seen, "only-memory") == ()
    assert bind(seen, "whole") == (0,)


def test_more_than_a_gpu_could_have_is_a_number_as_any_other() -> None:
    node_ = node("n1", MEMORY, offers={GPU: "1", GPUMEM: "90000", CORES: "400"})
    seen = Watched(node_, asks("p", gpumem=90000, gpucores=400))
    assert seen.feasible("p") == {"n1"}


@pytest.mark.parametrize(
    "one",
    [
        node("n1", MEMORY, offers={GPU: "2"}),
        counts(gpu="on", **MEMORY),
        annotated(counts(**MEMORY), HAMI),
        annotated(counts(**MEMORY), "4pd.io/node-nvidia-register"),
    ],
    ids=["not listed", "label", "annotation", "older annotation"],
)
def test_a_node_of_a_plugin_that_splits_gpus_gives_shares(one: Json) -> None:
    seen = Watched(one)
    for name in ("a", "b"):
        seen.see(asks(name, gpumem=20000))
        assert bind(seen, name) == (0,)
    seen.see(pod("whole", requests={GPU: "1"}))
    assert bind(seen, "whole") == (1,)


def test_each_node_of_a_cluster_counts_in_its_own_way() -> None:
    seen = Watched(counts("number", gpus=1), node("shares", MEMORY, offers={GPU: "1"}), counts("none", 1, 4000))
    seen.see(asks("p", gpumem=8000))
    assert seen.feasible("p") == {"number", "shares"}
    seen.see(asks("q", gpumem=39000))
    assert seen.feasible("q") == {"shares"}
    assert bind(seen, "p", "number") == (0,)
    assert bind(seen, "q", "shares") == (0,)


def test_a_node_on_which_such_a_plugin_appears_is_read_anew() -> None:
    seen = Watched(counts(gpus=1, **MEMORY), asks("a", gpumem=16000), asks("b", gpumem=16000))
    bind(seen, "a")
    assert seen.feasible("b") == set()
    seen.see(annotated(counts(gpus=1, **MEMORY), HAMI))
    assert invariants.violations(seen.state.fleet) == []
    assert seen.feasible("b") == {"n1"}
    bind(seen, "b")
    seen.gone(asks("a", gpumem=16000))
    assert seen.state.fleet.cards.mib[0, 0] == 24000
