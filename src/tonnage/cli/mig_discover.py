"""`tonnage mig discover`: what the cards of this machine say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, terminal
from tonnage.cli.meter import meter
from tonnage.cli.mig_plan import QUIET
from tonnage.cli.options import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.node.discover import Discovered


@click.command()
@OUTPUT
@QUIET
def discover(output: str, quiet: bool) -> None:
    """Read this machine's cards through NVML: MIG mode, profiles, places, instances; and where the table is wrong.

    Nothing is changed. Driver 580 lists profiles with MIG off, 535 did not. Exit code 2 when there is no driver.

    \b
    tonnage mig discover
    """
    from tonnage.node import discover as found
    from tonnage.node import nvml

    with meter(1, "read the cards", quiet=quiet) as done, nvml.Library() as library:
        driver, cards = library.driver(), found.discover(library)
        done(1)
    show(driver, cards, output)


def show(driver: str, cards: Sequence[Discovered], output: str) -> None:
    """Print what was found."""
    if output != "table":
        answers.show(msgspec.json.encode(answer(driver, cards)), output)
        return
    terminal.echo(f"driver {driver}, {len(cards)} GPUs")
    for one in cards:
        terminal.echo()
        _table(one)


def answer(driver: str, cards: Sequence[Discovered]) -> dict[str, Any]:
    """The JSON of what was found."""
    return {"schema": "tonnage.dev/mig-discover/v1", "driver": driver, "cards": [_card(one) for one in cards]}


def _card(one: Discovered) -> dict[str, Any]:
    return {
        "index": one.index,
        "name": one.name,
        "uuid": one.uuid,
        "device_id": f"0x{one.device_id:08X}",
        "gpu": one.gpu or None,
        "memory_mib": one.memory_mib,
        "mig": None if one.mode is None else {"on": one.mode[0], "pending": one.mode[1]},
        "profiles": [
            {
                "name": p.profile.name,
                "id": p.info.id,
                "compute_slices": p.profile.compute_slices,
                "memory_slices": p.profile.memory_slices,
                "starts": list(p.profile.starts),
                "starts_from": "card" if p.placed else "table",
                "max_instances": p.info.instances,
                "sms": p.info.sms,
                "memory_mib": p.info.memory_mib,
                "copy_engines": p.info.copy_engines,
                "decoders": p.info.decoders,
                "encoders": p.info.encoders,
                "jpegs": p.info.jpegs,
                "ofas": p.info.ofas,
            }
            for p in one.profiles
        ],
        "instances": [
            {"profile": name, "id": there.id, "start": there.start, "size": there.size} for name, there in one.instances
        ],
        "differences": [
            {"profile": d.profile, "field": d.field, "table": d.table or None, "card": d.card or None}
            for d in one.differences
        ],
    }


def _table(one: Discovered) -> None:
    called = f" ({one.gpu})" if one.gpu else " (not in the tables)"
    terminal.echo(f"GPU {one.index}: {one.name}{called}, {one.memory_mib} MiB, {_mode(one.mode)}")
    if not one.profiles:
        terminal.echo("  the driver lists no MIG profiles")
        return
    terminal.echo("  profile       id  SMs      MiB  CE  dec  jpeg  ofa  places")
    for p in one.profiles:
        starts = "{" + ",".join(map(str, p.profile.starts)) + "}" if p.profile.starts else "?"
        places = f"{starts}:{p.profile.memory_slices}" + ("" if p.placed else " (table)")
        terminal.echo(
            f"  {p.profile.name:<12} {p.info.id:>3} {p.info.sms:>4} {p.info.memory_mib:>8} {p.info.copy_engines:>3} "
            f"{p.info.decoders:>4} {p.info.jpegs:>5} {p.info.ofas:>4}  {places}"
        )
    for name, there in one.instances:
        terminal.echo(f"  instance {there.id}: {name} at memory slice {there.start}")
    if not one.differences:
        terminal.echo("  as in the table" if one.gpu else "  nothing to compare with")
    for d in one.differences:
        terminal.echo(f"  {d.profile}: {d.field} is {d.card or 'not there'}, in the table {d.table or 'not there'}")


def _mode(mode: tuple[bool, bool] | None) -> str:
    if mode is None:
        return "no MIG"
    on, pending = mode
    said = "MIG on" if on else "MIG off"
    return said if on == pending else f"{said}, {'on' if pending else 'off'} after a reset"
