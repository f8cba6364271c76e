"""Each way to share GPUs, packed: which processes are on which card, and what they get there.

Cards are filled one by one, largest workload first, as long as everybody on the card gets what is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tonnage.errors import InputError
from tonnage.facts import gpus, mig
from tonnage.facts.gpus import Gpu
from tonnage.facts.labels import MIG_CONFIG
from tonnage.partitioning import layouts, leases, mps, turns
from tonnage.partitioning.mps import Isolation
from tonnage.partitioning.share import (
    APART,
    TOGETHER,
    FilledGpus,
    Got,
    InstanceOffer,
    Question,
    SharingWorkload,
    Way,
    cost,
    offers,
)

MOST_SHARERS = mps.MOST_CLIENTS
"""No card is planned for more processes than MPS takes: what contexts cost beyond that is not modelled."""

INTERVAL_S = turns.INTERVALS_S["default"]
_STEPS = 5
_TURNS_A_STEP = 50

Serve = Callable[[tuple[int, ...]], "tuple[Got, ...] | str"]
"""What these workloads, by number, get on one card; or why they cannot be there together."""


def whole(asked: Question) -> Way:
    """A GPU, or MIG instance, for each process."""

    def serve(holds: tuple[int, ...]) -> tuple[Got, ...] | str:
        held = [asked.workloads[i] for i in holds]
        return _enough(asked, held, [Got(held[0].gpu_s, 1.0)]) if len(held) == 1 else "one each"

    return _way(asked, "whole", APART, serve)


def cut(asked: Question) -> Way:
    """MIG: for each workload the smallest profile that is enough."""
    if asked.profile is not None:
        return Way("mig", APART, f"{asked.gpu.name} is a MIG instance already")
    try:
        on = layouts.card(asked.gpu.name)
    except InputError:
        return Way("mig", APART, f"a {asked.gpu.name} has no MIG")
    chosen = []
    for one in asked.workloads:
        fitting = _profile(asked, one)
        if isinstance(fitting, str):
            return Way("mig", APART, fitting)
        chosen.append(fitting)

    def serve(holds: tuple[int, ...]) -> tuple[Got, ...] | str:
        placed = layouts.place(on, [chosen[i].piece for i in holds])
        return "it does not fit" if placed is None else tuple(chosen[i] for i in holds)

    return _way(asked, "mig", APART, serve, MIG_CONFIG)


def _profile(asked: Question, one: SharingWorkload) -> Got | str:
    """What the workload gets of the smallest profile that is enough, or why that of the largest is not."""
    why = ""
    known = mig.profiles(asked.gpu.name)
    for profile in sorted(known, key=lambda one: (one.memory_slices, one.compute_slices)):
        if profile.usable_mib(asked.gpu) < one.memory_mib:
            why = why or f"{one.name} needs more memory than {profile.name} has"
            continue
        slow = one.slowdown(profile.compute_share, profile.memory_share)
        got = Got(one.gpu_s * slow, min(1.0, 1 / (one.load * slow)), profile.name)
        why = asked.refused(one, got)
        if not why:
            return got
        why += f" in {profile.name}"
    return why


def time_slicing(asked: Question) -> Way:
    """NVIDIA's time-slicing: turns of 2 ms, :mod:`tonnage.partitioning.turns`; responses while all are active."""

    def serve(holds: tuple[int, ...]) -> tuple[Got, ...] | str:
        held = [asked.workloads[i] for i in holds]
        if over := _over(asked, held):
            return over
        if len(held) == 1:
            return _enough(asked, held, [Got(held[0].gpu_s, 1.0)])
        useful = INTERVAL_S / (INTERVAL_S + turns.SWITCH_S)
        kept = min(1.0, useful / sum(one.load for one in held))
        interval_s = max(INTERVAL_S, min(one.gpu_s for one in held) / _TURNS_A_STEP)
        found = turns.take_turns(
            [turns.Process(one.gpu_s) for one in held],
            interval_s=interval_s,
            switch_s=turns.SWITCH_S * interval_s / INTERVAL_S,
            steps=_STEPS,
        )
        return _enough(asked, held, [Got(turn.step_s, kept) for turn in found])

    return _way(asked, "time-slicing", TOGETHER, serve, "sharing.timeSlicing")


