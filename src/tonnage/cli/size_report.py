"""What `tonnage size` prints: a table that fits 80 columns, the memory with its formulas, or everything as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.cli import lines, terminal
from tonnage.facts import instances
from tonnage.inference import memory
from tonnage.inference.sizing import loading, options, plot, point, rules, warnings
from tonnage.units import GIB, MIB, usd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tonnage.facts.price_book import PriceBook
    from tonnage.inference.memory import MemoryPart
    from tonnage.inference.sizing.fit import ReplicaPlan
    from tonnage.inference.sizing.loading import Loading
    from tonnage.inference.sizing.options import ReplicaOffer, SizingOption, SizingResult
    from tonnage.inference.sizing.request import SizingRequest

NEXT_BEST = 3
_DRAWN = 6


def show(
    request: SizingRequest, answer: SizingResult, given: dict[str, Any], notes: tuple[str, ...], book: PriceBook
) -> None:
    """Print the answer."""
    _head(request)
    best = options.shown(answer.options, 1 + NEXT_BEST)
    if not best:
        _nothing(request, answer)
        if given["rule_of_thumb"]:
            _rules(request, book)
        return
    chosen = best[0]
    terminal.echo()
    head = ("  GPU", "x", "instances", "$/h", "spot", "$/Mout", "TTFT", "TPOT")
    lines.show_table([head, *(_row(option, ">" if option is chosen else " ") for option in best)], (0, 2))
    terminal.echo()
    _why(request, answer, chosen)
    _estimate(request, chosen)
    _memory_line(request, chosen)
    load = loading_of(request, chosen, given)
    _start(load, given)
    _owned(chosen)
    _fits(answer)
    if given["gpu_names"]:
        for reason in answer.left_out:
            say(f"Left out: {reason}")
    for warning in warnings.warnings(request, chosen, load, given["startup_probe"]):
        say(f"! {warning.text}")
    for note in notes:
        say(f"note: {note}")
    if given["explain"]:
        _explain(request, chosen, given)
    if given["rule_of_thumb"]:
        _rules(request, book)
    if given["plot"] is not None:
        terminal.echo(f"plot: {given['plot']}")


def drawing(request: SizingRequest, answer: SizingResult) -> str:
    """The SVG of the best options, one a GPU and parallelism."""
    best = options.shown(answer.options, _DRAWN)
    title = f"{request.shape.name} in {request.stored.name}, {request.lengths.source}"
    target = request.targets.tpot_s
    return plot.svg(title, plot.curves(request, best), None if target is None else target * 1000)


def _head(request: SizingRequest) -> None:
    shape, kv = request.shape, request.kv
    size = memory.weight_bytes(shape, request.stored)
    token = shape.kv_bytes_per_token(1) * (kv.kv_bytes or 0) / 1024
    window = f" and a window of {shape.window:,}" if shape.window_layers else ""
    say(
        f"{shape.name}: {shape.params / 1e9:.4g}B parameters in {request.stored.name}, {size / 1e9:.4g} GB; "
        f"KV cache {token:.4g} KiB per token in {kv.name}{window}"
    )
    load = request.load
    flight = f"{load.concurrency:,} requests in flight" if load.concurrency else f"{load.rate:g} requests per second"
    bounds = [
        f"{name} <= {_time(bound)}"
        for name, bound in (("TTFT", request.targets.ttft_s), ("TPOT", request.targets.tpot_s))
        if bound is not None
    ]
    say("; ".join([flight, request.lengths.source, f"context {request.context:,}", *bounds]))


def _row(option: SizingOption, mark: str) -> tuple[str, ...]:
    offer, at = option.best, option.point
    if offer is None:
        where, dollars, spot, million = "no price known", "", "", ""
    else:
        where = _where(offer)
        dollars, million = f"{offer.usd_per_hour:,.2f}", _short(offer.usd_per_million_output)
        spot = "" if offer.spot_usd_per_hour is None else _short(offer.spot_usd_per_hour)
    price = (where, dollars, spot, million)
    return (f"{mark} {label(option.plan)}", str(option.replicas), *price, _time(at.ttft_s), _time(at.tpot_s))


def _why(request: SizingRequest, answer: SizingResult, chosen: SizingOption) -> None:
    met = [option for option in answer.options if option.meets]
    bounded = request.targets.ttft_s is not None or request.targets.tpot_s is not None
    if not chosen.meets:
        if chosen.point.ttft_s is not None:
            flight = f"{chosen.point.concurrency} in flight per replica"
            text = f"{chosen.miss:.1f} times too slow with {flight}"
            say(f"No option meets the targets. > is the closest: {text}.")
        return
    what = "that meet the targets" if bounded else "that fit"
    text = f"> is the cheapest of {len(met)} options {what}"
    others = [option for option in options.shown(answer.options, 2)[1:] if option.best and chosen.best]
    if others and others[0].best and chosen.best and chosen.best.usd_per_hour:
        more = others[0].best.usd_per_hour / chosen.best.usd_per_hour - 1
        text += f"; the next costs {more:.0%} more" if more > 0.005 else "; the next costs the same"
    if bounded and len(met) < len(answer.options):
        text += f"; {len(answer.options) - len(met)} fit but are too slow"
    say(text + ".")


def _estimate(request: SizingRequest, chosen: SizingOption) -> None:
    at = chosen.point
    if at.output_tokens_per_s_band is None:
        say(f"No estimate: {at.reason}")
        return
    flight = f"{at.concurrency} in flight per replica of at most {chosen.plan.sequences}"
    low, high = (end / at.output_tokens_per_s * chosen.output_tokens_per_s for end in at.output_tokens_per_s_band)
    say(
        f"{flight}; {chosen.output_tokens_per_s:,.0f} output tokens per second in all; 90% bands: "
        f"TTFT {_band(at.ttft_band_s)}, TPOT {_band(at.tpot_band_s)}, {low:,.0f} to {high:,.0f} tokens per second"
    )
    for note in at.notes:
        say(f"Estimate: {note}")
    if at.nearest:
        say(
            f"Nearest measured points: {at.nearest[0]}"
            + (f" and {len(at.nearest) - 1} more (-o json)" if len(at.nearest) > 1 else "")
        )


def _memory_line(request: SizingRequest, chosen: SizingOption) -> None:
    found = chosen.plan.memory
    weights = found.bytes_of("weights")
    say(
        f"Each GPU: {found.requested / GIB:.1f} of {found.visible / GIB:.1f} GiB = weights {weights / GIB:.1f} + "
        f"other {(found.used - weights) / GIB:.1f} + KV cache {found.kv_cache / GIB:.1f} GiB, "
        f"{chosen.plan.kv.tokens:,} tokens, {chosen.plan.kv.concurrency(request.context):.2f} x the context"
    )


def _start(load: Loading | None, given: dict[str, Any]) -> None:
    if load is None:
        return
    if load.load_s is None or load.start_s is None or load.start_cached_s is None:
        say(f"Start: the instance has no {load.storage}")
        return
    need = loading.threshold(load.start_s)
    say(
        f"Start from {load.storage} ({(load.bytes_per_s or 0) / 1e6:,.0f} MB/s, limit: {load.limit}): weights "
        f"{load.load_s:.0f} s, ready after {load.start_s:.0f} s, {load.start_cached_s:.0f} with a compile cache; "
        f"startup probe: failureThreshold {need} at 10 s"
    )


def _owned(chosen: SizingOption) -> None:
    owned = chosen.owned
    if owned is None or (chosen.best is not None and chosen.best.source == "own"):
        return
    count = f"{owned.gpus} owned {chosen.plan.card.whole}"
    say(f"{count} would cost ${owned.usd_per_hour:.2f} an hour; --explain says how")


def _fits(answer: SizingResult) -> None:
    for kind, title in (("gpu", "GPUs that fit"), ("mig", "MIG instances"), ("time-slice", "time-sliced shares")):
        least: dict[str, ReplicaPlan] = {}
        for option in answer.options:
            plan = option.plan
            if plan.card.kind == kind and plan.gpus < least.get(plan.card.name, plan).gpus + 1:
                least[plan.card.name] = plan
        if least:
            names = [f"{name} x {plan.gpus}" if plan.gpus > 1 else name for name, plan in sorted(least.items())]
            say(f"{title}: {', '.join(names)}")
    refused = [plan for plan in answer.refused if plan.card.kind == "gpu"]
    if refused:
        say("Too small: " + ", ".join(f"{p.card.name} ({p.short / GIB:.1f} GiB short)" for p in refused))


def _nothing(request: SizingRequest, answer: SizingResult) -> None:
    terminal.echo()
    if not answer.refused:
        say(
            f"No option sustains this load: it takes at least {answer.too_few or 0:,} replicas, and no more than "
            f"{options.MOST_REPLICAS:,} are considered. Use a lower --rate or --concurrency."
        )
        return
    say("Nothing fits. Nearest on each GPU:")
    for plan in answer.refused:
        needed = plan.memory.used + plan.needed
        say(
            f"  {label(plan)}: {needed / GIB:.1f} GiB per GPU with one request of the whole context, "
            f"{plan.memory.requested / GIB:.1f} there"
        )
    say("Use a quantized --precision, a shorter --context, more or larger GPUs (--gpu, --tensor-parallel).")


def _explain(request: SizingRequest, chosen: SizingOption, given: dict[str, Any]) -> None:
    plan = chosen.plan
    terminal.echo()
    terminal.echo(f"Memory of the fullest GPU of {plan.label}")
    print_parts(plan.memory.parts)
    found = plan.memory
    what = f"{found.visible / GIB:.2f} GiB visible x {found.utilization:g}"
    _part("may be used", found.requested, what)
    _part("KV cache", found.kv_cache, "what the parts leave of it")
    for kind in memory.kv_kinds(request.shape, request.kv, plan.tensor_parallel):
        terminal.echo(f"  {_kind(request, kind)}")
    layout = plan.kv.layout
    groups = ", ".join(f"{g.count} x {g.layers.kind} of {g.block_size} tokens" for g in layout.groups)
    say(f"  blocks: {plan.kv.blocks:,} of {layout.block_bytes:,} B; groups: {groups}")
    say(
        f"  one request of {request.context:,} tokens needs {plan.needed / GIB:.2f} GiB; one of your requests "
        f"{layout.blocks(request.lengths.resident):,} blocks on average"
    )
    _times(request, chosen)
    terminal.echo()
    terminal.echo(f"Weights from each disk, against a startup probe of {given['startup_probe']:.0f} s")
    for row in loadings_of(request, chosen):
        if row.load_s is None or row.start_s is None:
            terminal.echo(f"  {row.storage:<15} none on this instance")
            continue
        verdict = "in time" if row.start_s <= given["startup_probe"] else "too late"
        speed = f"{(row.bytes_per_s or 0) / 1e6:,.0f} MB/s ({row.limit})"
        times = f"{row.load_s:>6,.0f} s, ready after {row.start_s:>5,.0f} s"
        terminal.echo(f"  {row.storage:<14} {speed:<21} {times}, {verdict}")
    terminal.echo()
    say(f"Model: {request.shape.source}")
    say(f"{request.stored.name}: {request.stored.source}")
    say(f"{plan.card.whole}: {plan.card.gpu.source}")


def _times(request: SizingRequest, chosen: SizingOption) -> None:
    """What takes the time of a decode step, and an hour of an owned GPU."""
    at, plan = chosen.point, chosen.plan
    if at.tpot_s is not None:
        terminal.echo()
        parts = point.decode_step(request, plan, at.concurrency / plan.pipeline_parallel)
        terminal.echo(f"A decode step of {at.concurrency / plan.pipeline_parallel:g} sequences, no prompt beside it")
        say("  " + " + ".join(f"{name} {_time(seconds)}" for name, seconds in parts.items()))
        say(f"  = {_time(sum(parts.values()))}; TPOT {_time(at.tpot_s)} with the prompts of others in between")
    owned = chosen.owned
    if owned is not None:
        terminal.echo()
        terminal.echo(f"An owned {plan.card.whole}")
        say(f"  {owned.formula} = ${owned.usd_per_hour / owned.gpus:.2f} an hour")


def _kind(request: SizingRequest, kind: Any) -> str:
    if kind.kind == "state":
        return f"{kind.layers} state layers: {kind.state_bytes:,} B a layer and sequence"
    of = f", last {kind.span:,} tokens" if kind.span else ""
    return f"{kind.layers} {kind.kind} layers: {kind.token_bytes:,} B per token and layer on this GPU{of}"


def print_parts(parts: Iterable[MemoryPart]) -> None:
    """Each part on a line, with its formula."""
    for part in parts:
        _part(part.name, part.bytes, part.formula)


def _part(name: str, size: int, formula: str) -> None:
    lines.say(f"{size / GIB:>6.2f} GiB {formula}".rstrip(), " " * 46, f"  {name:<32} ")


def _rules(request: SizingRequest, book: PriceBook) -> None:
    terminal.echo()
    advice = rules.advise(request)
    say(f"Rule of thumb, {advice.range} ({advice.gigabytes:.4g} GB): {advice.advice}")
    for outcome in advice.outcomes:
        say(f"  {outcome}")
    terminal.echo("Instance guide")
    for guide in rules.guides(book):
        say(f"  {guide.gpu}: {guide.says}")
        for text in guide.differs:
            say(f"    ! {text}")
    terminal.echo("Guides by model size")
    for row in rules.by_size(request, book):
        price = "price not known" if row.price is None else f"${usd(row.price):,.2f} an hour"
        mark = {True: "for this size", False: "for other sizes", None: "no size named"}[row.meant]
        say(f"  {row.instance_type}, {price}: {row.says} ({mark})")
        say(f"    ! {row.outcome}")
    terminal.echo("Where the rules are wrong")
    for fault in rules.faults():
        say(f"  {fault.rule}: {fault.claim}")
        say(f"    ! {fault.fact}")
    say(f"Rules: {advice.source}")


def loading_of(request: SizingRequest, option: SizingOption, given: dict[str, Any]) -> Loading | None:
    """Of :func:`loadings_of` the disk asked for."""
    return next((row for row in loadings_of(request, option) if row.storage == given["disk"].lower()), None)


def loadings_of(request: SizingRequest, option: SizingOption) -> list[Loading]:
    """How long the replicas of ``option`` load from each disk, on its cheapest offer. Those of one node read the file
    once if its memory can hold it, each for itself otherwise."""
    offer = option.best
    kind = instances.get(offer.instance_type) if offer and offer.instance_type else None
    stages = max(1, offer.nodes // option.replicas) if offer and offer.nodes else 1
    size = memory.weight_bytes(request.shape, request.stored) // stages
    per_node = 1
    if kind is not None and offer is not None and size > kind.memory_mib * MIB:
        per_node = max(1, -(-option.replicas // offer.nodes))
    return loading.loadings(size, kind, max(1, option.plan.gpus // stages), per_node)


def label(plan: ReplicaPlan) -> str:
    """As in ``TP8 PP2 h100``."""
    tp = f"TP{plan.tensor_parallel} " if plan.tensor_parallel > 1 else ""
    pp = f"PP{plan.pipeline_parallel} " if plan.pipeline_parallel > 1 else ""
    return f"{tp}{pp}{plan.card.name}"


def _where(offer: ReplicaOffer) -> str:
    return f"{offer.nodes} {offer.instance_type}" if offer.instance_type else f"{offer.gpus} owned"


def _short(value: float) -> str:
    if value == float("inf"):
        return "-"
    if value >= 99_999:
        return f"{value:.0e}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f}ms" if seconds < 0.01 else f"{seconds * 1000:.0f}ms"
    return (
        f"{seconds * 1000:.0f}ms" if seconds < 0.9995 else f"{seconds:.1f}s" if seconds < 99.95 else f"{seconds:.0f}s"
    )


def _band(band: tuple[float, float] | None) -> str:
    return "-" if band is None else f"{_time(band[0])} to {_time(band[1])}"


def say(text: str) -> None:
    """Print within the width of the terminal, what follows on indented."""
    lines.say_indented(text)
