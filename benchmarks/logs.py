"""Logged prompts into a trace without text: `tonnage trace hash` as a user types it, and whether its blocks are vLLM's.

The log: chats of one to eight turns, whose messages are words of this project's own pages, as often as they stand
there; every request repeats the system prompt, one of eight, and all that was said before, as the OpenAI API has it. In
the mean a prompt has about as many tokens as one of the Azure 2023 conversation trace (1,155). The tokenizer is a
byte-level BPE of 32,000 tokens, trained on the same pages, in the Rust library `tokenizers` that models' own run in.

*vLLM's blocks*: of some requests the token ids are hashed block by block as vLLM's ``hash_block_tokens`` does, SHA-256
over the parent's hash, the block's tokens and the extra keys (vllm-project/vllm vllm/v1/core/kv_cache_utils.py); with
ai-dynamo-runtime also by its own hash of a block, chained. A block of ours and one of theirs have to stand for each
other throughout. *planted*: every message has a word that stands nowhere else; none may be in the trace.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Options, Report, peak_memory_gib

COLUMNS = ("what", "requests", "tokens", "seconds", "CPU seconds", "memory GiB")
REQUESTS, SOME, COMPARED = 100_000, 3_000, 2_000
"""Of the log; with ``--quick``; whose blocks are compared."""
BLOCK = 16
SYSTEMS, TURNS = 8, 8
SYSTEM_WORDS, ASKED_WORDS, ANSWERED_WORDS = 300, 60, 55
VOCABULARY = 32_000
PLANTED = "zq7"
SEED = 11


def run(options: Options) -> Report:
    """The log by text, and by token ids. ``--quick``: a shorter log."""
    report = Report("logs", COLUMNS)
    requests = SOME if options.quick else REQUESTS
    try:
        import tokenizers
    except ImportError:
        report.notes.append("left out: the library tokenizers is not installed (pip install 'tonnage[tokenizer]')")
        return report
    with tempfile.TemporaryDirectory() as folder:
        words = _words()
        tokenizer, log, out = (Path(folder) / name for name in ("tokenizer.json", "log.jsonl", "trace.jsonl"))
        _trained(tokenizers, words).save(str(tokenizer))
        _write(log, requests, words)
        measured = _hashed(log, out, "--tokenizer", str(tokenizer))
        trace = [json.loads(line) for line in out.open(encoding="utf-8")]
        tokens = sum(one["input_length"] for one in trace)
        report.row(what="texts", requests=requests, tokens=f"{tokens / 1e6:.1f} M", **measured)
        if not options.quick:
            report.bar("hash-seconds", measured["seconds"], "<=", 60, "s", "cost")
        report.bar("hash-requests", len(trace), "==", requests, "requests", "result")
        planted = out.read_text(encoding="utf-8").count(PLANTED)
        report.bar("hash-planted", planted, "==", 0, "planted words in the trace", "result")
        ids = list(_token_ids(log, tokenizers.Tokenizer.from_file(str(tokenizer)), COMPARED))
        found = [one["hash_ids"] for one in trace[: len(ids)]]
        _compare(report, "vllm", ids, found, _vllm)
        try:
            from dynamo._core import compute_block_hash_for_seq
        except ImportError:
            report.notes.append("blocks beside the peer's left out: ai-dynamo-runtime is not installed")
        else:
            _compare(report, "dynamo", ids, found, lambda one: _chained(compute_block_hash_for_seq(one, BLOCK)))
        numbers = Path(folder) / "ids.jsonl"
        with numbers.open("w", encoding="utf-8") as file:
            for at, one in enumerate(ids):
                print(json.dumps({"ts": 1.7e9 + at, "prompt_token_ids": one, "output_tokens": 1}), file=file)
        measured = _hashed(numbers, out)
        again = [json.loads(line)["hash_ids"] for line in out.open(encoding="utf-8")]
        tokens = sum(map(len, ids))
        report.row(what="token ids", requests=len(ids), tokens=f"{tokens / 1e6:.1f} M", **measured)
        report.bar("hash-ids-as-texts", sum(map(_differ, again, found)), "==", 0, "prompts that differ", "result")
    return report


def _differ(one: Sequence[int], other: Sequence[int]) -> bool:
    return list(one) != list(other)


# -- the log ----------------------------------------------------------------------------------------------------------


def _words() -> list[str]:
    """The words of the project's pages, as they stand."""
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [word for page in pages for word in re.findall(r"\S+", page.read_text(encoding="utf-8"))]


def _trained(tokenizers: Any, words: list[str]) -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False, initial_alphabet=alphabet)
    made.train_from_iterator([" ".join(words[at : at + 1000]) for at in range(0, len(words), 1000)], trainer)
    return made


