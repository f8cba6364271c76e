"""Traffic profiles as YAML files: stable bytes when written, every mistake located when read."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import yaml

from tonnage import documents
from tonnage.errors import InputError
from tonnage.traffic.profile import LengthDistribution, TrafficProfile

_KIND = str(TrafficProfile.__struct_config__.tag)
_WHAT = "a traffic profile"
_LINE_WIDTH = 100
_REFIT = "correct the file or fit it again with `tonnage trace fit`"


def to_yaml(profile: TrafficProfile) -> str:
    """``profile`` as YAML, lists of numbers wrapped at about 100 columns, empty source fields left out."""
    document = msgspec.to_builtins(profile, builtin_types=(datetime.date,))
    document["source"] = {field: text for field, text in document["source"].items() if text}
    document = {field: value for field, value in document.items() if value not in (None, 0)}
    return yaml.dump(
        document,
        Dumper=_ProfileDumper,
        sort_keys=False,
        width=_LINE_WIDTH,
        allow_unicode=True,
        line_break="\n",
    )


def read_profile(path: Path) -> TrafficProfile:
    """Read and check a profile.

    Raises:
        InputError: the file cannot be read, a field is missing, unknown, of the wrong type or out of range,
            or the quantile tables do not fit together.
    """
    return _parsed(documents.text_of(path, _WHAT, _REFIT), path)


@lru_cache(maxsize=16)
def _parsed(text: str, path: Path) -> TrafficProfile:
    """Services share profiles, and policies are compared on the same: each is parsed once."""
    document = documents.parse(text, path, _KIND, _WHAT, _REFIT)
    profile = document.convert(TrafficProfile)
    problems = [document.problem(field, message) for field, message in _inconsistencies(profile)]
    if problems:
        raise InputError(*problems)
    return profile


class _ProfileDumper(yaml.SafeDumper):
    """Writes lists of numbers on wrapped lines and everything else one item a line."""


def _represent_list(dumper: yaml.SafeDumper, items: Sequence[object]) -> yaml.Node:
    numbers = not any(isinstance(item, Sequence) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=numbers)


_ProfileDumper.add_representer(list, _represent_list)
_ProfileDumper.add_representer(tuple, _represent_list)


def _inconsistencies(profile: TrafficProfile) -> Iterator[tuple[str, str]]:
    """(field, message) of what the types alone do not say."""
    if not any(profile.arrivals):
        yield "arrivals", "no interval has an arrival, expected at least one"
    lengths = profile.lengths
    yield from _level_problems("lengths.prompt_levels", lengths.prompt_levels)
    yield from _level_problems("lengths.output_levels", lengths.output_levels)
    yield from _quantile_problems("lengths.prompt_tokens", lengths.prompt_tokens, lengths.prompt_levels)
    yield from _table_problems(lengths)


def _table_problems(lengths: LengthDistribution) -> Iterator[tuple[str, str]]:
    field, bins = "lengths.output_tokens", len(lengths.prompt_levels) - 1
    if len(lengths.output_tokens) != bins:
        yield field, f"{len(lengths.output_tokens)} rows, expected {bins}, one for each prompt bin"
    for index, row in enumerate(lengths.output_tokens):
        yield from _quantile_problems(f"{field}[{index}]", row, lengths.output_levels)


def _level_problems(field: str, levels: Sequence[float]) -> Iterator[tuple[str, str]]:
    if levels[0] != 0 or levels[-1] != 1:
        yield field, f"from {levels[0]:g} to {levels[-1]:g}, expected from 0 to 1"
    for left, right in itertools.pairwise(levels):
        if right <= left:
            yield field, f"{right:g} follows {left:g}, expected ascending levels"


def _quantile_problems(field: str, tokens: Sequence[int], levels: Sequence[float]) -> Iterator[tuple[str, str]]:
    if len(tokens) != len(levels):
        yield field, f"{len(tokens)} quantiles, expected {len(levels)}, one for each level"
    for left, right in itertools.pairwise(tokens):
        if right < left:
            yield field, f"{right} follows {left}, expected quantiles that do not fall"
