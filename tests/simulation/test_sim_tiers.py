"""KV cache tiers below the GPUs of a Service's engines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_builders import SETUP

import yaml_text
from tonnage.errors import InputError
from tonnage.facts import gpus, models
from tonnage.inference.config import parse_vllm_args, replica
from tonnage.inference.engine import Engine
from tonnage.inference.timing import LinearTiming
from tonnage.machines.objects import ModelServer
from tonnage.machines.serving.lower_tiers import LowerTiers, TierSize, tier_problems, tier_sizes
from tonnage.simulation.connect import _block_size
from tonnage.simulation.result import Result, Routing
from tonnage.simulation.run import RunOptions, run
from tonnage.simulation.scenario import load
from tonnage.units import NS_PER_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv-routing"


def _run(
    folder: Path,
    traffic: dict[str, object] | None = None,
    policy: dict[str, object] | None = None,
    *,
    args: tuple[str, ...] = ("--gpu-memory-utilization=0.46",),
) -> Result:
    """Four minutes of the example with less room on the GPUs, under one policy."""
    folder.mkdir(exist_ok=True)
    document = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    written = document["traffic"][0]
    written |= {"profile": str(EXAMPLE / written["profile"]), "rate": 0.6, "balancing": "least-requests"}
    written |= traffic or {}
    objects = yaml_text.load_all((EXAMPLE / "manifests" / "chat.yaml").read_text(encoding="utf-8"))
    objects[0]["spec"]["template"]["spec"]["containers"][0]["args"] += args
    (folder / "manifests.yaml").write_text(yaml_text.dump_all(objects), encoding="utf-8")
    document |= {
        "duration": "4m",
        "traffic": [{name: value for name, value in written.items() if value is not None}],
        "policies": {"one": {"manifests": "manifests.yaml"} | (policy or {})},
        "default": "one",
    }
    (folder / "scenario.yaml").write_text(yaml_text.dump(document, sort_keys=False), encoding="utf-8")
    return run(load(folder), "one", RunOptions(check=True, seed=1))


def _routing(result: Result) -> Routing:
    found = result.services[0].routing
    assert found is not msgspec.UNSET and isinstance(found, Routing)
    return found


def _reuse(result: Result) -> float:
    reuse = _routing(result).reuse
    assert reuse is not None
    return reuse


def test_tiers_keep_what_the_gpu_has_no_room_for(tmp_path: Path) -> None:
    alone = _run(tmp_path / "0")
    host = _run(tmp_path / "1", {"tiers": {"host": "64Gi"}})
    shared = _run(tmp_path / "2", {"tiers": {"host": "64Gi", "remote": "inf"}})
    assert _reuse(alone) + 0.1 < _reuse(host) and _reuse(host) + 0.02 < _reuse(shared)
    assert _routing(alone).tier_tokens is None and _routing(host).tier_tokens
    times = [result.services[0].ttft_ms.mean or 0.0 for result in (alone, host, shared)]
    assert times[0] > times[1] > times[2], "copying is quicker than computing again"
    assert alone.check.violations == host.check.violations == shared.check.violations == []


def test_the_tiers_of_a_policy_replace_those_of_the_traffic(tmp_path: Path) -> None:
    host: dict[str, object] = {"tiers": {"host": "64Gi"}}
    assert _run(tmp_path / "1", policy=host).services == _run(tmp_path / "2", {"tiers": {"disk": "1Gi"}}, host).services
    none = _run(tmp_path / "3", host, {"tiers": {}})
    assert none.services == _run(tmp_path / "4").services, "and none are none"


def test_an_engine_that_keeps_no_prefixes_has_nothing_to_put_into_tiers(tmp_path: Path) -> None:
    result = _run(tmp_path, {"tiers": {"host": "64Gi"}}, args=("--no-enable-prefix-caching",))
    assert (_routing(result).reuse, _routing(result).tier_tokens) == (0.0, 0)


def test_a_tier_that_all_share_gives_one_engine_what_another_computed() -> None:
    made = LowerTiers(tier_sizes({"remote": "inf"}), 131_072)
    timing = LinearTiming(base_ps=10**10, token_ps=10**9)  # 1 ms per token: computing takes longer than copying
    found = []
    for number in range(3):  # the store takes in what was computed twice
        now_ns = number * 10 * NS_PER_S
        engine = Engine(
            SETUP.config,
            timing,
            now_ns,
            prefix_caching=True,
            tiers=made.of_engine(SETUP.config, timing, "l40s", 1),
        )
        engine.submit(number, now_ns, 1000, 1, path=((0, 62),))
        engine.advance(now_ns + 9 * NS_PER_S)
        found += [one.cached_tokens for one in engine.take_finished()]
    assert found == [0, 0, 62 * 16]
    assert made.loaded_tokens == 62 * 16


def test_a_host_is_read_over_all_the_links_of_an_engine() -> None:
    made = LowerTiers((TierSize("host", times=2.0),), 131_072)
    slow, fast = (
        made.of_engine(SETUP.config, SETUP.timing, gpu, count).tiers[0].spec
        for gpu, count in (("l40s", 1), ("h100", 4))
    )
    assert slow.blocks == 2 * SETUP.config.kv_blocks
    assert fast.read_bytes_per_s == 8 * slow.read_bytes_per_s, "PCIe 5.0 instead of 4.0, and four of them"


@given(st.integers(1, 10**6), st.sampled_from(["Ki", "MiB", "gi", "Ti", "G", "TB"]))
def test_a_size_in_bytes_holds_as_many_whole_blocks_as_fit(number: int, unit: str) -> None:
    factor = {"k": 1, "m": 2, "g": 3, "t": 4}[unit[0].lower()]
    one = (1024 if "i" in unit.lower() else 1000) ** factor
    (size,) = tier_sizes({"host": f"{number}{unit}"})
    assert size.blocks(10, 2_097_152) == number * one // 2_097_152


def test_tiers_stand_from_the_fastest_to_the_slowest_however_they_are_written() -> None:
    sizes = tier_sizes({"remote": "inf", "host": "1.5x"})
    assert [size.name for size in sizes] == ["host", "remote"]
    assert [size.blocks(100, 1) for size in sizes] == [150, None]


@pytest.mark.parametrize("text", ["", "64", "0Gi", "-1Gi", "many", "4 x", "Gi", "1e3Gi", "nan"])
def test_what_is_no_size_is_told(text: str) -> None:
    ((name, message),) = tier_problems({"disk": text})
    assert name == "disk" and "expected a size above 0" in message


@pytest.mark.parametrize(
    ("traffic", "policy", "field", "message"),
    [
        ({"tiers": {"hots": "1Gi"}}, {}, "traffic[0].tiers.hots", "expected host, disk, remote"),
        ({"tiers": {"host": "64"}}, {}, "traffic[0].tiers.host", "expected a size"),
        ({}, {"tiers": {"host": "64"}}, "policies.one.tiers.host", "expected a size"),
        ({"tiers": {"host": "64Gi"}, "prefixes": None}, {}, "traffic[0].tiers", "what prompts have in common"),
        ({"prefixes": None}, {"tiers": {"host": "64Gi"}}, "policies.one.tiers", "what prompts have in common"),
    ],
)
def test_mistakes_in_tiers_are_told_with_their_place(
    tmp_path: Path, traffic: dict[str, object], policy: dict[str, object], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        _run(tmp_path, traffic, policy)
    assert field in str(caught.value) and message in str(caught.value) and "scenario.yaml:" in str(caught.value)


@pytest.mark.parametrize(("flag", "size"), [("", 32), ("--disable-hybrid-kv-cache-manager", 16)])
def test_prompts_are_counted_in_the_blocks_by_which_the_engine_finds_them(flag: str, size: int) -> None:
    """A window block of gemma-4-31b takes as many bytes as twice as many tokens in its full layers."""
    model = "google/gemma-4-31b"
    words = ["--model", model, "--tensor-parallel-size", "4", "--max-model-len", "131072"]
    args = parse_vllm_args([*words, *([flag] if flag else [])])
    config, _ = replica(models.get(model), gpus.get("h100"), args)
    assert config.block_size == size == _block_size(ModelServer(args, 0, model))
