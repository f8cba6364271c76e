"""`tonnage trace hash`: a request log into a trace that says what prompts share, and not what they say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import files, terminal
from tonnage.cli.options import Finite
from tonnage.cli.piped import STDIN, stdin
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.traffic.hashed_trace import Hashed, Tokenize

SALT = "TONNAGE_TRACE_SALT"
BYTES = "bytes"
_PATH = click.Path(path_type=Path)


@click.command(name="hash", short_help="Turn a request log into a trace without text.")
@click.argument("file", type=_PATH)
@click.option(
    "-o",
    "--output",
    "out",
    type=_PATH,
    metavar="OUT.jsonl",
    required=True,
    help="Where to write the trace; - is standard output.",
)
@click.option(
    "--tokenizer",
    metavar="PATH",
    help="The model's tokenizer.json, or the folder that has it; `bytes`: four bytes a token.",
)
@click.option(
    "--block-size",
    type=click.IntRange(1, 1 << 16),
    default=16,
    show_default=True,
    metavar="TOKENS",
    help="Tokens of a block, as in vLLM.",
)
@click.option(
    "--salt",
    envvar=SALT,
    metavar="TEXT",
    help=f"Key of the hashes, so that two traces can be compared; better given as ${SALT}. "
    "Without it blocks are numbered as they come.",
)
@click.option(
    "--rate",
    type=Finite(0, min_open=True),
    metavar="N",
    help="Requests (sessions) per second: for logs without times, or instead of their times.",
)
@click.option(
    "--turn-gap",
    type=Finite(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="From one turn of a session to its next.",
)
@click.option(
    "--output-tokens", type=click.IntRange(1), metavar="N", help="Of requests whose answer is not in the log."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary.")
def hash_(
    file: Path,
    out: Path,
    tokenizer: str | None,
    block_size: int,
    salt: str | None,
    rate: float | None,
    turn_gap: float,
    output_tokens: int | None,
    quiet: bool,
) -> None:
    """Turn FILE, a log of prompts, into a trace for `route replay`, `kv worth` and scenarios.

    FILE (`-` is standard input; plain or .gz) is JSON Lines of OpenAI requests with or without their responses, as
    gateways and LiteLLM log them, lines with prompt_token_ids, vLLM's own log, or ShareGPT sessions. The trace has the
    time, the lengths, and a number for each full block of the prompt, equal where two prompts are equal up to there.
    It has no text and no token.

    \b
    tonnage trace hash requests.jsonl --tokenizer ./Qwen3-8B -o trace.jsonl
    tonnage kv worth trace.jsonl --model Qwen3-8B --gpu h100
    """
    from tonnage.traffic import request_logs
    from tonnage.traffic.hashed_trace import Hashing, hash_log
    from tonnage.traffic.traces import decoded, read_text

    if salt == "":
        raise InputError.at("an empty salt is none", field="--salt", hint="leave it out, or give a secret")
    if out != STDIN:
        files.check_writable(out)
    if out.exists() and file.exists() and out.samefile(file):
        raise InputError.at(
            "is the log itself", file=str(out), field="--output", hint="write the trace to another file"
        )
    if file == STDIN:
        name, text = "standard input", decoded(stdin(), "standard input")
    else:
        name, text = str(file), read_text(file)
    choice = Hashing(
        block_size, salt.encode("utf-8", "surrogateescape") if salt else None, rate, turn_gap, output_tokens
    )
    show = not quiet and sys.stderr.isatty()

    def each(count: int) -> None:
        if show:
            terminal.echo(f"\r{count:,} requests", err=True, nl=False)

    passed: list[int] = []
    found = hash_log(request_logs.read(text, name, passed.append), name, _tokenizer(tokenizer), choice, each)
    if show:
        terminal.echo("", err=True)
    if not found.lines:
        reasons = "; ".join(_counted(found, passed))
        message = f"no request in it{': ' if reasons else ''}{reasons}"
        raise InputError.at(message, file=name, hint="see `tonnage trace hash --help` for what is read")
    made = b"".join(line + b"\n" for line in found.lines)
    if out == STDIN:
        terminal.echo(made, nl=False)
    else:
        files.write(out, made.decode())
    if not quiet:
        terminal.echo(_told(out, found, passed, block_size), err=out == STDIN)


def _told(out: Path, found: Hashed, passed: Sequence[int], block_size: int) -> str:
    name = "trace" if out == STDIN else str(out)
    lines = [
        f"{name}: {len(found.lines):,} request{'' if len(found.lines) == 1 else 's'}, blocks of {block_size} tokens"
    ]
    lines += [f"  {one}" for one in _counted(found, passed)]
    return "\n".join(lines)


def _counted(found: Hashed, passed: Sequence[int]) -> list[str]:
    """What was taken from where, what was left out, and which lines were passed over."""
    told = [f"{count:,} {what}" for what, count in sorted(found.counts.items())]
    if passed:
        lines = (
            f"1 line, {passed[0]:,},"
            if len(passed) == 1
            else f"{len(passed):,} lines, the first of them {passed[0]:,},"
        )
        told.append(f"{lines} passed over: neither JSON nor a request in vLLM's log")
    return told


def _tokenizer(given: str | None) -> Tokenize | None:
    """What makes token ids of texts. Raises InputError where it is not there, or its library is not installed."""
    if given is None:
        return None
    if given == BYTES:
        from tonnage.traffic.hashed_trace import tokens_of_bytes

        return tokens_of_bytes
    path = Path(given)
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise InputError.at(
            "is not there", file=str(path), field="--tokenizer", hint="give the model's tokenizer.json or its folder"
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError.at(
            "the library tokenizers is not installed",
            field="--tokenizer",
            hint="pip install 'tonnage[tokenizer]', or take --tokenizer bytes",
        ) from error
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise InputError.at(
            f"not a tokenizer: {error}", file=str(path), field="--tokenizer", hint="give a tokenizer.json"
        ) from error

    worker = ThreadPoolExecutor(1)

    def tokenize(texts: Sequence[str]) -> Callable[[], list[Sequence[int]]]:
        def encode() -> list[Sequence[int]]:
            return [one.ids for one in made.encode_batch_fast(texts, add_special_tokens=False)]

        return worker.submit(encode).result

    return tokenize
