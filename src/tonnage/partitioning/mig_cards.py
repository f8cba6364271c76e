"""What a mig-parted configuration makes on which card, and why not: its device ids are looked up, its instances placed.

mig-parted itself gives no places: it tries orders of creation until the driver accepts one (NVIDIA/mig-parted
pkg/mig/config), so a set of instances can be made if and only if places for all of them exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tonnage.errors import InputError, Problem
from tonnage.facts import mig, mig_devices, names
from tonnage.fleet.compute import divided
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, card, kind_of, place, resource
from tonnage.partitioning.mig_parted import DeviceId, Entry, Spec
from tonnage.partitioning.refusals import why_not


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """What one entry makes on each card of a GPU model. ``layout``: None where MIG is off; empty: on, no instance.

    ``gpu`` is empty where an entry without a filter and instances is for every GPU. ``cards``: the boards by name."""

    entry: int
    gpu: str
    layout: Layout | None
    cards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedLayout:
    """A layout that the GPU model cannot have: why, and the largest part of it that can be, drawn."""

    entry: int
    gpu: str
    why: str
    map: tuple[str, ...] = ()


@dataclass(slots=True)
class ConfigResult:
    """One named configuration: ``made`` and ``refused`` by entry and GPU; ``problems`` make it unusable, ``notes`` are
    good to know."""

    name: str
    made: list[EntryLayout] = field(default_factory=list)
    refused: list[RefusedLayout] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


def outcomes(spec: Spec, gpu: str = "") -> list[ConfigResult]:
    """What each configuration makes. ``gpu``: on this GPU model alone; a configuration for others makes nothing.

    Raises InputError for an unknown GPU."""
    on = card(gpu).gpu if gpu else ""
    return [_outcome(spec, name, entries, on) for name, entries in spec.configs.items()]


def canonical(on: Geometry, profiles: Iterable[str]) -> tuple[list[str], list[str]]:
    """(names of the card's table, those that the card has not). Names of early boards and other drivers are known."""
    known, unknown = [], []
    others = mig_devices.other_names(on.gpu)
    own = {one.name for one in (*mig.profiles(on.gpu, plain=False), *mig.compute_profiles(on.gpu))}
    for name in profiles:
        part, dot, whole = name.lower().rpartition("c.")
        plain = part + dot + others.get(whole, whole)
        if plain in own:
            known.append(plain)
        else:
            unknown.append(name)
    return known, unknown


def _outcome(spec: Spec, name: str, entries: Sequence[Entry], gpu: str) -> ConfigResult:
    found = ConfigResult(name)
    for number, entry in enumerate(entries):
        if entry.filters:
            _filtered(spec, found, number, entry, gpu)
        elif entry.profiles:
            _for_all(spec, found, number, entry, gpu)
        else:
            found.made.append(EntryLayout(number, gpu, () if entry.mig_enabled else None))
        for earlier, other in enumerate(entries[:number]):
            if entry.overlaps(other):
                line = spec.where(name, earlier).line
                message = f"a GPU can match entry {earlier} too{f', at line {line}' if line else ''}"
                hint = "mig-parted applies both in turn: the later stays"
                found.notes.append(Problem(spec.where(name, number), message, hint))
    return found


def _filtered(spec: Spec, found: ConfigResult, number: int, entry: Entry, gpu: str) -> None:
    """An entry for some device ids: each has to be able to hold it."""
    listed = isinstance(entry.device_filter, list)
    boards: dict[str, list[str]] = {}
    for index, one in enumerate(entry.ids):
        board = mig_devices.by_id().get(one.device)
        where = spec.where(found.name, number, f"device-filter[{index}]" if listed else "device-filter")
        if board is None:
            found.notes.append(Problem(where, f"no GPU with id {one} is known here", _near(one)))
        elif not gpu or board.gpu == gpu:
            boards.setdefault(board.gpu, []).append(board.card)
    for model, cards in boards.items():
        if not entry.profiles:
            found.made.append(EntryLayout(number, model, () if entry.mig_enabled else None, tuple(cards)))
            continue
        refused = _placed(found, number, entry, model, tuple(cards))
        if refused is not None:
            found.problems.append(_problem(spec, found.name, number, entry, refused))


def _for_all(spec: Spec, found: ConfigResult, number: int, entry: Entry, gpu: str) -> None:
    """An entry for whatever GPU is there: it is for those models that have all its profiles."""
    models = mig.with_profiles()
    able = [model for model in models if not canonical(card(model), entry.profiles)[1]]
    if not able:
        found.problems += list(_unknown(spec, found.name, number, entry, models))
        return
    able = [model for model in able if model == gpu] if gpu else able
    if not able:
        return
    refused = [one for model in able if (one := _placed(found, number, entry, model, ())) is not None]
    if len(refused) == len(able):
        found.problems.append(_problem(spec, found.name, number, entry, refused[0]))
    else:
        hint = "a device-filter keeps it off such cards"
        where = spec.where(found.name, number, "mig-devices")
        found.notes += [Problem(where, f"not on {one.gpu}: {one.why}", hint) for one in refused]


def _placed(found: ConfigResult, number: int, entry: Entry, model: str, cards: tuple[str, ...]) -> RefusedLayout | None:
    """Note what the entry makes on a model, or why it cannot."""
    made = try_on(card(model), number, entry.profiles)
    if isinstance(made, RefusedLayout):
        found.refused.append(made)
        return made
    found.made.append(EntryLayout(number, model, made, cards))
    return None


def try_on(on: Geometry, entry: int, profiles: Sequence[str]) -> Layout | RefusedLayout:
    """The layout with these profiles on a card, or why entry number ``entry`` cannot have it there."""
    known, unknown = canonical(on, profiles)
    if unknown:
        near = names.near(unknown[0], [one.name for one in mig.profiles(on.gpu, plain=False)])
        guess = f", did you mean {' or '.join(near)}?" if near else ""
        return RefusedLayout(entry, on.gpu, f"it has no profile {unknown[0]}{guess}")
    layout = place(on, known)
    if layout is not None:
        return layout
    whole, shared = divided(on, (resource(on, one) for one in known))
    held = [on.named(one).name for one in (*whole, *(one.resource for one in shared))]
    why, drawn = why_not(on, held)
    if shared:
        needed = ", ".join(
            f"{n} x {name}" for name, n in Counter(on.named(one.resource).name for one in shared).items()
        )
        why = f"its compute instances need {needed}; {why}"
    return RefusedLayout(entry, on.gpu, why, drawn)


def _problem(spec: Spec, name: str, number: int, entry: Entry, refused: RefusedLayout) -> Problem:
    wanted = ", ".join(f"{count} x {one}" if count > 1 else one for one, count in (entry.mig_devices or {}).items())
    message = f"{refused.gpu} cannot hold {wanted}: {refused.why}"
    return Problem(
        spec.where(name, number, "mig-devices"), message, f"what it can hold: tonnage mig layouts {refused.gpu}"
    )


def _unknown(spec: Spec, name: str, number: int, entry: Entry, models: Sequence[str]) -> Iterator[Problem]:
    """Profiles that no model has, else that they are not of one model."""
    has = {one.name for model in models for one in (*mig.profiles(model, plain=False), *mig.compute_profiles(model))}
    has |= {other for model in models for other in mig_devices.other_names(model)}
    missing = [one for one in dict.fromkeys(entry.profiles) if one.lower() not in has]
    for one in missing:
        where = spec.where(name, number, f"mig-devices.{one}")
        error = names.unknown("MIG profile", one, has, where=where, hint="no GPU has one like it")
        yield from error.problems
    if not missing:
        message = f"no GPU has all of {', '.join(dict.fromkeys(entry.profiles))}"
        yield Problem(
            spec.where(name, number, "mig-devices"), message, "one entry for each model, with a device-filter"
        )


def _near(one: DeviceId) -> str:
    known = [board.filter for board in mig_devices.all()]
    near = names.near(str(DeviceId(one.device, one.vendor)), known)
    return f"is it {' or '.join(near)}?" if near else "what it makes there cannot be said"


def spec_of(layouts: Iterable[tuple[str, str, Sequence[str] | None, str | list[int]]]) -> Spec:
    """A file for (configuration, GPU, profiles, devices): an entry each, for the device ids of the GPU. ``profiles``:
    None: MIG off; empty: on, without instances. ``devices``: ``all`` or indices.

    Raises InputError for a GPU without MIG, one whose ids are not known, a profile that it has not."""
    configs: dict[str, tuple[Entry, ...]] = {}
    for name, gpu, profiles, devices in layouts:
        on = card(gpu)
        ids = [board.filter for board in mig_devices.of(on.gpu)]
        if not ids:
            raise InputError.at(f"no PCI device id of {on.gpu} is known", hint="write the entry by hand")
        counts = None if profiles is None else dict(kind_of(on, profiles))
        made = Entry(devices, profiles is not None, ids[0] if len(ids) == 1 else ids, counts)
        configs[name] = (*configs.get(name, ()), made)
    return Spec(configs)


def known_configs() -> Spec:
    """The configurations that mig-parted's own file has, made from the tables of profiles: ``all-disabled``,
    ``all-enabled``, ``all-PROFILE`` with as many as fit, ``all-balanced`` with 2 x 1g, 2g and 3g (2 x 1g and 2g where a
    card has four slices). Entries with one layout need no filter where all that have the profile agree."""
    configs: dict[str, tuple[Entry, ...]] = {
        "all-disabled": (Entry("all", False),),
        "all-enabled": (Entry("all", True, mig_devices={}),),
    }
    counts: dict[str, dict[int, list[str]]] = {}
    for gpu in mig.with_profiles():
        for one in mig.profiles(gpu, plain=False):
            ids = [board.filter for board in mig_devices.of(gpu)]
            counts.setdefault(one.name, {}).setdefault(one.max_instances, []).extend(ids)
    for name, by_count in counts.items():
        entries = (
            Entry("all", True, ids if len(by_count) > 1 else "", {name: count}) for count, ids in by_count.items()
        )
        configs[f"all-{name.replace('+', '.')}"] = tuple(entries)
    configs["all-balanced"] = tuple(_balanced())
    return Spec(configs)


def _balanced() -> Iterator[Entry]:
    grouped: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for gpu in mig.with_profiles():
        plain = {(one.compute_slices, one.memory_slices): one for one in mig.profiles(gpu)}
        small, two = plain[1, 1], plain[2, 2]
        layout = [(small.name, 2), (two.name, 1)]
        if (3, 4) in plain:
            layout.append((plain[3, 4].name, 1))
        grouped.setdefault(tuple(layout), []).extend(board.filter for board in mig_devices.of(gpu))
    for wanted, ids in grouped.items():
        yield Entry("all", True, ids, dict(wanted))