def _write(path: Path, requests: int, words: list[str]) -> None:
    """The log, in the order of time."""
    rng = random.Random(SEED)
    plants = iter(range(10**9))

    def said(length: int) -> str:
        return " ".join(
            (*rng.choices(words, k=rng.randrange(length // 2, 3 * length // 2)), f"{PLANTED}-{next(plants)}")
        )

    systems = [said(SYSTEM_WORDS) for _ in range(SYSTEMS)]
    with path.open("w", encoding="utf-8") as file:
        for at, messages in zip(range(requests), _turns(rng, systems, said), strict=False):
            usage = {"completion_tokens": rng.randrange(1, 400)}
            record = {"created": 1_700_000_000 + at, "model": "chat", "messages": messages, "usage": usage}
            file.write(f"{json.dumps(record)}\n")


def _turns(rng: random.Random, systems: list[str], said: Callable[[int], str]) -> Iterator[list[dict[str, str]]]:
    """The messages of each request: of sessions, one turn of one after the other, a hundred of them at a time."""
    open_sessions: list[tuple[int, list[dict[str, str]]]] = []
    while True:
        if len(open_sessions) < 100:
            open_sessions.append((rng.randrange(1, TURNS + 1), [{"role": "system", "content": rng.choice(systems)}]))
        number = rng.randrange(len(open_sessions))
        left, messages = open_sessions[number]
        messages.append({"role": "user", "content": said(ASKED_WORDS)})
        yield messages
        messages.append({"role": "assistant", "content": said(ANSWERED_WORDS)})
        open_sessions[number] = (left - 1, messages)
        if left == 1:
            open_sessions.pop(number)


# -- what is measured, and what it is held to -------------------------------------------------------------------------


def _hashed(log: Path, out: Path, *more: str) -> dict[str, float]:
    """What the command takes in a process of its own: seconds on the wall and on processors, peak memory in GiB."""
    code = "import sys; from benchmarks.logs import hash_here; hash_here(sys.argv[1:])"
    command = [sys.executable, "-c", code, str(log), "-o", str(out), "-q", *more]
    environment = os.environ | {"TONNAGE_CONFIG": ""}
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - begun, "CPU seconds": spent, "memory GiB": float(done.stdout)}


def hash_here(words: Sequence[str]) -> None:
    """Run the command in this process, and print the most memory that it held."""
    from tonnage.cli import main

    try:
        main(["trace", "hash", *words])
    except SystemExit as ended:
        if ended.code:
            raise
    print(peak_memory_gib())


def _token_ids(log: Path, tokenizer: Any, most: int) -> Iterator[list[int]]:
    """The token ids of the first prompts, each message by itself."""
    from tonnage.traffic import request_logs

    with log.open(encoding="utf-8") as file:
        text = "".join(line for _, line in zip(range(most), file, strict=False))
    for one in request_logs.read(text, "log"):
        assert isinstance(one.prompt, request_logs.Said)
        yield [id_ for part in one.prompt.parts for id_ in tokenizer.encode(part, add_special_tokens=False).ids]


def _vllm(tokens: Sequence[int]) -> list[bytes]:
    """The hash of each full block as vLLM has it, without an adapter and a salt."""
    parent, found = hashlib.sha256(b"0").digest(), []
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        parent = hashlib.sha256(pickle.dumps((parent, tuple(tokens[at : at + BLOCK]), None), 5)).digest()
        found.append(parent)
    return found


def _chained(blocks: Sequence[int]) -> list[bytes]:
    """Of hashes of what each block says those of all up to it."""
    parent, found = b"", []
    for one in blocks:
        parent = hashlib.sha256(parent + one.to_bytes(8, "little")).digest()
        found.append(parent)
    return found


def _compare(
    report: Report,
    name: str,
    ids: Sequence[list[int]],
    found: Sequence[list[int]],
    of: Callable[[list[int]], list[bytes]],
) -> None:
    """How many blocks stand for others than one of theirs, or theirs for others than one of ours."""
    ours: dict[int, bytes] = {}
    theirs: dict[bytes, int] = {}
    wrong = blocks = 0
    for tokens, numbers in zip(ids, found, strict=True):
        hashes = of(tokens)
        wrong += abs(len(hashes) - len(numbers))
        for number, hash_ in zip(numbers, hashes, strict=False):
            wrong += ours.setdefault(number, hash_) != hash_ or theirs.setdefault(hash_, number) != number
            blocks += 1
    report.notes.append(f"{blocks:,} blocks of {len(ids):,} prompts beside {name}'s: {len(theirs):,} distinct")
    report.bar(f"hash-blocks-{name}", wrong, "==", 0, "blocks that differ", "result")
