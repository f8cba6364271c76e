"""`tonnage trace hash`: a log of prompts becomes a trace that says what they share, and nothing of what they say."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Ran, tonnage

from tonnage.inference.replay import log_of
from tonnage.traffic import hashed_trace, prefix_hashes
from tonnage.traffic.traces import load_trace

PLANTED = "zebrafish-4711"
SYSTEM = f"You are a careful assistant of {PLANTED}. " * 8


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines), encoding="utf-8")
    return path


def hashed(capfd: pytest.CaptureFixture[str], log: Path, *options: object) -> list[dict[str, Any]]:
    out = log.with_name("trace.jsonl")
    ran = tonnage(capfd, "trace", "hash", log, "-o", out, *options)
    assert ran.code == 0, ran.err
    text = out.read_text(encoding="utf-8")
    assert PLANTED not in text + ran.out + ran.err
    return [json.loads(line) for line in text.splitlines()]


def refused(capfd: pytest.CaptureFixture[str], log: Path, *options: object) -> Ran:
    out = log.with_name("never.jsonl")
    ran = tonnage(capfd, "trace", "hash", log, "-o", out, *options)
    assert ran.code == 2
    assert not out.exists()
    assert PLANTED not in ran.out + ran.err
    return ran


def shared(ids: list[int], others: list[int]) -> int:
    return next(
        (at for at, (one, other) in enumerate(zip(ids, others, strict=False)) if one != other),
        min(len(ids), len(others)),
    )


def test_two_prompts_share_a_block_exactly_where_all_their_tokens_are_equal_up_to_its_end(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = random.Random(1)
    stems = [[rng.randrange(9) for _ in range(40)] for _ in range(3)]
    prompts = [
        rng.choice(stems)[: rng.randrange(1, 40)] + [rng.randrange(9) for _ in range(rng.randrange(30))]
        for _ in range(60)
    ]
    log = written(
        tmp_path / "log.jsonl",
        [{"timestamp": at, "prompt_token_ids": one, "output_tokens": 1} for at, one in enumerate(prompts)],
    )
    for options in ((), ("--salt", "s")):
        lines = hashed(capfd, log, "--block-size", 4, *options)
        for one, line in zip(prompts, lines, strict=True):
            assert line["input_length"] == len(one)
            assert len(line["hash_ids"]) == len(one) // 4
            for other, beside in zip(prompts, lines, strict=True):
                same = shared(one, other)
                assert shared(line["hash_ids"], beside["hash_ids"]) == min(same, len(one), len(other)) // 4


def test_a_salt_gives_the_same_numbers_in_every_log_and_another_salt_others(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = written(tmp_path / "a.jsonl", [{"ts": 0, "token_ids": list(range(64)), "completion_tokens": 2}])
    longer = written(
        tmp_path / "b.jsonl",
        [{"ts": n, "token_ids": [n, *range(64)][1 - n :], "completion_tokens": 2} for n in range(2)],
    )
    one, other = hashed(capfd, log, "--salt", "s")[0], hashed(capfd, longer, "--salt", "s")
    assert one["hash_ids"] in [line["hash_ids"][:4] for line in other]
    assert not set(one["hash_ids"]) & set(hashed(capfd, log, "--salt", "t")[0]["hash_ids"])
    assert hashed(capfd, log)[0]["hash_ids"] == [0, 1, 2, 3]
    assert hashed(capfd, longer)[1]["hash_ids"] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("record", "output"),
    [
        ({"timestamp": "2026-05-01T10:00:00Z", "messages": [{"role": "user", "content": SYSTEM}], "usage": {"completion_tokens": 7}}, 7),
        ({"created": 1770000000, "request": {"body": {"messages": [{"role": "user", "content": [{"type": "text", "text": SYSTEM}]}]}}, "response": {"body": {"usage": {"completion_tokens": 7}}}}, 7),
        ({"startTime": "2026-05-01 10:00:00.5", "messages": [{"role": "user", "content": SYSTEM}], "response": {"choices": [{"message": {"content": "one two three"}}]}}, 4),
        ({"custom_id": "a", "time": 1770000000123, "body": {"prompt": SYSTEM, "max_tokens": 9}}, 9),
        (f"INFO 07-10 15:46:54 [logger.py:41] Received request cmpl-1-0: prompt: {SYSTEM!r}, params: SamplingParams(n=1, max_tokens=9, seed=None), prompt_token_ids: None, lora_request: None.", 9),
        (f"INFO 07-10 15:46:54 logger.py:36] Received request cmpl-1-0: prompt: {SYSTEM!r}, params: SamplingParams(n=1, max_tokens=9), prompt_token_ids: {[5] * 90}, lora_request: None.", 9),
        ({"created_at": 1770000000, "instructions": SYSTEM, "input": "hi", "max_output_tokens": 99, "output": [{"type": "message", "content": [{"type": "output_text", "text": "one two three"}]}]}, 4),
        ('{"ts": 1, "prompt": "' + SYSTEM + '\\ud800", "max_tokens": 9}', 9),
    ],
    ids=["openai", "gateway", "litellm", "batch", "vllm-text", "vllm-tokens", "responses", "half-a-surrogate"],
)  # fmt: skip
def test_every_kind_of_log_is_read(capfd: pytest.CaptureFixture[str], tmp_path: Path, record: Any, output: int) -> None:
    others = ["INFO 07-10 15:46:55 [metrics.py] Avg prompt throughput"] if isinstance(record, str) else []
    lines = hashed(capfd, written(tmp_path / "log", [record, *others, record]), "--tokenizer", "bytes")
    assert [line["output_length"] for line in lines] == [output, output]
    assert lines[0]["hash_ids"] == lines[1]["hash_ids"]
    assert len(lines[0]["hash_ids"]) >= 5


def test_newer_releases_of_vllm_log_the_prompt_apart_from_its_parameters(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = []
    for id_, lora in (("a-1", "None"), ("b-2", "None"), ("c-3", "LoRARequest(lora_name='law', lora_int_id=1)")):
        lines.append(
            f"DEBUG 07-10 15:46:54 [logger.py:4] Request {id_} details: prompt: {SYSTEM!r}, prompt_token_ids: {[7] * 64}, prompt_embeds shape: None."
        )
        lines.append(
            f"INFO 07-10 15:46:55 [logger.py:9] Received request {id_}: params: SamplingParams(n=1, max_tokens=5), lora_request: {lora}."
        )
    made = hashed(capfd, written(tmp_path / "log", lines))
    assert [line["output_length"] for line in made] == [5, 5, 5]
    assert made[0]["hash_ids"] == made[1]["hash_ids"] == [0, 1, 2, 3]
    assert made[2]["hash_ids"] == [4, 5, 6, 7]
    assert "VLLM_LOGGING_LEVEL=DEBUG" in refused(capfd, written(tmp_path / "log", lines[1:2])).err


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"content": [{"type": "image_url", "image_url": {"url": "a"}}]}, {"content": [{"type": "image_url", "image_url": {"url": "b"}}]}),
        ({"content": "x", "name": "a"}, {"content": "x", "name": "b"}),
        ({"content": None, "function_call": {"name": "f", "arguments": "1"}}, {"content": None, "function_call": {"name": "f", "arguments": "2"}}),
    ],
    ids=["image", "name", "call"],
)  # fmt: skip
def test_what_a_template_would_print_of_a_message_tells_prompts_apart(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    rest = {"role": "user", "content": SYSTEM}
    log = [
        {"ts": at, "max_tokens": 1, "messages": [{"role": "user", **first}, rest]}
        for at, first in enumerate((one, one, other))
    ]
    first, same, apart = (
        line["hash_ids"] for line in hashed(capfd, written(tmp_path / "log", log), "--tokenizer", "bytes")
    )
    assert first == same
    assert first[-1] != apart[-1]


def test_a_request_with_several_prompts_is_several(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = [
        {"ts": 1, "max_tokens": 2, "prompt": ["a" * 80, "b" * 80]},
        {"ts": 2, "max_tokens": 2, "prompt": [[1] * 20, [2] * 20]},
    ]
    assert len(hashed(capfd, written(tmp_path / "log", log), "--tokenizer", "bytes")) == 4


def test_line_ends_of_other_kinds_are_part_of_a_text(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = written(
        tmp_path / "log",
        ['{"ts": 1, "max_tokens": 1, "prompt": "a\u2028b\u0085c"}', '{"ts": 2, "max_tokens": 0, "prompt": "x"}\r'],
    )
    assert len(hashed(capfd, log, "--tokenizer", "bytes")) == 1


def test_the_trace_goes_to_standard_output_and_the_summary_beside_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = written(tmp_path / "log", [{"ts": 1, "token_ids": [1] * 20, "output_length": 2}])
    ran = tonnage(capfd, "trace", "hash", log, "-o", "-")
    assert json.loads(ran.out)["input_length"] == 20
    assert "1 request," in ran.err
    assert not tonnage(capfd, "trace", "hash", log, "-o", "-", "-q").err


def test_each_answer_of_a_session_is_a_request_that_begins_as_the_one_before(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    turns = [{"from": who, "value": f"{SYSTEM}{at}"} for at, who in enumerate(["human", "gpt", "human", "gpt"])]
    log = tmp_path / "sessions.json"
    log.write_text(
        json.dumps([{"id": "x", "conversations": turns}, {"id": "y", "conversations": turns[:2]}]), encoding="utf-8"
    )
    lines = hashed(capfd, log, "--tokenizer", "bytes", "--rate", 0.5, "--turn-gap", 5)
    assert [line["timestamp"] for line in lines] == [0, 2_000, 5_000]
    first, other, second = (line["hash_ids"] for line in lines)
    assert first == other
    assert shared(first, second) >= len(first) - 2 > 0
    assert len(second) > 2 * len(first)


def chats(requests: int) -> list[Any]:
    """Turns of three sessions, one after the other, and some with token ids among them."""
    rng, said, found = random.Random(3), [[], [], []], []
    for at in range(requests):
        messages = said[rng.randrange(3)]
        messages += [{"role": one, "content": f"{one} {rng.random()} {SYSTEM}"} for one in ("user", "assistant")]
        messages[6:] = []
        asked = {"messages": messages[:-1]} if at % 5 else {"prompt_token_ids": [rng.randrange(3) for _ in range(20)]}
        found.append(json.dumps({"ts": at, **asked, "max_tokens": 1, "model": rng.choice("ab")}))
    return found


@pytest.mark.parametrize("batch", [1, 7, 512])
@pytest.mark.parametrize("remembered", [0, 3000, 1 << 27])
def test_neither_memory_nor_the_size_of_batches_changes_a_number(
    batch: int, remembered: int, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "log.jsonl", chats(40))
    want = hashed(capfd, log, "--tokenizer", "bytes")
    monkeypatch.setattr(hashed_trace, "_AT_ONCE", batch)
    for module in (hashed_trace, prefix_hashes):
        monkeypatch.setattr(module, "_REMEMBERED", remembered)
    assert hashed(capfd, log, "--tokenizer", "bytes") == want
    assert len({tuple(one["hash_ids"][:20]) for one in want if one["input_length"] > 400}) >= 6


@pytest.mark.parametrize("batch", [1, 3, 512])
def test_of_several_wrong_requests_the_first_is_named(
    batch: int, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = chats(9)
    lines[4] = json.dumps({"ts": 4, "prompt": "x"})  # without an answer or a limit
    lines[6] = "{"
    monkeypatch.setattr(hashed_trace, "_AT_ONCE", batch)
    ran = refused(capfd, written(tmp_path / "log.jsonl", lines), "--tokenizer", "bytes")
    assert "log.jsonl:5" in ran.err


def test_prompts_of_other_models_and_cache_salts_share_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kinds: list[dict[str, str]] = [{}, {"model": "a"}, {"model": "b"}, {"model": "a", "cache_salt": "tenant"}]
    log = written(tmp_path / "log", [{"ts": 1, "token_ids": [1] * 32, "output_length": 1, **kind} for kind in kinds])
    assert len({tuple(line["hash_ids"]) for line in hashed(capfd, log)}) == 4


def test_the_trace_is_one_for_replays_with_blocks_of_its_own_size_and_of_multiples(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stem = list(range(100))
    log = written(tmp_path / "log", [{"ts": at, "token_ids": [*stem, at], "output_length": 3} for at in range(20)])
    lines = hashed(capfd, log)
    assert lines[0]["block_size"] == 16
    trace = load_trace(tmp_path / "trace.jsonl")
    assert trace.hash_block == 16
    for size, common in ((8, 12), (16, 6), (32, 3), (64, 1)):
        first, last = log_of(trace, size).paths[0], log_of(trace, size).paths[19]
        assert shared(*([block for span in path for block in range(*span)] for path in (first, last))) == common
    ran = tonnage(
        capfd,
        "kv",
        "worth",
        tmp_path / "trace.jsonl",
        "--workers",
        1,
        "--gpu-blocks",
        80,
        "--usd-per-hour",
        1,
        "-o",
        "json",
    )
    assert json.loads(ran.out)["settings"][-1]["reuse"] > 0.5


def test_requests_without_tokens_are_left_out_and_counted(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = written(
        tmp_path / "log", [{"ts": 1, "token_ids": [1] * 20, "usage": {"completion_tokens": n}} for n in (0, 3)]
    )
    out = tmp_path / "trace.jsonl"
    ran = tonnage(capfd, "trace", "hash", log, "-o", out)
    assert "1 left out: no tokens in or out" in ran.out
    assert len(load_trace(out)) == 1


def test_standard_input_and_gzip_are_read_as_well(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({"ts": 1, "token_ids": [1] * 20, "output_length": 2}).encode()
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(line))
    found = hashed(capfd, packed)
    monkeypatch.setattr("sys.stdin", _Input(line))
    assert tonnage(capfd, "trace", "hash", "-", "-o", tmp_path / "b.jsonl").code == 0
    assert json.loads((tmp_path / "b.jsonl").read_text(encoding="utf-8")) == found[0]


class _Input:
    """Standard input that has these bytes."""

    def __init__(self, data: bytes) -> None:
        import io

        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        ([{"ts": 1, "prompt": PLANTED, "max_tokens": 1}], (), "--tokenizer bytes"),
        ([{"prompt": PLANTED, "max_tokens": 1}], ("--tokenizer", "bytes"), "--rate"),
        ([{"ts": 1, "prompt": PLANTED}], ("--tokenizer", "bytes"), "--output-tokens"),
        ([{"ts": PLANTED, "prompt": PLANTED}], ("--tokenizer", "bytes"), ":1:ts"),
        ([{"ts": 1, "text": PLANTED}], (), "prompt_token_ids"),
        ([{"ts": 1, "prompt": {"a": PLANTED}}], (), ":1:prompt"),
        ([{"ts": 1, "token_ids": [1]}, f'{{"ts": "{PLANTED}'], ("--output-tokens", 1), ":2"),
        ([{"ts": 1, "conversations": [PLANTED]}], (), "conversations"),
        ([f"INFO 07-10 15:46:54 Received request x: {PLANTED}"], (), ":1"),
        (["nothing of this"], (), "no request in it"),
        ([{"ts": 1, "prompt": PLANTED}], ("--tokenizer", "/nowhere"), "/nowhere"),
        ([{"ts": 1, "prompt_token_ids": [1, 2**32], "max_tokens": 1}], (), "prompt_token_ids"),
        ([{"ts": 1, "token_ids": [1], "max_tokens": -1}], (), "max_tokens"),
        ([{"ts": 1, "token_ids": [1], "max_tokens": True}], (), "max_tokens"),
        ([{"ts": 1, "token_ids": [1], "completion_tokens": 99999999999}], (), "completion_tokens"),
        ([{"ts": 1, "token_ids": [1], "max_tokens": 1}], ("--salt", ""), "--salt"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_its_line_and_never_by_what_it_says(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, lines: list[Any], options: tuple[object, ...], told: str
) -> None:
    assert told in refused(capfd, written(tmp_path / "log.jsonl", lines), *options).err


def test_a_log_is_not_replaced_by_its_trace(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = written(tmp_path / "log", [{"ts": 1, "token_ids": [1] * 20, "output_length": 2}])
    before = log.read_bytes()
    assert tonnage(capfd, "trace", "hash", log, "-o", log).code == 2
    assert log.read_bytes() == before


def test_a_models_own_tokenizer_gives_its_tokens(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the library tokenizers is not installed")
    words = {word: at for at, word in enumerate(["[UNK]", "one", "two", "three"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    log = written(
        tmp_path / "log",
        [
            {"ts": at, "prompt": "one two three " * 6 + end, "response": "two two"}
            for at, end in enumerate(["one", "two"])
        ],
    )
    lines = hashed(capfd, log, "--tokenizer", tmp_path, "--block-size", 6)
    assert [(line["input_length"], line["output_length"]) for line in lines] == [(19, 2), (19, 2)]
    assert lines[0]["hash_ids"] == lines[1]["hash_ids"] == [0, 1, 2]
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "not a tokenizer" in refused(capfd, log, "--tokenizer", tmp_path).err


def test_lines_that_hide_their_requests_are_counted_and_the_first_is_named(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As `kubectl logs --timestamps` writes them; empty lines are none."""
    record = {"ts": 1, "token_ids": [1] * 20, "output_length": 2}
    stamped = f"2026-03-02T09:00:00Z {json.dumps(record)}"
    ran = refused(capfd, written(tmp_path / "stamped", ["", stamped, stamped]))
    assert "no request in it: 2 lines, the first of them 2, passed over: neither JSON nor a request" in ran.err
    ran = tonnage(capfd, "trace", "hash", written(tmp_path / "mixed", [record, stamped]), "-o", tmp_path / "made")
    assert "  1 line, 2, passed over: neither JSON nor a request in vLLM's log" in ran.out.splitlines()


def test_a_log_of_requests_without_tokens_says_that_it_has_nothing_else(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = written(tmp_path / "log", [{"ts": 1, "token_ids": [1], "output_length": 0}])
    assert "no request in it: 1 left out: no tokens in or out; 1 with the output tokens that are logged" in (
        refused(capfd, log).err
    )


def test_a_rate_instead_of_the_times_of_a_log_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    records = [{"ts": 7 * at, "token_ids": [1] * 20, "output_length": 2} for at in range(3)]
    out = tmp_path / "made"
    ran = tonnage(capfd, "trace", "hash", written(tmp_path / "log", records), "-o", out, "--rate", 2)
    assert [json.loads(line)["timestamp"] for line in out.read_text(encoding="utf-8").splitlines()] == [0, 500, 1_000]
    assert "  3 with a time by --rate, not by the log" in ran.out.splitlines()


@pytest.mark.parametrize(("ids", "told"), [([], "an empty prompt"), ([1, -3], "nor token ids throughout")])
def test_token_ids_that_are_none_are_not_said_to_be_missing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, ids: list[int], told: str
) -> None:
    assert told in refused(capfd, written(tmp_path / "log", [{"ts": 1, "token_ids": ids, "max_tokens": 1}])).err
