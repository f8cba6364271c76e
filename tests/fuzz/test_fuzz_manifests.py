"""Manifests with anything in them are read or refused with an InputError, never with another exception."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from fuzz_budget import seeds

from tonnage.errors import InputError
from tonnage.objects import load

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "traffic-surge" / "manifests"
FILES = sorted(FOLDER.rglob("*.yaml"))
WORDS = (
    b": ", b"- ", b"\n", b"---\n", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"!!binary ", b"!!python/none ", b"!x ", b"|", b">",
    b"#", b"\t", b"'", b'"', b"null", b"~", b"true", b".nan", b"-.inf", b"1e999", b"0x1f", b"0o17", b"1_000", b"-1", b"<<: ",
    b"2026-01-01", b"99999999999999999999999", b"\x00", b"\xff\xfe", b"\xe2\x80\xa8", b"? ", b"%YAML 9.9\n", b"12:30:00", b"=",
    b"kind: List\nitems:\n", b"apiVersion: v1\n", b"spec: []\n", b"metadata: 3\n", b"  ", b"\xef\xbb\xbf",
)  # fmt: skip


def mutated(rng: Random, text: bytes) -> bytes:
    """The text with one to six edits: bytes flipped, words put in, pieces and lines cut, doubled or moved."""
    data = bytearray(text)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 5, 30)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.choice(WORDS)
        elif kind == 2:
            data[at:end] = rng.choice(WORDS)
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end]
        else:
            lines = bytes(data).splitlines(keepends=True)
            if lines:
                lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
            data = bytearray(b"".join(lines))
    return bytes(data)


@pytest.mark.fuzz
def test_a_damaged_manifest_is_read_or_refused_with_an_input_error(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    for seed in seeds():
        rng = Random(seed)
        source = rng.choice(FILES)
        data = mutated(rng, source.read_bytes())
        file.write_bytes(data)
        try:
            manifest = load.read([file])
        except InputError as error:
            assert error.problems, f"seed {seed}"
        except Exception as error:
            raise AssertionError(f"seed {seed}, {source.name}: {data!r}") from error
        else:
            assert isinstance(manifest, load.Manifest)
