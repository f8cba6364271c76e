"""Public request traces: who asked when, with how many tokens in and out.

Two formats are read, plain or gzipped, recognised by their content:

- Azure LLM inference traces (Azure/AzurePublicDataset): CSV with
  ``TIMESTAMP,ContextTokens,GeneratedTokens``, the time as ``2023-11-16 18:15:46.6805900`` (UTC).
- Mooncake traces (kvcache-ai/Mooncake): one JSON object a line with ``timestamp`` (milliseconds),
  ``input_length`` and ``output_length``; ``hash_ids`` may be there: one number for every 512 tokens of the
  prompt, the last block included though it is not full, equal for equal content after equal content. The first line
  may have ``block_size``: what a number stands for instead.

A request without prompt or without output is refused, not dropped: an engine computes at least one token
for every prompt that it is given, so zero means a request that failed, and only the trace's owner knows
what should become of it.
"""

from __future__ import annotations

import csv
import datetime
import functools
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.units import NS_PER_MS, NS_PER_S

AZURE_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
HASHES_FIELD = "hash_ids"
MOONCAKE_HASH_BLOCK = 512
"""Tokens that one of Mooncake's hash ids stands for."""

_GZIP_MAGIC = b"\x1f\x8b"
MAX_TOKENS = 2**31 - 1
_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2})[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")


_YEAR_NS = 366 * 24 * 3600 * NS_PER_S
_LONGEST_NS = 10 * _YEAR_NS


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """Requests in order of arrival; the three arrays have one element a request.

    ``arrivals_ns`` counts from the first request; ``prompt`` and ``output`` are tokens, at least 1.
    ``hashes`` says what the prompts have in common, where the trace tells: one number for each ``hash_block``
    tokens of a prompt from its beginning, equal for equal content after equal content. It may end before the
    prompt does (what follows is shared with nobody), never after it.
    """

    source: str
    arrivals_ns: NDArray[np.int64]
    prompt: NDArray[np.int32]
    output: NDArray[np.int32]
    hashes: tuple[tuple[int, ...], ...] | None = None
    hash_block: int = MOONCAKE_HASH_BLOCK

    def __len__(self) -> int:
        return len(self.arrivals_ns)

    @property
    def span_ns(self) -> int:
        """From the first arrival to the last."""
        return int(self.arrivals_ns[-1])


class _Row(msgspec.Struct, frozen=True):
    line: int
    arrival_ns: int
    prompt: int
    output: int
    hashes: tuple[int, ...] | None = None


_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class _Record(msgspec.Struct, gc=False):
    """A line of a Mooncake trace."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: tuple[int, ...] | None = None


class _First(msgspec.Struct, gc=False):
    """The first line of a trace."""

    block_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] = MOONCAKE_HASH_BLOCK


def load_trace(path: Path, *, hash_block: int | None = None) -> Trace:
    """Read a trace in one of the formats above. ``hash_block`` is what one of its hash ids stands for, in tokens; None:
    what its first line says as ``block_size``, else 512.

    Raises:
        InputError: the file cannot be read, is empty or in no known format; a cell is not what it must be;
            a request arrives before its predecessor. Names file, line, field, the value and what was
            expected.
    """
    text = read_text(path)
    hash_block = hash_block or _block_size(text)
    known = _quick_mooncake(path, text, hash_block)
    if known is not None:
        return known
    lines = text.splitlines()
    first = next((line.strip() for line in lines if line.strip()), "")
    if not first:
        raise _empty(path)
    if first.startswith("{"):
        rows, time_field = _mooncake_rows(path, lines, hash_block), MOONCAKE_FIELDS[0]
    elif tuple(cell.strip() for cell in first.split(",")) == AZURE_HEADER:
        rows, time_field = _azure_rows(path, lines), AZURE_HEADER[0]
    else:
        raise InputError.at(
            f"unknown trace format: the first line is {_shown(first)}, expected the header "
            f"{','.join(AZURE_HEADER)} or JSON objects with {', '.join(MOONCAKE_FIELDS)}",
            file=str(path),
            line=1,
            hint="convert the trace to one of these formats",
        )
    try:
        return _assemble(path, rows, time_field, hash_block)
    except csv.Error as error:
        raise InputError.at(f"not a CSV trace: {error}", file=str(path), hint="check its quotes") from error


def read_text(path: Path) -> str:
    """The text of a log, plain or gzipped. Raises InputError where it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError.at(
            f"cannot read the trace: {error.strerror}", file=str(path), hint="give the path of a trace file"
        ) from error
    return decoded(data, str(path))


def decoded(data: bytes, name: str) -> str:
    """UTF-8, plain or gzipped, as text. Raises InputError, which names it ``name``."""
    try:
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError.at(f"damaged gzip file: {error}", file=name, hint="download the trace again") from error
    except UnicodeDecodeError as error:
        raise InputError.at(
            f"not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}",
            file=name,
            hint="give a CSV or JSON Lines trace, plain or gzipped",
        ) from error


def _azure_rows(path: Path, lines: list[str]) -> Iterator[_Row]:
    time_field, prompt_field, output_field = AZURE_HEADER
    reader = csv.reader(lines)
    header_seen = False
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if not header_seen:
            header_seen = True
            continue
        line = reader.line_num
        if len(cells) != len(AZURE_HEADER):
            raise InputError.at(
                f"{len(cells)} cells, expected {len(AZURE_HEADER)}: {','.join(AZURE_HEADER)}",
                file=str(path),
                line=line,
                hint="complete or remove the line",
            )
        yield _Row(
            line,
            _timestamp_ns(cells[0].strip(), path, line, time_field),
            _tokens(_integer(cells[1]), cells[1], path, line, prompt_field),
            _tokens(_integer(cells[2]), cells[2], path, line, output_field),
        )


def _block_size(text: str) -> int:
    """What one hash id stands for, as `tonnage trace hash` writes it into the first line."""
    try:
        first = msgspec.json.decode(text.lstrip().partition("\n")[0], type=_First)
    except msgspec.DecodeError:
        return MOONCAKE_HASH_BLOCK
    return first.block_size


def _quick_mooncake(path: Path, text: str, hash_block: int) -> Trace | None:
    """A faultless Mooncake trace read in one go. None if it is anything else: reading line by line then says what."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        records = msgspec.json.Decoder(_Record).decode_lines(text)
        arrivals = np.array([round(record.timestamp * NS_PER_MS) for record in records], dtype=np.int64)
    except (msgspec.DecodeError, OverflowError):
        return None
    prompt = np.array([record.input_length for record in records], dtype=np.int32)
    output = np.array([record.output_length for record in records], dtype=np.int32)
    hashes: tuple[tuple[int, ...], ...] | None = None
    if any(record.hash_ids is not None for record in records):
        hashes = tuple([record.hash_ids or () for record in records])
        counts = np.array([len(ids) for ids in hashes], dtype=np.int64)
        if np.any((counts - 1) * hash_block >= prompt):
            return None
    if np.any(np.diff(arrivals) < 0) or arrivals[-1] - arrivals[0] > _LONGEST_NS:
        return None
    return Trace(path.name, arrivals - arrivals[0], prompt, output, hashes, hash_block)


def _mooncake_rows(path: Path, lines: list[str], hash_block: int) -> Iterator[_Row]:
    time_field, prompt_field, output_field = MOONCAKE_FIELDS
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            record = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise InputError.at(
                f"not a JSON object: {error}",
                file=str(path),
                line=line,
                hint="one JSON object a line is expected",
            ) from error
        for field in MOONCAKE_FIELDS:
            if field not in record:
                raise InputError.at(
                    "the field is missing",
                    file=str(path),
                    line=line,
                    field=field,
                    hint="every request needs it",
                )
        time = record[time_field]
        if isinstance(time, bool) or not isinstance(time, int | float) or time < 0:
            raise InputError.at(
                f"{_shown(time)} is not a time, expected milliseconds, at least 0",
                file=str(path),
                line=line,
                field=time_field,
                hint="correct or remove the line",
            )
        prompt = _tokens(record[prompt_field], record[prompt_field], path, line, prompt_field)
        output = _tokens(record[output_field], record[output_field], path, line, output_field)
        hashes = _hashes(record.get(HASHES_FIELD), prompt, hash_block, path, line)
        yield _Row(line, round(time * NS_PER_MS), prompt, output, hashes)


def _hashes(value: object, prompt: int, hash_block: int, path: Path, line: int) -> tuple[int, ...] | None:
    """The hash ids of a prompt, checked; None where the line has none."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise InputError.at(
            f"{_shown(value)} are not hash ids, expected a list of whole numbers",
            file=str(path),
            line=line,
            field=HASHES_FIELD,
            hint="correct the line, or leave the field out",
        )
    most = -(-prompt // hash_block)
    if len(value) > most:
        raise InputError.at(
            f"{len(value)} hash ids of {hash_block} tokens for a prompt of {prompt}, expected at most {most}",
            file=str(path),
            line=line,
            field=HASHES_FIELD,
            hint=f"correct the line; check that each hash id stands for {hash_block} tokens in this trace",
        )
    return tuple(value)


def _assemble(path: Path, rows: Iterable[_Row], time_field: str, hash_block: int) -> Trace:
    arrivals: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    hashes: list[tuple[int, ...] | None] = []
    for row in rows:
        if arrivals and row.arrival_ns < arrivals[-1]:
            earlier = (arrivals[-1] - row.arrival_ns) / NS_PER_S
            raise InputError.at(
                f"arrives {earlier:.6f} s before the request above it, expected ascending times",
                file=str(path),
                line=row.line,
                field=time_field,
                hint=f"sort the trace by {time_field}",
            )
        arrivals.append(row.arrival_ns)
        prompts.append(row.prompt)
        outputs.append(row.output)
        hashes.append(row.hashes)
    if not arrivals:
        raise _empty(path)
    if arrivals[-1] - arrivals[0] > _LONGEST_NS:
        years = (arrivals[-1] - arrivals[0]) / _YEAR_NS
        raise InputError.at(
            f"spans {years:.3g} years, expected at most {_LONGEST_NS // _YEAR_NS}",
            file=str(path),
            field=time_field,
            hint="check the unit of the times",
        )
    return Trace(
        source=path.name,
        arrivals_ns=np.array([arrival - arrivals[0] for arrival in arrivals], dtype=np.int64),
        prompt=np.array(prompts, dtype=np.int32),
        output=np.array(outputs, dtype=np.int32),
        hashes=tuple([one or () for one in hashes]) if any(one is not None for one in hashes) else None,
        hash_block=hash_block,
    )


def _timestamp_ns(text: str, path: Path, line: int, field: str) -> int:
    """Nanoseconds since 0001-01-01 of an ISO 8601 time in UTC."""
    match = _TIMESTAMP.fullmatch(text)
    days = _day_number(match[1]) if match else None
    if match is None or days is None:
        raise InputError.at(
            f"{_shown(text)} is not a time, expected the form 2023-11-16 18:15:46.6805900",
            file=str(path),
            line=line,
            field=field,
            hint="write times in UTC with at most 9 fraction digits",
        )
    second_of_day = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    return (days * 86_400 + second_of_day) * NS_PER_S + int((match[5] or "0").ljust(9, "0"))


@functools.lru_cache(maxsize=64)
def _day_number(date: str) -> int | None:
    try:
        return datetime.date.fromisoformat(date).toordinal()
    except ValueError:
        return None


def _integer(cell: str) -> int | None:
    text = cell.strip()
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


def _tokens(value: object, shown: object, path: Path, line: int, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS:
        return value
    raise InputError.at(
        f"{_shown(shown)} is not a number of tokens, expected a whole number from 1 to {MAX_TOKENS}",
        file=str(path),
        line=line,
        field=field,
        hint="remove the request, or write 1 if its prompt was computed before it failed"
        if value == 0
        else "correct or remove the line",
    )


def _empty(path: Path) -> InputError:
    return InputError.at("the trace has no requests", file=str(path), hint="give a trace with at least one request")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f'"{text[:80]}…"' if len(text) > 80 else f'"{text}"'
