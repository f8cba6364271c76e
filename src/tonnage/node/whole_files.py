"""Files of the agent that are written whole or not at all, and folders that one process owns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tonnage.errors import InputError


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Put ``content`` in place of whatever is there, and on the disk, at once: who reads sees all or nothing, also
    after a crash. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")  # nobody reads what begins with a dot
    with new.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    new.chmod(mode)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def owning(lock: Path, who: str, hint: str) -> Iterator[None]:
    """Be the only ``who`` of this node for the length of a ``with`` block. Raises InputError where another is, and
    where the folder cannot be written."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+")
    except OSError as error:
        what = f"no journal can be kept in it: {error.strerror}"
        raise InputError.at(what, file=str(lock.parent), hint="name a folder that can be written") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError.at(f"another {who} runs on this node", file=str(lock), hint=hint) from error
        yield
