"""``scripts/digests.py``: holds the results of runs to what was recorded of them, or records them anew."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from digests import store
from digests.cases import cases
from digests.prints import Record, canonical, difference, record, rounded

PROCESSES = 2


@dataclass(frozen=True)
class Ran:
    """One case: its prints now (None: it raised), how it differs from what is recorded (empty: it does not), and CPU
    seconds."""

    name: str
    record: Record | None
    differs: str
    cpu_s: float


def main(arguments: list[str]) -> int:
    """Exit code 1 when a result is not as recorded, is not recorded or cannot be had; 2 when a pattern names no case."""
    given = _parser().parse_args(arguments)
    chosen = [name for name in cases() if matches(name, given.only)]
    if not chosen:
        print(f"--only {given.only}: no such case; --list shows them", file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(chosen))
        return 0
    ran = _run(chosen, given.dump)
    gone = {name for name in store.recorded() if matches(name, given.only)} - set(chosen)
    if given.write:
        store.write({one.name: one.record for one in ran if one.record is not None})
        store.forget(gone)
    return _say(ran, gone, written=given.write)


def matches(name: str, only: str) -> bool:
    """Whether a pattern means the case: empty, a part of its name, or a glob for all of it."""
    return only in name or fnmatch.fnmatchcase(name, only)


def run(name: str, dump: Path | None = None) -> Ran:
    """Run one case. With ``dump`` what came out is written below it."""
    begin = time.process_time()
    try:
        value = rounded(cases()[name]())
    except Exception as error:  # one that breaks hides no other
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        return Ran(name, None, f"it raised {said}", time.process_time() - begin)
    known = store.read(name)
    found = difference(known, value) if known is not None else "nothing is recorded"
    now = known if known is not None and not found else record(value)
    if dump is not None:
        path = dump / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(canonical(value) + "\n", encoding="utf-8")
    return Ran(name, now, str(found or ""), time.process_time() - begin)


def _run(names: list[str], dump: Path | None) -> list[Ran]:
    """All of them, in two processes, with a line for each that differs as soon as it is known."""
    ran = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for one in pool.map(partial(run, dump=dump), names):
            ran.append(one)
            if one.differs:
                print(f"{one.name}: {one.differs}", flush=True)
    return ran


def _say(ran: list[Ran], gone: set[str], *, written: bool) -> int:
    changed = [one.name for one in ran if one.differs]
    for name in sorted(gone):
        print(f"{name}: recorded, and there is no such case any more")
    seconds = sum(one.cpu_s for one in ran)
    print(f"{len(ran)} cases, {len(changed)} not as recorded, {seconds:.0f} CPU seconds")
    if written:
        print(f"recorded in {store.FOLDER}")
        return 1 if any(one.record is None for one in ran) else 0
    if changed or gone:
        print("If that is meant: scripts/digests.py --write --only PATTERN; --dump DIR writes results for a diff")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/digests.py", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare with what is recorded (the default)")
    what.add_argument("--write", action="store_true", help="record anew")
    what.add_argument("--list", action="store_true", help="the names of the cases, and run nothing")
    parser.add_argument("--only", default="", help="cases with this in their names, such as traffic-surge, or a glob")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write every result as JSON below this folder")
    return parser
