"""End-to-end tests: `make e2e` runs them in namespaces of their own, with the programs of the cluster built.

Elsewhere each is skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorder import Recorder
from side_by_side import lane_of

from e2e import prerequisites
from e2e.build import Built, built
from e2e.control_plane import ControlPlane, Options
from e2e.real_nodes import RealNodes

HERE = Path(__file__).resolve().parent
GPUS = 4
"""On each real node."""

StartPlane = Callable[..., ControlPlane]


def _why_not() -> str:
    if given := os.environ.get("TONNAGE_E2E_SKIP"):
        return given
    return "" if os.environ.get("TONNAGE_E2E_PRIVATE") else "needs namespaces of its own: run `make e2e`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = _why_not()
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
    if lane := os.environ.get("TONNAGE_E2E_LANE"):
        items[:] = [item for item in items if lane_of(item.path.name) == lane]


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("TONNAGE_E2E_RECORD"):
        config.pluginmanager.register(Recorder(Path(file)))


@pytest.fixture(scope="session")
def programs() -> Built:
    """The programs of the cluster, built."""
    found = built()
    assert found is not None, "`make e2e` builds before it tests; `python -m e2e build` does it alone"
    return found


@pytest.fixture(scope="module")
def start_plane(programs: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPlane]:
    """Starts control planes: ``start_plane(controllers=(), audit=True, …)`` with the fields of Options. They end with
    the module's last test."""
    started: list[ControlPlane] = []

    def start(**options: object) -> ControlPlane:
        plane = ControlPlane(programs, tmp_path_factory.mktemp("plane"), Options(**options))  # type: ignore[arg-type]
        started.append(plane)
        plane.start()
        return plane

    yield start
    for plane in started:
        plane.stop()


@pytest.fixture(scope="module")
def plane(start_plane: StartPlane) -> ControlPlane:
    """A control plane with all controllers and the default scheduler, for the module."""
    return start_plane()


@pytest.fixture(scope="module")
def real_nodes(start_plane: StartPlane) -> Iterator[RealNodes]:
    """Two real nodes with four GPUs each, on a control plane of their own (``real_nodes.plane``)."""
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    names = ["real-0", "real-1"]
    with RealNodes(start_plane(nodes=names), names, GPUS) as nodes:
        yield nodes
