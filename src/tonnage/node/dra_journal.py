"""The driver's memory of claims: a file that says what was begun, before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tonnage.errors import InputError
from tonnage.node.dra_claims import ENDING, PREPARED, STARTED, ClaimRecord
from tonnage.node.whole_files import write_whole

_HINT = "look at the claims and MIG instances of this node, then remove the file"


class JournalFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: claims by UID. ``version``: of its form."""

    claims: tuple[ClaimRecord, ...]
    version: int = 1


class ClaimJournal:
    """Raises InputError for a file that is not ours, and where it cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = {one.uid: one for one in _read(path)}

    def records(self) -> tuple[ClaimRecord, ...]:
        """All claims, by UID."""
        return tuple(self._records[uid] for uid in sorted(self._records))

    def get(self, uid: str) -> ClaimRecord | None:
        return self._records.get(uid)

    def put(self, record: ClaimRecord) -> None:
        """Note a claim; it is on the disk when this returns."""
        self._write({**self._records, record.uid: record})

    def remove(self, uid: str) -> None:
        """Forget a claim."""
        self._write({known: one for known, one in self._records.items() if known != uid})

    def _write(self, records: dict[str, ClaimRecord]) -> None:
        content = msgspec.json.encode(JournalFile(tuple(records[uid] for uid in sorted(records))))
        try:
            write_whole(self.path, content)
        except OSError as error:
            message = f"claims cannot be noted in it: {error.strerror}"
            raise InputError.at(message, file=str(self.path), hint="name a folder that can be written") from error
        self._records = records


def _read(path: Path) -> Iterable[ClaimRecord]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=JournalFile)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError.at(f"not the claims of this driver: {why}", file=str(path), hint=_HINT) from error
    stages = {one.stage for one in found.claims} - {STARTED, PREPARED, ENDING}
    if found.version != 1 or stages:
        what = f"version {found.version}" if found.version != 1 else f"stage {min(stages)!r}"
        raise InputError.at(f"not the claims of this driver: {what} is not known", file=str(path), hint=_HINT)
    return found.claims
