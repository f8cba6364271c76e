"""`tonnage kv worth`: what it prints, and what it says about input that cannot be used."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Ran, tonnage

from tonnage.cli import main
from tonnage.inference import tiers

ENGINE = ("--workers", 2, "--gpu-blocks", 80, "--usd-per-hour", 10)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Six users in turn, each with the same 2,560 tokens and some of its own."""
    lines = [
        {
            "timestamp": 400 * number,
            "input_length": 2_600,
            "output_length": 4,
            "hash_ids": [number % 6 * 10 + at for at in range(5)] + [1_000 + number],
        }
        for number in range(60)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def found(capfd: pytest.CaptureFixture[str], log: Path, *arguments: object) -> dict[str, Any]:
    ran = tonnage(capfd, "kv", "worth", log, *ENGINE, *arguments, "-o", "json")
    assert ran.code == 0
    shown: dict[str, Any] = json.loads(ran.out)
    return shown


def test_json_has_a_setting_for_the_gpu_alone_for_each_tier_and_for_no_end(
    capfd: pytest.CaptureFixture[str], log: Path
) -> None:
    shown = found(capfd, log, "--tier", "host=2x", "--tier", "disk=inf,admit=1")
    assert shown["schema"] == "tonnage.dev/kv-worth/v1"
    assert [setting["tiers"] for setting in shown["settings"]] == [[], ["host"], ["host", "disk"], ["unbounded, free"]]
    assert shown["settings"][-1]["reuse"] == shown["bound"]["own"] > 0.8
    assert shown["settings"][0]["reuse"] < 0.1
    assert shown["settings"][-1]["ttft_ms"]["mean"] < shown["settings"][0]["ttft_ms"]["mean"]
    assert shown["settings"][1]["uses"][0]["blocks"] == 160


def test_two_runs_print_the_same_bytes(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    first = tonnage(capfd, "kv", "worth", log, *ENGINE, "--policy", "power-of-two", "-o", "json")
    assert first.out == tonnage(capfd, "kv", "worth", log, *ENGINE, "--policy", "power-of-two", "-o", "json").out


def test_the_table_names_tiers_with_their_sizes_and_the_bound(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(capfd, "kv", "worth", log, *ENGINE, "--tier", "host=4GiB", "--tier", "remote=inf")
    lines = ran.out.splitlines()
    told = " ".join(ran.out.split())
    assert told.startswith("60 requests in 0.4 min, 2 workers, round-robin; Dynamo's replay engine at 10.00 USD")
    rows = lines[lines.index("") + 2 :]
    assert [line.split("  ")[0] for line in rows[:4]] == [
        "GPU alone", "+ host, 4.0 GiB", "+ remote, unlimited", "unbounded, free",
    ]  # fmt: skip
    assert "bound: unlimited caches reuse" in ran.out
    assert ran.err == ""


def test_a_tier_smaller_than_the_gpu_is_warned_of(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(capfd, "kv", "worth", log, *ENGINE, "--tier", "host=60")
    assert ran.code == 0
    assert "warning: tier host holds 60 blocks, not more than the 80 of the GPU above it" in ran.err


def test_a_size_is_blocks_bytes_or_a_multiple_of_the_gpu(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    block_bytes = 64 * 131_072  # Llama 3.1 8B
    for size, blocks in (("96", 96), ("1.5x", 120), ("1GiB", 128), (f"{block_bytes * 3 // 1024}KiB", 3), ("inf", None)):
        shown = found(capfd, log, "--tier", f"host={size}")
        assert shown["settings"][1]["uses"][0]["blocks"] == blocks


def test_a_tier_of_another_name_needs_its_bandwidth(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    shown = found(capfd, log, "--tier", "cxl=inf,40,latency=2us")
    assert shown["settings"][1]["reuse"] == shown["bound"]["own"]


def test_what_a_tier_costs_follows_its_price(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    free = found(capfd, log, "--tier", "host=4x,price=0")["settings"][1]
    dear = found(capfd, log, "--tier", "host=4x,price=1")["settings"][1]
    assert free["tier_usd"] == 0
    assert free["net_usd"] == free["saved_usd"] > 0
    hours = found(capfd, log, "--tier", "host=4x,price=1")["hours"]
    assert dear["tier_usd"] == pytest.approx(2 * 320 * 64 * 131_072 / 2**30 * hours, rel=0.05)


def test_a_model_on_a_gpu_gives_its_own_block_size_and_price(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(
        capfd, "kv", "worth", log, "--workers", 1, "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "l40s",
        "--gpu-blocks", 300, "--tier", "host=4x",
    )  # fmt: skip
    assert ran.code == 0
    assert "meta-llama/Llama-3.1-8B-Instruct on l40s at 1.86 USD per hour" in " ".join(ran.out.split())
    assert "300 blocks of 16 tokens, 0.6 GiB" in ran.out


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        ("host", "expected NAME=SIZE[,GB/S][,key=value…]"),
        ("=4x", "expected NAME=SIZE"),
        ("host=", "expected NAME=SIZE"),
        ("host=4y", "'4y' is not a size"),
        ("host=-4", "'-4' is not a size"),
        ("host=1.5", "'1.5' is not a number of blocks"),
        ("host=4x,fast", "'fast' is not a bandwidth"),
        ("host=4x,0", "'0' is not a bandwidth"),
        ("host=4x,nan", "'nan' is not a bandwidth"),
        ("host=4x,50,60", "'60' found where key=value is expected"),
        ("host=4x,speed=3", "there is no key 'speed'"),
        ("host=4x,latency=5", "'5' is not a latency"),
        ("host=4x,admit=0", "'0' is not a number of uses"),
        ("host=4x,fill=up", "'up' is not a way to fill a tier"),
        ("host=4x,shared=1", "'1' is neither yes nor no"),
        ("host=4x,price=-1", "'-1' is not a price"),
        ("host=4x,price=1e300", "'1e300' is not a price"),
        ("host=4x,price=1_0", "'1_0' is not a price"),
        ("host=٣", "'٣' is not a size"),
        ("host=4\N{KELVIN SIGN}B", "is not a size"),
        ("host=4x,admit=٣", "'٣' is not a number of uses"),
        ("host=4x,latency=٣ms", "'٣ms' is not a latency"),
        ("host=4x,latency=3601s", "'3601s' is not a latency (expected at most 3600s)"),
        ("host=4x,٣", "'٣' is not a bandwidth"),
        ("host=999999999999999999TiB", "is more than 1e15 blocks (write inf"),
        ("host=1KiB", "'1KiB' is less than one block (a block is 8,388,608 bytes"),
        ("host=4x,admit=1,admit=2", "key 'admit' is given twice"),
        ("host=4x,free=1", "'1' is neither yes nor no (expected free=yes or free=no)"),
        ("host=4x,free=yes,price=1", "free=yes and a price exclude each other"),
        ("hots=4x", "'hots' is none of host, disk, remote and has no bandwidth"),
    ],
)
def test_a_bad_tier_is_named(capfd: pytest.CaptureFixture[str], log: Path, tier: str, said: str) -> None:
    ran = tonnage(capfd, "kv", "worth", log, "--tier", tier)
    assert ran.code == 2
    (error,) = ran.errors
    assert error.startswith(f'error: --tier: "{tier}": ')
    assert said in error


def said(ran: Ran) -> str:
    assert ran.code == 2
    (error,) = ran.errors
    return error


def test_a_tier_given_twice_is_refused(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(capfd, "kv", "worth", log, "--tier", "host=1x", "--tier", "host=2x")
    assert "tier host is given twice" in said(ran)


def test_a_log_without_content_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}', encoding="utf-8")
    error = said(tonnage(capfd, "kv", "worth", path))
    assert f"{path}:hash_ids: the log does not say what its prompts have in common" in error


def test_a_block_size_that_does_not_divide_the_hashes_is_refused(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    assert "--block-size" in said(tonnage(capfd, "kv", "worth", log, "--block-size", 48))


def test_an_unknown_policy_is_refused_before_the_log_is_read(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no routing policy 'best'" in said(tonnage(capfd, "kv", "worth", tmp_path / "none", "--policy", "best"))


def test_a_gpu_without_a_known_price_asks_for_one(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(capfd, "kv", "worth", log, "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "a100-80-pcie")
    assert "--usd-per-hour: no instance type with the GPU a100-80-pcie has a known price" in said(ran)


def test_a_free_tier_costs_nothing_however_much_is_read_and_written(
    capfd: pytest.CaptureFixture[str], log: Path
) -> None:
    plain = "remote=inf,inf,latency=0ns,fill=through,shared=yes,admit=1,price=0"
    dear = found(capfd, log, "--tier", plain)["settings"][1]
    free = found(capfd, log, "--tier", f"{plain},free=yes")["settings"][1]
    assert dear["tier_usd"] > 0, "price= is for capacity alone"
    assert free["uses"][0]["read"] > 0 and free["uses"][0]["written"] > 0
    assert free["tier_usd"] == 0 and free["net_usd"] == free["saved_usd"]
    assert found(capfd, log, "--tier", f"{plain},free=no")["settings"][1] == dear


def test_equal_seeds_draw_equal_workers_and_others_do_not(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    draws = [found(capfd, log, "--tier", "host=4x", "--policy", "random", "--seed", seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1]
    assert draws[0]["settings"][1] != draws[2]["settings"][1]
    assert draws[0] == found(capfd, log, "--tier", "host=4x", "--policy", "random")


@pytest.mark.parametrize("price", ["nan", "inf", "-inf", "1e300", "-1"])
def test_a_price_that_is_no_amount_is_refused(capfd: pytest.CaptureFixture[str], log: Path, price: str) -> None:
    error = said(tonnage(capfd, "kv", "worth", log, f"--usd-per-hour={price}"))
    assert "'--usd-per-hour': " in error and price in error


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (("--model", "nope", "--gpu", "h100"), "error: --model: unknown model 'nope'"),
        (("--model", "qwen3-8b", "--gpu", "nope"), "error: --gpu: unknown GPU 'nope'"),
        (("--model", "qwen3-8b", "--gpu", "h100", "--engine", "nope"), "error: --engine: unknown engine kind 'nope'"),
        (("--model", "qwen3-8b", "--gpu", "h100", "--tensor-parallel", 3), "error: --tensor-parallel: "),
        (("--model", "llama-3.1-70b", "--gpu", "l40s"), "error: --tensor-parallel: meta-llama/Llama-3.1-70B does not"),
        (("--tensor-parallel", 2), "error: --tensor-parallel: --tensor-parallel without --model"),
        (("--gpu", "h100"), "error: --gpu: --gpu without --model"),
        (("--policy", "best"), "error: --policy: there is no routing policy 'best'"),
    ],
)
def test_what_is_wrong_with_the_engine_is_said_of_options_that_the_command_has(
    capfd: pytest.CaptureFixture[str], log: Path, arguments: tuple[object, ...], start: str
) -> None:
    error = said(tonnage(capfd, "kv", "worth", log, *arguments))
    assert error.startswith(start)
    assert "--tensor-parallel-size" not in error and "--quantization" not in error


def test_one_of_a_kind_is_not_said_in_the_plural(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}', encoding="utf-8")
    ran = tonnage(capfd, "kv", "worth", path, "--workers", 1, "--gpu-blocks", 20, "--tier", "host=1")
    assert ran.code == 0
    assert ran.out.startswith("1 request in 0.0 min, 1 worker, ")
    assert "tier host holds 1 block, not more than" in ran.err


def test_no_amount_of_money_is_less_than_nothing_when_rounded(capfd: pytest.CaptureFixture[str], log: Path) -> None:
    ran = tonnage(capfd, "kv", "worth", log, "--usd-per-hour", 0, "--tier", "host=100,price=0.000001")
    assert ran.code == 0
    assert "-0.00" not in ran.out and " 0.00" in ran.out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_drawn_on_a_terminal_unless_asked_for_quiet(
    monkeypatch: pytest.MonkeyPatch, log: Path, quiet: bool
) -> None:
    screen = _Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(SystemExit) as ended:
        main(["kv", "worth", str(log), "--gpu-blocks", "80", "--tier", "host=4x", *["-q"] * quiet])
    assert ended.value.code == 0
    assert ("100%" in screen.getvalue()) is not quiet


def test_the_guide_has_the_usual_tiers_as_they_are() -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/value-kv-tiers.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| | `host` | `disk` | `remote` |\n")
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.split("\n\n")[0].splitlines()[1:]]
    for place, name in enumerate(tiers.names()):
        tier = tiers.default(name)
        speed, latency, admit, fill, shared, price, moved, _ = [row[place].split(" (")[0] for row in rows]
        assert speed == f"{tier.read_bytes_per_s / 1e9:g}, {tier.write_bytes_per_s / 1e9:g}"
        unit, ns = ("ms", 1_000_000) if latency.endswith("ms") else ("us", 1_000)
        assert latency == f"{tier.latency_ns / ns:g}{unit}"
        assert (int(admit), fill, shared == "yes") == (tier.min_frequency, tier.fill, tier.shared)
        assert float(price) * 1e6 == pytest.approx(tier.micro_usd_per_gib_hour)
        assert [float(usd) * 1e6 for usd in moved.split(", ")] == pytest.approx(
            [tier.micro_usd_per_gib_read, tier.micro_usd_per_gib_written]
        )


@pytest.mark.parametrize(
    ("length", "rates"),
    [
        (100, {16: 0.96, 64: 0.64, 128: 0.0, 512: 0.0}),
        (20, {16: 0.8, 32: 0.0, 64: 0.0}),
        (512, {16: 496 / 512, 64: 448 / 512, 256: 0.5, 512: 0.0}),
    ],
)
def test_the_reuse_of_short_prompts_is_named_by_block_size(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, length: int, rates: dict[int, float]
) -> None:
    """Short prompts that are all alike between long ones: a cache keeps whole blocks, and the last token is computed."""
    lines = [
        {"timestamp": 100 * at, "input_length": length, "output_length": 1, "hash_ids": [7]}
        if at % 2
        else {"timestamp": 100 * at, "input_length": 1024, "output_length": 1, "hash_ids": [100 + at, 101 + at]}
        for at in range(400)
    ]
    path = tmp_path / "short.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    short = found(capfd, path, "--block-size", 16)["short_prompts"]
    assert (short["longest"], short["prompts"]) == (length, 200)
    made = {one["block_size"]: one["reuse"] for one in short["by_block_size"]}
    assert {size: round(made[size] * 200 / 199, 3) for size in rates} == {s: round(r, 3) for s, r in rates.items()}
    out = tonnage(capfd, "kv", "worth", path, *ENGINE).out
    assert f"short prompts: of the shortest quarter, up to {length} tokens" in out
