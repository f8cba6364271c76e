"""For all tests: parameter ids that do not depend on the hash seed, so that parallel workers agree on what there is to run."""

from __future__ import annotations

import pytest


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """A set is shown in order."""
    if isinstance(val, set | frozenset):
        return "{" + ", ".join(sorted(map(repr, val))) + "}"
    return None
