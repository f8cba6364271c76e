"""What a policy asks for and `tonnage up` does not do is said at its start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tonnage.cli.up import not_followed
from tonnage.simulation import scenario

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_layouts_that_follow_the_load_are_followed() -> None:
    made = scenario.load(EXAMPLES / "mig-day-night")
    assert list(not_followed(made.policy("relayout"))) == []
    assert list(not_followed(made.policy("static"))) == []


def test_pods_that_are_moved_to_make_room_are_said_not_to_be() -> None:
    policy = scenario.load(EXAMPLES / "mig-day-night").policy("static")
    (said,) = not_followed(msgspec.structs.replace(policy, defragmentation=True))
    assert "defragmentation is not followed here" in said
