"""For all tests: parameter ids that do not depend on the hash seed, so that parallel workers agree on what there is to run;
long files first, so that no worker ends with one; and of two workers one collects from the end, so that each file is
compiled by one of them."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deep_seeds import FIRST, SHARE, examples, first_seed, left_out

settings.register_profile(
    "shared machine", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")  # how fast examples are drawn says more of the machine than of the test


WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
"""Its name, as gw0; empty where there is one process alone."""
BACKWARDS = WORKER[2:].isdecimal() and int(WORKER[2:]) % 2 == 1

gc.disable()  # until all is collected: what comes is kept, and looked at once, in pytest_collection_finish


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """A set is shown in order."""
    if isinstance(val, set | frozenset):
        return "{" + ", ".join(sorted(map(repr, val))) + "}"
    return None


def pytest_configure() -> None:
    """The same seed for all workers, whenever each of them looks; and no defaults of whoever runs the tests."""
    os.environ["TONNAGE_CONFIG"] = ""
    os.environ.setdefault(FIRST, str(first_seed()))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Where nothing is compiled yet, asserts and all, that is more than half of collecting: it is shared out."""
    report = yield
    if BACKWARDS and isinstance(collector, pytest.Directory) and report.passed:
        report.result.reverse()
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests beside a peer come first, then those with other slow tests, then the others, as they stood
    (as the names of their paths are ordered). What is not in a short run's share is left out."""
    if SHARE < 1 and (out := left_out(items)):
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]
    weight: dict[Path, int] = {}
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        weight[item.path] = max(weight.get(item.path, 0), slow + (slow and item.get_closest_marker("peer") is not None))
    if WORKER:
        items.sort(key=lambda item: item.path.parts)
    items.sort(key=lambda item: -weight[item.path])


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How to see the same again."""
    if SHARE < 1:
        terminalreporter.write_line(
            f"a share of {SHARE:.2f} of what is in make fuzz alone, drawn by {FIRST}={first_seed()}"
        )
