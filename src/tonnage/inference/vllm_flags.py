"""Which flags the command line of vLLM's server has, and which values: tables data/vllm_flags.csv and vllm_choices.csv.

Source: the parsers in vLLM's own wheels 0.6.6, 0.8.5, 0.9.2, 0.11.0, 0.14.1, 0.20.0, 0.26.0 and 0.33.0
(vllm/engine/arg_utils.py, vllm/entrypoints/**/cli_args.py, vllm/config, model_executor/layers/quantization). ``since``
is the first of these that has a flag, ``until`` the last; empty where it is the oldest or the newest of them.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import msgspec
from msgspec import Struct

from tonnage.facts import names
from tonnage.facts.cuda import Version, parse_version, split_image
from tonnage.inference import tables

VERSIONS: tuple[Version, ...] = (
    (0, 6, 6),
    (0, 8, 5),
    (0, 9, 2),
    (0, 11, 0),
    (0, 14, 1),
    (0, 20, 0),
    (0, 26, 0),
    (0, 33, 0),
)
"""The releases that were read, oldest first."""
_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)(?:[.-].*)?")
_NO = "--no-"
_OWN = "/vllm/vllm-openai"


class Flag(Struct, frozen=True):
    """``kind``: ``value`` takes one word, ``list`` one or more, ``switch`` none, ``boolean`` none and has a ``--no-``
    form. ``since``, ``until``: releases of :data:`VERSIONS`, None for "before" and "still"."""

    name: str
    short: tuple[str, ...]
    kind: str
    since: Version | None
    until: Version | None

    @property
    def bare(self) -> bool:
        """Whether it takes no value."""
        return self.kind in ("switch", "boolean")

    def missing(self, version: Version | None) -> str:
        """Why a release does not have it; empty where it has, or where that is not known."""
        if version is None:
            return ""
        if self.since is not None and version <= VERSIONS[VERSIONS.index(self.since) - 1]:
            return f"vLLM {_text(version)} does not have {self.name} yet"
        if self.until is not None and version >= VERSIONS[VERSIONS.index(self.until) + 1]:
            return f"vLLM {_text(version)} does not have {self.name} any more"
        return ""


@cache
def flags() -> dict[str, Flag]:
    """Every flag by its name and its short forms."""
    found = {}
    for row in tables.rows("vllm_flags.csv"):
        short = tuple(row["short"].split())
        flag = Flag(row["flag"], short, row["kind"], _version(row["since"]), _version(row["until"]))
        for name in (flag.name, *short):
            found[name] = flag
    return found


@lru_cache(maxsize=1024)
def find(written: str) -> Flag | None:
    """The flag of a word such as ``--max_model_len``: by its name, its short form, ``--no-…``, a part of a JSON value
    (``--kv-transfer-config.kv_role``) or, as argparse does, by the beginning of its name. None: there is none."""
    known = flags()
    if not written.startswith("--"):
        return known.get(written) or (known["--compilation-config"] if written.startswith("-O") else None)
    name = plain(written)
    if name in known:
        return known[name]
    if name.startswith(_NO) and (flag := known.get(f"--{name.removeprefix(_NO)}")) and flag.kind == "boolean":
        return flag
    begun = [flag for full, flag in known.items() if full.startswith(name)]
    return begun[0] if begun else None


def plain(written: str) -> str:
    """The name of a flag with hyphens and without what is behind a dot: underscores are fine, too."""
    return written.partition(".")[0].replace("_", "-") if written.startswith("--") else written


def near(written: str) -> tuple[str, ...]:
    """Flags whose names look like it."""
    return names.near(plain(written), [name for name in flags() if name.startswith("--")])


@cache
def choices(flag: str) -> dict[str, tuple[str, str]]:
    """The values of a flag that has a list of them, each with the compute capability that it needs since vLLM 0.12 and
    up to 0.11 (``8.0``; empty: any, or not known). Empty for other flags."""
    rows = [row for row in tables.rows("vllm_choices.csv") if row["flag"] == flag]
    return {row["value"]: (row["capability"], row["capability_to_0_11"]) for row in rows}


OF_CHECKPOINTS = frozenset(
    ("awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "modelopt", "modelopt_fp4")
)
"""Values of --quantization for checkpoints that were written in that format (vllm/config/model.py)."""
_WHOLE = frozenset(
    (
        "--api-server-count",
        "--data-parallel-size-local",
        "--long-prefill-token-threshold",
        "--max-cpu-loras",
        "--max-log-len",
        "--max-logprobs",
        "--max-lora-rank",
        "--max-loras",
        "--nnodes",
        "--node-rank",
        "--num-gpu-blocks-override",
        "--port",
        "--seed",
    )
)
_DECIMAL = frozenset(("--cpu-offload-gb", "--kv-offloading-size", "--swap-space"))
_JSON = frozenset(
    (
        "--hf-overrides",
        "--kv-transfer-config",
        "--mm-processor-kwargs",
        "--override-generation-config",
        "--rope-scaling",
        "--speculative-config",
    )
)
"""Flags whose values are whole numbers, numbers, JSON objects."""
_STRICT: Version = (0, 9, 0)
"""From this release on switches take no value; before it some took true and false."""


def refused_value(flag: Flag, written: str, value: str | None, version: Version | None) -> tuple[str, str]:
    """(why the parser refuses the value of a flag, what to write); empty where it takes it, or nobody knows.

    ``written``: the flag as it was written; ``version``: the release, None where that is not known."""
    if (
        flag.bare
        and value is not None
        and value.lower() in ("true", "false")
        and (version is None or version >= _STRICT)
    ):
        no = f"--no-{flag.name.removeprefix('--')}" if flag.kind == "boolean" else "leave it out"
        return f"it takes no value, and has {value!r}", flag.name if value.lower() == "true" else no
    if value is None or "." in written.partition("=")[0]:
        return "", ""
    if flag.name in _WHOLE and not re.fullmatch(r"[+-]?\d+", value, re.ASCII):
        return f"{value!r} is not a whole number", "expected a whole number"
    if flag.name in _DECIMAL and not _is_number(value):
        return f"{value!r} is not a number", "expected a number"
    if flag.name in _JSON and not _is_object(value):
        return f"{value!r} is not a JSON object", 'expected JSON with double quotes, such as {"method": "ngram"}'
    return "", ""


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_object(value: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def near_choice(flag: str, value: str) -> tuple[str, ...]:
    """Values of the flag that look like it."""
    return names.near(value, choices(flag))


def repository(image: str) -> str:
    """The repository of an image."""
    return split_image(image)[0]


def version_of(image: str) -> Version | None:
    """The release of vLLM in an image such as ``vllm/vllm-openai:v0.11.0``; None for others, and for ``latest``."""
    repository, tag = split_image(image)
    match = _TAG.fullmatch(tag) if f"/{repository}".endswith(_OWN) else None
    return (*parse_version(match[1]), 0)[:3] if match else None


def is_official(repository: str) -> bool:
    """Whether it is vLLM's own image, also behind a mirror: its entrypoint is the server, and it has no models."""
    return repository.rpartition("/")[2].startswith("vllm-openai")


def _version(text: str) -> Version | None:
    return parse_version(text) if text else None


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)