def lent(asked: Question) -> Way:
    """Fair leases of 250 ms, shares by load: :mod:`tonnage.partitioning.leases`; responses at the worst moment."""

    def serve(holds: tuple[int, ...]) -> tuple[Got, ...] | str:
        held = [asked.workloads[i] for i in holds]
        if over := _over(asked, held):
            return over
        # Shares are held to the granularity, so that is the least to ask for; what is left goes to all.
        shares = [max(leases.GRANULARITY, one.load) for one in held]
        total = max(1.0, sum(shares))
        if min(shares) / total < leases.GRANULARITY:
            return f"more processes than a plan has leases for at {leases.GRANULARITY:.0%} each"
        plan = leases.plan([leases.fair(share / total) for share in shares])
        useful = 1 - turns.SWITCH_S / plan.lease_s if len(held) > 1 else 1.0
        return _enough(
            asked,
            held,
            [
                Got(plan.worst_latency_s(i, one.gpu_s), min(1.0, useful * plan.share(i) / one.load))
                for i, one in enumerate(held)
            ],
        )

    return _way(asked, "leases", TOGETHER, serve, "a scheduler with leases")


def together(asked: Question) -> Way:
    """MPS with the device plugin's default limits: the number of replicas that needs the fewest cards."""
    if asked.profile is not None:
        return Way("mps", mps.ISOLATION, "MPS is refused on MIG")
    most = min(mps.most_clients(asked.gpu.name), sum(one.count for one in asked.workloads))
    found = [_replicas(asked, replicas) for replicas in range(2, most + 1)]
    able = [way for way in found if not way.why]
    if not able:
        return Way("mps", mps.ISOLATION, found[0].why if found else "a single process shares with nobody")
    return min(able, key=lambda way: way.gpus)


def _replicas(asked: Question, replicas: int) -> Way:
    given = mps.limits(asked.gpu.name, replicas)

    def serve(holds: tuple[int, ...]) -> tuple[Got, ...] | str:
        held = [asked.workloads[i] for i in holds]
        large = next((one for one in held if one.memory_mib > given.memory_mib), None)
        if large is not None or len(held) > replicas:
            return f"{large.name} needs more than 1/{replicas} of the memory" if large else "all replicas are taken"
        speeds = mps.divide([mps.MpsClient(one.sms, one.bandwidth, given.percent) for one in held])
        return _enough(
            asked,
            held,
            [
                Got(one.gpu_s / speed, min(1.0, speed / one.load), f"{given.percent}%, {given.memory_mib:,} MiB")
                for one, speed in zip(held, speeds, strict=True)
            ],
        )

    return _way(asked, "mps", mps.ISOLATION, serve, f"sharing.mps, {replicas} replicas")


def smaller(asked: Question) -> Way:
    """For each workload the cheapest GPU that costs less than the one it is on, a card for each process; beside a CPU
    of the same architecture, so that images run."""
    sold = offers(asked.prices)
    here = sold.get(asked.gpu.name.partition(":")[0])
    if here is None:
        return Way("smaller", APART, f"no price of a {asked.gpu.name} is known to compare with")
    each = {name: of[0].hourly / of[0].gpus for name, of in sold.items() if of[0].arch == here[0].arch}
    limit = here[0].hourly / here[0].gpus
    able = sorted((name for name, price in each.items() if price < limit), key=lambda name: (each[name], name))
    cards = []
    for number, one in enumerate(asked.workloads):
        tried = [(name, _on(asked, one, gpus.get(name))) for name in able]
        fitting = next(((name, got) for name, got in tried if isinstance(got, Got)), None)
        if fitting is None:
            return Way("smaller", APART, str(tried[-1][1]) if tried else "no cheaper GPU is known")
        cards.append(FilledGpus(fitting[0], (number,), (fitting[1],), one.count))
    return _priced(asked, "smaller", APART, tuple(cards), "another instance type")


def _on(asked: Question, one: SharingWorkload, gpu: Gpu) -> Got | str:
    """What a workload gets of another GPU, or why that is not enough."""
    if one.memory_mib > gpu.memory_mib:
        return f"{one.name} needs more memory than {gpu.name} has"
    slow = one.slowdown(
        gpu.bf16_flops / asked.gpu.bf16_flops, gpu.bandwidth_bytes_per_s / asked.gpu.bandwidth_bytes_per_s
    )
    got = Got(one.gpu_s * slow, min(1.0, 1 / (one.load * slow)), gpu.name)
    why = asked.refused(one, got)
    return f"{why} on a {gpu.name}" if why else got


