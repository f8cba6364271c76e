"""What every benchmark has in common: how it is asked, what it measures itself by, how it answers."""

from __future__ import annotations

import json
import operator
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Options:
    """``quick``: the same measurement on less. ``data``: the folder of public traces, None when absent. ``own``: the
    options that one benchmark has, by name."""

    quick: bool
    data: Path | None
    own: Mapping[str, str] = field(default_factory=dict)


Kind = Literal["result", "cost"]
"""*result*: what comes out is right, on any machine. *cost*: seconds, rates, memory and ratios of them, which a busy
machine changes."""


@dataclass(frozen=True)
class Bar:
    """A claim: ``value op limit``, in ``unit``. ``reached``: of a limit that is known to be missed, what may not get
    worse."""

    id: str
    value: float
    op: str
    limit: float
    unit: str
    kind: Kind
    reached: float | None = None

    @property
    def holds(self) -> bool:
        return self._is(self.limit)

    @property
    def as_known(self) -> bool:
        """Whether it misses its limit by no more than it did."""
        return not self.holds and self.reached is not None and self._is(self.reached)

    def _is(self, limit: float) -> bool:
        compare = {"<": operator.lt, "<=": operator.le, ">=": operator.ge, "==": operator.eq}[self.op]
        return bool(compare(self.value, limit))


@dataclass
class Report:
    """Rows to print, bars to judge, notes to say."""

    name: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, **cells: Any) -> None:
        self.rows.append(cells)

    def bar(
        self, id: str, value: float, op: str, limit: float, unit: str, kind: Kind, reached: float | None = None
    ) -> None:
        self.bars.append(Bar(id, value, op, limit, unit, kind, reached))

    def missed(self, quick: bool) -> list[Bar]:
        """The bars that decide and do not hold: all kinds, but a ``quick`` look judges no costs, and of known misses
        only whether they got worse."""
        return [bar for bar in self.bars if not bar.holds and not (quick and (bar.kind == "cost" or bar.as_known))]

    def print(self, as_json: bool, quick: bool) -> None:
        """The table and the bars; with ``as_json`` the last line is one JSON object. A bar that does not hold FAILS;
        where that decides nothing it is slow, or a known miss."""
        missed = self.missed(quick)
        shown = [[_cell(row.get(c, "")) for c in self.columns] for row in self.rows]
        widths = [max(len(c), *(len(r[i]) for r in shown)) if shown else len(c) for i, c in enumerate(self.columns)]
        print(self.name)
        print("  " + "  ".join(c.ljust(w) for c, w in zip(self.columns, widths, strict=True)))
        for row in shown:
            print("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)))
        for note in self.notes:
            print(f"  note: {note}")
        for bar in self.bars:
            verdict = "holds" if bar.holds else "FAILS" if bar in missed else "known" if bar.as_known else "slow "
            print(f"  {verdict}  {bar.kind}  {bar.id}: {_cell(bar.value)} {bar.unit} ({bar.op} {_cell(bar.limit)})")
        if as_json:
            bars = [{**bar.__dict__, "holds": bar.holds} for bar in self.bars]
            print(json.dumps({"name": self.name, "machine": machine(), "rows": self.rows, "bars": bars}))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> dict[str, Any]:
    """Where this ran."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """(best wall seconds, last result) of ``repeat`` runs."""
    best, result = float("inf"), None
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def peak_memory_gib() -> float:
    """The most memory that this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def in_process(module: str, function: str, *arguments: str) -> Any:
    """The JSON result of ``module.function(*arguments)`` in a fresh Python, so that peak memory is its own."""
    code = f"import json, sys; from {module} import {function}; print(json.dumps({function}(*sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def data_folder(given: str | None) -> Path | None:
    """The public data: as given, from TONNAGE_DATA, or ../shared/data; None when there is none."""
    candidates = [given, os.environ.get("TONNAGE_DATA"), str(ROOT.parent / "shared" / "data")]
    for candidate in candidates:
        folders = [Path(candidate) / part for part in ("traces", "openb", "silicon")] if candidate else []
        if candidate and (any(one.is_dir() for one in folders) or any(Path(candidate).glob("openb_*.csv*"))):
            return Path(candidate)
    return None
