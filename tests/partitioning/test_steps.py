"""Re-layouts that are interrupted anywhere and go on: no overlap, nothing in use lost, the wanted or the old layout."""

from __future__ import annotations

import random

import pytest

from tonnage.partitioning.fit import fits
from tonnage.partitioning.layouts import Layout, Placement, card, feasible, mask_of, profile_names
from tonnage.partitioning.relayout import Change, Step, relayout
from tonnage.partitioning.steps import Journal, TurnBack, Waiting, next_step

H100 = card("h100")
KINDS = list(feasible(H100, profile_names(H100, plain=False)).items())
HALVES = (Placement(0, "3g.40gb"), Placement(4, "3g.40gb"))
QUARTERS = (Placement(0, "2g.20gb"), Placement(2, "2g.20gb"), Placement(4, "3g.40gb"))


class Card:
    """A card whose driver may refuse, and whose instances others may begin to use at any moment."""

    def __init__(self, there: Layout, rng: random.Random) -> None:
        self.there, self.busy, self.rng = list(there), set[Placement](), rng

    def use(self) -> None:
        """Somebody begins, or stops, to use an instance."""
        for one in self.there:
            if self.rng.random() < 0.08:
                self.busy ^= {one}

    def do(self, step: Step) -> bool:
        """Carry out a step. Destroying what is in use, or making what overlaps, is an error of the caller."""
        if step.action == "destroy":
            assert step.placement not in self.busy
            self.there.remove(step.placement)
        elif self.rng.random() < 0.1:
            return False
        else:
            self.there.append(step.placement)
        mask_of(H100, tuple(self.there))  # raises where instances overlap
        return True


def run(one: Card, journal: Journal) -> Layout:
    """Work through a journal, forgetting everything else after every step; returns the layout in the end."""
    for _ in range(10_000):
        step = next_step(H100, journal, tuple(sorted(one.there)), one.busy)
        if step is None:
            return tuple(sorted(one.there))
        if isinstance(step, TurnBack):
            journal = journal.turned()
        elif isinstance(step, Waiting):
            one.busy -= set(step.instances)
        elif not one.do(step) and not journal.back:
            journal = journal.turned()
        in_use = set(one.busy)
        one.use()
        assert in_use <= set(one.there)
    raise AssertionError("it does not end")


def changes(rng: random.Random) -> Change:
    while True:
        (_, running), (goal, _) = rng.choice(KINDS), rng.choice(KINDS)
        found = relayout(H100, running, [name for name, count in goal for _ in range(count)])
        if isinstance(found, Change):
            return found


def test_whatever_happens_it_ends_in_the_wanted_or_the_old_layout() -> None:
    rng, ends = random.Random(1), {"after": 0, "before": 0}
    for _ in range(3_000):
        change = changes(rng)
        ended = run(Card(change.before, rng), Journal("GPU-0", change.before, change.after))
        assert ended in (change.after, change.before)
        ends["after" if ended == change.after else "before"] += 1
    assert min(ends.values()) > 100


def test_any_sequence_of_making_destroying_and_changing_keeps_what_is_in_use() -> None:
    rng, changed = random.Random(2), 0
    for _ in range(300):
        one = Card((), rng)
        for _ in range(15):
            what, there = rng.choice(("create", "create", "destroy", "change")), tuple(sorted(one.there))
            idle = [instance for instance in there if instance not in one.busy]
            if what == "create":
                place = fits(H100, there, rng.choice(profile_names(H100, plain=False)))
                if place is not None:
                    one.do(Step("create", place))
            elif what == "destroy" and idle:
                one.do(Step("destroy", rng.choice(idle)))
            elif what == "change":
                change = relayout(H100, there, [name for name, n in rng.choice(KINDS)[0] for _ in range(n)], one.busy)
                if isinstance(change, Change):
                    assert one.busy <= set(change.kept)
                    assert run(one, Journal("GPU-0", change.before, change.after)) in (change.after, change.before)
                    changed += bool(change.steps)
            one.use()
            assert one.busy <= set(one.there)
    assert changed > 100


def test_a_step_that_was_done_but_not_noted_is_not_done_again() -> None:
    change = relayout(H100, HALVES, [one.profile for one in QUARTERS])
    assert isinstance(change, Change)
    journal = Journal("GPU-0", change.before, change.after)
    there = list(change.before)
    done = []
    while (step := next_step(H100, journal, tuple(sorted(there)))) is not None:
        assert isinstance(step, Step)
        assert step == next_step(H100, journal, tuple(sorted(there)))
        (there.remove if step.action == "destroy" else there.append)(step.placement)
        done.append(step)
    assert done == list(change.steps)


def test_an_instance_that_came_into_use_turns_the_change_back() -> None:
    journal = Journal("GPU-0", HALVES, QUARTERS)
    assert next_step(H100, journal, HALVES, [HALVES[0]]) == TurnBack((HALVES[0],))
    assert next_step(H100, journal.turned(), HALVES, [HALVES[0]]) is None


def test_turning_back_waits_for_new_instances_that_are_in_use() -> None:
    journal = Journal("GPU-0", HALVES, QUARTERS, back=True)
    there = (QUARTERS[0], QUARTERS[2])
    assert next_step(H100, journal, there, [QUARTERS[0]]) == Waiting((QUARTERS[0],), "in use")
    assert next_step(H100, journal, there) == Step("destroy", QUARTERS[0])
    with pytest.raises(ValueError, match="no way further back"):
        journal.turned()


def test_instances_that_nobody_wrote_down_are_left_alone() -> None:
    stranger = Placement(6, "1g.10gb")
    step = next_step(H100, Journal("GPU-0", (HALVES[0],), QUARTERS[:2]), (HALVES[0], stranger))
    assert step == Waiting((stranger,), "made by somebody else")