WAYS: dict[str, Callable[[Question], Way]] = {
    "whole": whole,
    "mig": cut,
    "time-slicing": time_slicing,
    "leases": lent,
    "mps": together,
    "smaller": smaller,
}
"""By name, in the order in which they are shown."""


def _over(asked: Question, held: Sequence[SharingWorkload]) -> str:
    """Why these cannot take turns on one card, whatever the turns."""
    if sum(one.memory_mib for one in held) > asked.gpu.memory_mib:
        return "their memory is more than the card's"
    if sum(one.load for one in held) * asked.keep > 1:
        return "their load is more than the card's time"
    return "too many processes" if len(held) > MOST_SHARERS else ""


def _enough(asked: Question, held: Sequence[SharingWorkload], got: Sequence[Got]) -> tuple[Got, ...] | str:
    """``got``, or why it is not enough for one of them."""
    reasons = (asked.refused(one, has) for one, has in zip(held, got, strict=True))
    return next(filter(None, reasons), "") or tuple(got)


def _way(asked: Question, name: str, isolation: Isolation, serve: Serve, setting: str = "") -> Way:
    """The workloads packed onto cards."""
    cards = []
    left = [one.count for one in asked.workloads]
    order = sorted(range(len(left)), key=lambda i: (-asked.workloads[i].memory_mib, -asked.workloads[i].load, i))
    while any(left):
        holds, got = _filled(serve, left, order)
        if isinstance(got, str):
            return Way(name, isolation, got)
        times = min(left[i] // holds.count(i) for i in set(holds))
        left = [n - times * holds.count(i) for i, n in enumerate(left)]
        cards.append(FilledGpus(asked.gpu.name, holds, got, times))
    return _priced(asked, name, isolation, tuple(cards), setting)


def _filled(serve: Serve, left: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], tuple[Got, ...] | str]:
    """One card as full as it gets; or why not even one process can be on it."""
    holds: tuple[int, ...] = ()
    got: tuple[Got, ...] | str = ""
    for i in order:
        for _ in range(left[i]):
            more = serve((*holds, i))
            if isinstance(more, str):
                got = got or more
                break
            holds, got = (*holds, i), more
    return holds, got


def _priced(asked: Question, name: str, isolation: Isolation, cards: tuple[FilledGpus, ...], setting: str) -> Way:
    """The way, with what its cards cost and how much of them is used."""
    sold = offers(asked.prices)
    counts = {card.gpu: sum(one.count for one in cards if one.gpu == card.gpu) for card in cards}
    costs = [_cost(asked, sold, gpu, count) for gpu, count in counts.items()]
    known = [one for one in costs if one is not None]
    priced = len(known) == len(costs)
    everything = list(_everything(asked, cards))
    total = sum(counts.values())
    return Way(
        name,
        isolation,
        "",
        setting,
        cards,
        sum(one[0] for one in known) if priced else None,
        sum(one[1] for one in known) if priced else None,
        sum(n * _used(one, got, name) for n, one, got in everything) / total,
        sum(n * one.memory_mib for n, one, _ in everything)
        / sum(n * (asked.gpu if gpu == asked.gpu.name else gpus.get(gpu)).memory_mib for gpu, n in counts.items()),
        max(got.response_s / one.gpu_s for _, one, got in everything),
        min(got.kept for _, _, got in everything),
    )


def _everything(asked: Question, cards: Sequence[FilledGpus]) -> Iterator[tuple[int, SharingWorkload, Got]]:
    """(how many, workload, what each gets)."""
    for card in cards:
        for i, got in zip(card.holds, card.got, strict=True):
            yield card.count, asked.workloads[i], got


def _used(one: SharingWorkload, got: Got, way: str) -> float:
    """The part of its card that a process keeps busy: of the time of a smaller GPU, which needs more of it, and under
    MIG and MPS of the SMs that it fills, beside others."""
    part = {"smaller": got.response_s / one.gpu_s, "mig": one.sms, "mps": one.sms}.get(way, 1.0)
    return one.load * got.kept * part


def _cost(
    asked: Question, sold: Mapping[str, tuple[InstanceOffer, ...]], gpu: str, count: int
) -> tuple[int, int] | None:
    """A MIG instance costs its part of the card, which is bought whole."""
    fraction = asked.profile.max_instances if asked.profile is not None and gpu == asked.gpu.name else 1
    of = sold.get(gpu.partition(":")[0], ())
    bought = cost(of, -(-count // fraction))
    return None if bought is None else (round(count * of[0].hourly / of[0].gpus / fraction), bought[1])
