"""For all tests: parameter ids that do not depend on the hash seed, so that parallel workers agree on what there is to run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")  # how fast examples are drawn says more of the machine than of the test


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """A set is shown in order."""
    if isinstance(val, set | frozenset):
        return "{" + ", ".join(sorted(map(repr, val))) + "}"
    return None
