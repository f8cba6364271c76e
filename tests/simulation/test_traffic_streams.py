"""Named random streams."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tonnage.rng import Streams


def test_a_stream_gives_the_same_numbers_whatever_else_is_drawn() -> None:
    alone, beside = Streams(7), Streams(7)
    beside.get("arrivals/b").random(1000)
    beside.python("arrivals/a").random()
    assert alone.get("arrivals/a").random(5).tolist() == beside.get("arrivals/a").random(5).tolist()


def test_a_stream_goes_on_where_it_stopped() -> None:
    in_two, at_once = Streams(7), Streams(7)
    drawn = [*in_two.get("a").random(2), *in_two.get("a").random(3)]
    assert drawn == at_once.get("a").random(5).tolist()


@pytest.mark.parametrize(("seed", "name"), [(8, "a"), (7, "b"), (-7, "a")])
def test_another_seed_or_name_gives_other_numbers(seed: int, name: str) -> None:
    assert Streams(seed).get(name).random() != Streams(7).get("a").random()
    assert Streams(seed).python(name).random() != Streams(7).python("a").random()


def test_the_numbers_are_those_of_every_release() -> None:
    streams = Streams(42)
    assert streams.get("arrivals/chat").integers(0, 1000, 5).tolist() == [87, 7, 95, 472, 675]
    assert [streams.python("arrivals/chat").randrange(1000) for _ in range(5)] == [208, 399, 348, 450, 421]


def test_importing_the_streams_does_not_import_numpy() -> None:
    code = "import sys, tonnage.rng as r; r.Streams(1).python('a').random(); print('numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
