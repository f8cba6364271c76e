"""What a driver publishes, call by call: new generations where devices change, in place where only taints do."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from test_nvidia_devices import NODE, a_card

from deep_seeds import part
from tonnage.dra.features import Features
from tonnage.dra.nvidia import PublishedCard, published, tainted
from tonnage.dra.pools import Slices
from tonnage.dra.publishing import CreateSlice, DeleteSlice, SliceChange, UpdateSlice, changes
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import V1, DeviceTaint, ResourceSlice

BAD = DeviceTaint(key="tonnage.dev/xid-79", value="RESTART_BM", effect="NoSchedule")


class Store:
    """Slices as an API server keeps them."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self._made = 0

    def apply(self, one: SliceChange) -> None:
        match one:
            case CreateSlice(spec=spec):
                self._made += 1
                name = f"slice-{self._made:03}"
                meta = ObjectMeta(name=name)
                self.slices[name] = ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=meta, spec=spec)
            case UpdateSlice(there=there, spec=spec):
                self.slices[there.name] = msgspec.structs.replace(there, spec=spec)
            case DeleteSlice(there=there):
                del self.slices[there.name]

    def publish(self, cards: list[PublishedCard], stop: int | None = None) -> list[SliceChange]:
        """All calls, or so many of them."""
        found = changes(cards, "node-1", list(self.slices.values()))
        for one in found[:stop]:
            self.apply(one)
        return found

    def devices(self) -> list[str] | None:
        """Names of what can be had; None: the pool cannot be used now."""
        pools = Slices(self.slices.values(), Features()).pools(NODE)
        if any(one.unusable for one in pools):
            return None
        return sorted(one.id.device for pool in pools for one in pool.devices)

    def generations(self) -> set[int]:
        return {one.spec.pool.generation for one in self.slices.values()}


def cards(count: int, partitioned: bool = True) -> list[PublishedCard]:
    return [published(a_card(minor=minor, **({} if partitioned else {"partitions": None}))) for minor in range(count)]


def names(of: list[PublishedCard]) -> list[str]:
    return sorted(one.name for card in of for one in card.devices)


def bad(card: PublishedCard) -> PublishedCard:
    return tainted(card, {one.name: [BAD] for one in card.devices})


def test_what_is_published_is_published_once() -> None:
    store = Store()
    assert [type(one) for one in store.publish(cards(4))] == [CreateSlice] * 3
    assert store.devices() == names(cards(4))
    assert store.publish(cards(4)) == []


def test_taints_are_changed_in_place_and_the_pool_stays_usable_at_every_call() -> None:
    store = Store()
    store.publish(cards(8))
    faulty = [bad(card) if at in (0, 7) else card for at, card in enumerate(cards(8))]
    for stop in (1, 1):
        assert [type(one) for one in store.publish(faulty, stop)][:1] == [UpdateSlice]
        assert store.devices() == names(faulty)
    assert store.publish(faulty) == []
    assert store.generations() == {1}
    assert len(store.publish(cards(8))) == 2


def test_the_time_that_the_api_server_puts_into_a_taint_is_no_difference() -> None:
    store = Store()
    store.publish([bad(one) for one in cards(1)])
    stamped = msgspec.structs.replace(BAD, time_added="2026-01-01T00:00:00Z")
    for name, one in store.slices.items():
        devices = [msgspec.structs.replace(each, taints=[stamped]) for each in one.spec.devices]
        spec = msgspec.structs.replace(one.spec, devices=devices)
        store.slices[name] = msgspec.structs.replace(one, spec=spec)
    assert store.publish([bad(one) for one in cards(1)]) == []


def test_other_devices_are_a_new_generation_and_half_of_it_is_never_had() -> None:
    store = Store()
    store.publish(cards(8, partitioned=False))
    found = store.publish(cards(8), 0)
    assert [type(one) for one in found] == [UpdateSlice, *[CreateSlice] * 4]
    for one in found[:-1]:
        store.apply(one)
        assert store.devices() is None
    store.apply(found[-1])
    assert store.devices() == names(cards(8))
    assert store.generations() == {2}


def test_no_gpus_leave_no_slices_and_slices_of_other_pools_go() -> None:
    store = Store()
    store.publish(cards(8))
    foreign = next(iter(store.slices.values()))
    pool = msgspec.structs.replace(foreign.spec.pool, name="old-name")
    other = msgspec.structs.replace(foreign, spec=msgspec.structs.replace(foreign.spec, pool=pool))
    other = other.renamed(name="other")
    store.slices["other"] = other
    assert store.publish(cards(8)) == [DeleteSlice(other)]
    assert {type(one) for one in store.publish([])} == {DeleteSlice}
    assert store.slices == {}


@pytest.mark.parametrize("seed", part(range(60)))
def test_whatever_is_cut_off_or_tampered_with_the_next_calls_put_it_right(seed: int) -> None:
    rng = Random(seed)
    store = Store()
    for _ in range(12):
        wanted = cards(rng.choice([1, 2, 4, 8, 9]), rng.random() < 0.8)
        wanted = [bad(card) if rng.random() < 0.3 else card for card in wanted]
        whole = changes(wanted, "node-1", list(store.slices.values()))
        store.publish(wanted, rng.randint(0, len(whole)))
        found = store.devices()
        if rng.random() < 0.3 and store.slices:
            del store.slices[rng.choice(sorted(store.slices))]
        else:
            assert found is None or set(found) in _states(wanted)
        for _ in range(2):
            store.publish(wanted)
        assert store.devices() == names(wanted)
        assert store.publish(wanted) == []
        assert len(store.generations()) == 1


def _states(wanted: list[PublishedCard]) -> list[set[str]]:
    """What may be had: what is wanted, or what was there before; never a mixture."""
    every = [cards(count, kind) for count in (1, 2, 4, 8, 9) for kind in (True, False)]
    return [set(names(wanted)), set(), *({*names(one)} for one in every)]
