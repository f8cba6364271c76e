"""Random queues: the default placement never places fewer GPUs, then pods, than any of the policies beside it."""

from __future__ import annotations

import pytest
from fuzz_budget import seeds

from random_queues import check_no_policy_seats_more, random_queue


@pytest.mark.fuzz
def test_no_other_policy_seats_more_of_a_random_queue() -> None:
    for seed in seeds():
        try:
            kinds = {"rules": seed % 4 == 1, "priorities": seed % 4 == 2, "memory": seed % 4 == 3}
            check_no_policy_seats_more(random_queue(seed, **kinds))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
