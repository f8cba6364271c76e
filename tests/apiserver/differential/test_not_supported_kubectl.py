"""What kubectl cannot do on the embedded API is said to be so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from differential_checks import Side, not_supported

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def running(embedded: Side) -> Iterator[Side]:
    """The embedded API with a pod that runs."""
    embedded.run("kubectl apply -f nodes.yaml -f pod.yaml")
    embedded.play("run-pods")
    yield embedded
    embedded.run("kubectl delete pod alone --now --wait=false")
    embedded.play("stop-pods")


@pytest.mark.parametrize("command", not_supported(), ids=lambda command: command["run"])
def test_what_is_not_supported_is_said_to_be_so(command: dict[str, Any], running: Side) -> None:
    result = running.run(command["run"])
    assert result.code != 0
    assert command.get("says", "not supported here") in result.err, result.err
