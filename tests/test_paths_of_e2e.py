"""What is marked as an end-to-end test is played by `make e2e`."""

from __future__ import annotations

import re
from pathlib import Path

from e2e.__main__ import PATHS

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"pytest\.mark\.e2e\b")


def test_no_end_to_end_test_stands_where_nobody_plays_it() -> None:
    marked = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if MARKED.search(path.read_text())}
    marked.discard(Path(__file__).relative_to(ROOT))
    assert len(marked) >= 3
    assert not [str(path) for path in sorted(marked) if not any(path.is_relative_to(folder) for folder in PATHS)]
