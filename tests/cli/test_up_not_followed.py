"""What a policy asks for and `tonnage up` does not do is said at its start."""

from __future__ import annotations

from pathlib import Path

from tonnage.cli.up import not_followed
from tonnage.simulation import scenario

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_layouts_that_follow_the_load_are_said_not_to_be_followed() -> None:
    made = scenario.load(EXAMPLES / "mig-day-night")
    (said,) = not_followed(made.policy("relayout"))
    assert "partitioning: relayout is not followed here" in said
    assert list(not_followed(made.policy("static"))) == []
