"""Names of container images, and what is known of some: whether anybody may pull them, and their architectures.

Table: ``data/images.csv``, of which the first row counts that an image meets. Source of the grammar:
distribution/reference regexp.go and normalize.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables

AMD64 = "amd64"
ARM64 = "arm64"
ARCHITECTURES = (AMD64, ARM64)
DOCKER_HUB = "docker.io"

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = (
    r"(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
    r"(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
_NAME = re.compile(
    rf"(?P<repository>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_SUFFIX = re.compile(r"(?:^|[-_.])(?:linux-)?(?:(?P<amd64>amd64|x86[_-]64)|(?P<arm64>arm64(?:v8)?|aarch64))(?=$|[-_.])")


class Image(Struct, frozen=True):
    """An image's name in full: ``registry`` and ``repository`` are never empty, ``tag`` and ``digest`` may be."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""


@lru_cache(maxsize=4096)
def parse(text: str) -> Image | None:
    """The image that a name stands for; None for what is not a name of an image (``InvalidImageName``)."""
    first, slash, rest = text.partition("/")
    if slash and (any(sign in first for sign in ".:") or first == "localhost" or first != first.lower()):
        registry, path = first, rest
        if not re.fullmatch(_DOMAIN, registry):
            return None
    else:
        registry, path = DOCKER_HUB, text
    found = _NAME.fullmatch(path)
    if found is None or re.fullmatch("[a-f0-9]{64}", text):
        return None
    registry = DOCKER_HUB if registry == "index.docker.io" else registry
    repository = found["repository"]
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Image(registry, repository, found["tag"] or "", found["digest"] or "")


def is_public(image: Image) -> bool:
    """Whether it is known that anybody may pull the image."""
    row = _row(image)
    return row is not None and row["public"] == "yes"


def architectures(image: Image) -> frozenset[str]:
    """The architectures that the image is for, by its name or by what is known of it; empty where nothing is."""
    for part in (image.tag, image.repository):
        named = {name for found in _SUFFIX.finditer(part) for name, text in found.groupdict().items() if text}
        if named:
            return frozenset(named)
    row = _row(image)
    return frozenset(row["architectures"].split()) if row is not None else frozenset()


def _row(image: Image) -> dict[str, str] | None:
    return next((row for row in _rows() if _meets(image, row)), None)


@lru_cache(maxsize=1)
def _rows() -> tuple[dict[str, str], ...]:
    return tuple(tables.rows("images.csv"))


def _meets(image: Image, row: dict[str, str]) -> bool:
    prefix, star, _ = row["repository"].partition("*")
    named = image.repository.startswith(prefix) if star else image.repository == prefix
    if image.registry != row["registry"] or not named:
        return False
    if not row["tag"]:
        return True
    found = re.fullmatch(row["tag"], image.tag)
    if found is None:
        return False
    return not row["version_below"] or _version(found["version"]) < _version(row["version_below"])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))
