"""YAML read and written by libyaml where it is there, ten times as fast as PyYAML alone: sets of manifests are written
and read thousands of times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str | bytes) -> Any:
    """The one document of a text."""
    return yaml.load(text, LOADER)


def load_all(text: str | bytes) -> list[Any]:
    """Every document of a text."""
    return list(yaml.load_all(text, LOADER))


def dump(content: object, **how: Any) -> str:
    """One document. ``how`` is said as to `yaml.safe_dump`."""
    return dump_all([content], **how)


def dump_all(contents: Iterable[object], **how: Any) -> str:
    """Several documents, in their order. ``how`` is said as to `yaml.safe_dump_all`."""
    return str(yaml.dump_all(list(contents), Dumper=DUMPER, **how))
