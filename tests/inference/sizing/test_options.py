"""Which cards fit, in what number, at what price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizing_builders import answer, asked, market

from tonnage.errors import InputError
from tonnage.facts import instances, mig, prices
from tonnage.inference.estimate import Load as EstimateLoad
from tonnage.inference.estimate import estimate
from tonnage.inference.sizing import cards, fit, options, point, request
from tonnage.units import GIB


def labels(found: options.SizingResult) -> list[str]:
    return [option.plan.label for option in found.options]


@pytest.mark.parametrize(
    ("model", "stored", "fits", "too_small"),
    [
        ("Qwen3-0.6B", "bf16", {"t4", "l4", "a100-80:1g.10gb", "h100:1g.10gb", "l4/4"}, set()),
        ("Llama-3.1-8B", "bf16", {"l4", "a100-40:3g.20gb", "h100:1g.20gb", "l40s/2"}, {"l4/2", "a100-80:1g.10gb"}),
        ("Llama-3.1-8B", "int4", {"t4", "a100-80:1g.10gb", "l4/2"}, {"l4/4", "a100-40:1g.5gb"}),
        ("Llama-3.1-70B", "bf16", {"b200", "h200:7g.141gb"} - {"h200:7g.141gb"}, {"l40s/2", "h200:3g.71gb"}),
        ("gpt-oss-120b", "mxfp4", {"h100", "a100-80", "b200:3g.90gb"}, {"h100:3g.40gb", "h200:3g.71gb"}),
    ],
)
def test_gpus_mig_instances_and_shares_fit_by_their_memory(
    model: str, stored: str, fits: set[str], too_small: set[str]
) -> None:
    found = answer(model, stored=stored)
    alone = {option.plan.card.name for option in found.options if option.plan.gpus == 1}
    assert fits <= alone
    assert too_small <= {plan.card.name for plan in found.refused}


def test_a_plan_that_fits_has_room_for_one_request_of_the_whole_context() -> None:
    for option in answer("Llama-3.1-70B", stored="fp8", context=32_768).options:
        plan = option.plan
        assert plan.memory.kv_cache >= plan.needed
        assert plan.kv.concurrency(32_768) >= 1
        assert 1 <= option.point.concurrency <= plan.sequences


def test_a_longer_context_needs_more_gpus() -> None:
    short = fit.plan(asked("Llama-3.1-8B", "l4", context=2_000), cards.get("l4"), 1)
    long = fit.plan(asked("Llama-3.1-8B", "l4", context=64_000), cards.get("l4"), 1)
    assert short.fits and not long.fits
    assert long.short / GIB == pytest.approx(64_000 * 131_072 / GIB - long.memory.kv_cache / GIB, abs=0.01)
    assert fit.plan(asked("Llama-3.1-8B", "l4", context=64_000, kv="fp8"), cards.get("l4"), 2).fits


def test_tp_stays_within_a_node_and_slices_are_never_joined() -> None:
    found = answer("Llama-3.1-70B")
    for option in found.options:
        assert not option.plan.card.sliced or option.plan.gpus == 1
        for offer in option.offers:
            assert option.plan.tensor_parallel <= instances.get(offer.instance_type).gpu_count
    assert "rtx-pro-6000 TP 2" in labels(found)


def test_stages_are_tried_only_where_a_node_is_too_small() -> None:
    large = answer("DeepSeek-V3", "h100", "h200", stored="fp8")
    assert {o.plan.pipeline_parallel for o in large.options if o.plan.card.name == "h200"} == {1}
    assert all(o.plan.pipeline_parallel > 1 for o in large.options if o.plan.card.name == "h100")
    both = [offer for o in large.options if o.plan.card.name == "h100" for offer in o.offers]
    assert min(offer.nodes for offer in both) == 2


def test_options_are_in_order_of_price_with_those_that_miss_the_targets_last() -> None:
    found = answer("Llama-3.1-70B", concurrency=32, tpot_s=0.04).options
    assert [option.meets for option in found] == sorted((o.meets for o in found), reverse=True)
    met = [option.best.usd_per_hour for option in found if option.meets and option.best]
    assert met == sorted(met) and len(met) > 3
    for option in found:
        costs = [offer.usd_per_hour for offer in option.offers]
        assert costs == sorted(costs)
        if option.meets:
            assert option.point.tpot_s is not None and option.point.tpot_s <= 0.04


def test_nodes_and_dollars_follow_from_the_replicas() -> None:
    found = answer("Llama-3.1-8B", "l4", "h100:1g.20gb", "l40s/2", concurrency=40)
    by_card = {option.plan.card.name: option for option in found.options if option.plan.gpus == 1}
    book = prices.load()
    for name, per_gpu in (("l4", 1), ("h100:1g.20gb", 4), ("l40s/2", 2)):
        option = by_card[name]
        for offer in option.offers:
            kind = instances.get(offer.instance_type)
            hosted = kind.gpu_count * per_gpu
            assert offer.nodes == -(-option.replicas // hosted)
            assert offer.usd_per_hour == pytest.approx(offer.nodes * (book.on_demand(kind.name) or 0) / 1e6)
            assert offer.idle_gpus == pytest.approx(offer.gpus - option.replicas / per_gpu)
            hourly = option.output_tokens_per_s * 3600
            assert offer.usd_per_million_output == pytest.approx(offer.usd_per_hour / hourly * 1e6)
            assert offer.usd_per_million_tokens < offer.usd_per_million_output


def test_where_nothing_is_fast_enough_the_nearest_comes_first() -> None:
    found = answer("Llama-3.1-70B", ttft_s=0.001, tpot_s=0.001).options
    assert not any(option.meets for option in found)
    assert [option.miss for option in found] == sorted(option.miss for option in found)
    first = found[0].point
    assert first.ttft_s is not None and first.tpot_s is not None
    assert found[0].miss == pytest.approx(max(first.ttft_s, first.tpot_s) / 0.001)


def test_the_nearest_way_does_not_take_a_replica_for_each_request() -> None:
    found = answer("Llama-3.1-70B", "h100", ttft_s=0.001).options
    assert found[0].replicas < 16
    for option in found:
        single = point.point(asked("Llama-3.1-70B", "h100"), option.plan, 1)
        assert single.ttft_s is not None and option.point.ttft_s is not None
        assert option.point.ttft_s <= 1.5 * single.ttft_s


def test_a_load_beyond_ten_thousand_replicas_is_served_by_nothing() -> None:
    found = answer("Llama-3.1-8B", "l4", concurrency=10**12)
    assert found.options == () and found.refused == ()
    assert found.too_few is not None and found.too_few > 10_000
    assert answer("Llama-3.1-8B", "l4").too_few is None


@pytest.mark.parametrize(
    ("gpu", "more", "reason"),
    [
        ("h100:1g.10gb", {"tensor_parallel": 2}, "h100:1g.10gb: a MIG instance has no link to others, TP and PP are 1"),
        ("h100/2", {"tensor_parallel": 2}, "h100/2: replicas that share a GPU have no link to others"),
        ("h100", {"tensor_parallel": 16}, "h100: no node has 16 of them, TP is at most 8"),
        ("v100", {"kv": "fp8"}, "v100: vLLM keeps no KV cache in fp8 there"),
        ("h100", {"kv": "fp4"}, "h100: vLLM keeps no KV cache in fp4 there"),
    ],
)
def test_a_card_on_which_nothing_can_be_tried_is_refused_for_one_reason(
    gpu: str, more: dict[str, int | str], reason: str
) -> None:
    with pytest.raises(InputError) as refused:
        answer("Qwen3-8B", gpu, **more)
    assert len(refused.value.problems) == 1
    assert refused.value.problems[0].message.startswith(reason)
    beside = answer("Qwen3-8B", gpu, "b200", **more) if more != {"tensor_parallel": 16} else None
    assert beside is None or (beside.options and beside.left_out[0].startswith(reason))


def test_a_replica_that_the_estimator_refuses_has_its_reason_and_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    known = point.estimate

    def refuse(replica: point.Replica, load: point.Load) -> object:
        if replica.gpu.name == "l4":
            raise InputError.at("outside of what is known")
        return known(replica, load)

    monkeypatch.setattr(point, "estimate", refuse)
    found = answer("Qwen3-8B", "l4", "h100").options
    assert found[0].plan.card.name == "h100"
    last = found[-1]
    assert last.plan.card.name == "l4" and last.miss == float("inf")
    assert (last.point.ttft_s, last.point.requests_per_s) == (None, 0.0)
    assert last.point.reason == "outside of what is known"


def test_a_rate_is_carried_by_enough_replicas() -> None:
    one = answer("Llama-3.1-8B", "l4", rate=0.5, tpot_s=0.2).options[0]
    many = answer("Llama-3.1-8B", "l4", rate=40.0, tpot_s=0.2).options[0]
    assert one.replicas == 1 < many.replicas
    assert one.requests_per_s == pytest.approx(0.5)
    assert many.requests_per_s == pytest.approx(40.0)
    assert many.replicas * many.point.requests_per_s >= 40.0


def test_owned_gpus_compete_when_named_and_are_told_beside_otherwise() -> None:
    named = options.answer(asked("Llama-3.1-8B", "h100"), market(h100=25_000)).options[0]
    assert named.best is not None and named.best.source == "own"
    unnamed = answer("Llama-3.1-8B", "h100").options[0]
    assert unnamed.best is not None and unnamed.best.source == "rent"
    assert unnamed.owned is not None and unnamed.owned.usd_per_hour < unnamed.best.usd_per_hour
    assert named.best.usd_per_hour < unnamed.owned.usd_per_hour
    assert named.best.formula == (
        "$25,000 x (1 + 0.35 host) / (4 years x 8,766 h x 1 used) + "
        "700 W x 0.7 load x (1 + 0.46 host) x PUE 1.3 x $0.12/kWh"
    )
    hour = 25_000 * 1.35 / (4 * 8_766) + 0.7 * 0.7 * 1.46 * 1.3 * 0.12
    assert named.best.usd_per_hour == pytest.approx(hour * named.best.gpus)


def test_formats_without_a_kernel_leave_old_gpus_out() -> None:
    with pytest.raises(InputError, match="--gpu: t4, v100: vLLM has no kernel there for weights in fp8"):
        answer("Qwen3-8B", "t4", "v100", stored="fp8")
    assert answer("Qwen3-8B", "t4", stored="int4").options


def test_what_is_shown_is_not_beaten_on_its_own_gpu() -> None:
    found = options.shown(answer("Qwen3-0.6B").options, 4)
    assert len(found) == 4
    assert "t4/2 TP 1" not in [option.plan.label for option in found]


def test_lengths_from_quantiles_and_traces_keep_their_tails() -> None:
    mixed = request.of_quantiles((100, 1_000, 10_000), (50, 500))
    assert (mixed.longest, len(mixed.pairs)) == (10_500, 6)
    assert mixed.input_mean == 3_700
    narrow = asked("Llama-3.1-8B", "l4", lengths=request.fixed(3_700, 275))
    wide = asked("Llama-3.1-8B", "l4", lengths=mixed)
    assert wide.context > narrow.context
    assert fit.plan(wide, cards.get("l4"), 1).sequences < fit.plan(narrow, cards.get("l4"), 1).sequences


def test_a_request_longer_than_the_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"200,000 tokens, but meta-llama/Llama-3.1-8B was made for 131,072"):
        asked("Llama-3.1-8B", "l4", context=200_000)
    with pytest.raises(InputError, match=r"longest request has 9,000 tokens, but meta-llama/Llama-3-8B has a context"):
        asked("Llama-3-8B", "l4", lengths=request.fixed(8_000, 1_000))
    with pytest.raises(InputError, match=r"longest request has 1,280 tokens, but --context is 1,000"):
        asked("Llama-3.1-8B", "l4", context=1_000)


def test_cards_are_named_by_gpu_instance_or_share() -> None:
    assert cards.get("H100").kind == "gpu"
    slice_ = cards.get("h100:2g.20gb")
    assert (slice_.kind, slice_.whole, slice_.per_gpu) == ("mig", "h100", 3)
    share = cards.get("l4/4")
    assert (share.kind, share.per_gpu, share.memory_share) == ("time-slice", 4, 0.25)
    with pytest.raises(InputError, match="would share a MIG instance, which is not sized"):
        cards.get("h100:1g.10gb/2")
    for wrong in ("l4/1", "l4/x"):
        with pytest.raises(InputError, match="is not a share of a GPU"):
            cards.get(wrong)


def test_a_point_is_what_the_estimator_says_of_its_replica() -> None:
    wanted = asked("Qwen3-8B", "h100")
    plan = fit.plan(wanted, cards.get("h100"), 1)
    found = point.point(wanted, plan, 16)
    said = estimate(point.replica(wanted, plan), EstimateLoad(16, 1024, 256))
    for name in ("ttft_s", "tpot_s", "ttft_band_s", "tpot_band_s", "requests_per_s", "output_tokens_per_s", "notes"):
        assert getattr(found, name) == getattr(said, name)
    assert found.output_tokens_per_s_band is not None
    low, high = found.output_tokens_per_s_band
    assert 0 < low < found.output_tokens_per_s < high


def test_the_parts_of_a_decode_step_are_less_than_the_time_per_token() -> None:
    wanted = asked("gpt-oss-120b", "h100", stored="mxfp4")
    for tensor_parallel in (1, 2):
        plan = fit.plan(wanted, cards.get("h100"), tensor_parallel)
        parts = point.decode_step(wanted, plan, 16)
        assert ("communication" in parts) == (tensor_parallel == 2)
        found = point.point(wanted, plan, 16)
        assert found.tpot_s is not None
        assert 0.3 * found.tpot_s < sum(parts.values()) < found.tpot_s


def test_the_band_is_wider_where_nothing_was_measured_and_the_point_says_so() -> None:
    ratios = {}
    for name in ("h100", "l40s", "h100:3g.40gb"):
        wanted = asked("Qwen3-8B", name)
        found = point.point(wanted, fit.plan(wanted, cards.get(name), 1), 4)
        assert found.tpot_band_s is not None and found.tpot_s is not None
        ratios[name] = found.tpot_band_s[1] / found.tpot_band_s[0]
        assert any("no measured point" in note for note in found.notes) == (name != "h100")
    assert ratios["h100"] < ratios["h100:3g.40gb"] < ratios["l40s"]


@given(st.integers(1, 64), st.sampled_from(["l4", "h100", "a100-80:3g.40gb", "l40s/2"]))
def test_times_grow_with_the_requests_in_flight_and_so_does_throughput(concurrency: int, card: str) -> None:
    wanted = asked("Qwen3-8B", card)
    plan = fit.plan(wanted, cards.get(card), 1)
    high = min(concurrency + 8, plan.sequences)
    less, more = (point.point(wanted, plan, count) for count in (min(concurrency, high - 4), high))
    assert less.tpot_s is not None and more.tpot_s is not None and less.ttft_s is not None
    assert less.tpot_s < more.tpot_s
    assert less.output_tokens_per_s < more.output_tokens_per_s * 1.02
    assert less.tpot_band_s is not None and less.tpot_band_s[0] < less.tpot_s < less.tpot_band_s[1]
    assert less.ttft_band_s is not None and less.ttft_band_s[0] < less.ttft_s < less.ttft_band_s[1]


@pytest.mark.parametrize("gpu", ["a100-80", "h100"])
def test_a_mig_instance_is_slower_than_its_gpu_and_all_of_them_are_not_faster(gpu: str) -> None:
    wanted = asked("Qwen3-0.6B", gpu)
    whole = point.point(wanted, fit.plan(wanted, cards.get(gpu), 1), 16)
    for profile in mig.profiles(gpu):
        if profile.max_instances == 1:
            continue
        card = cards.get(f"{gpu}:{profile.name}")
        part = point.point(wanted, fit.plan(wanted, card, 1), 16)
        assert part.tpot_s is not None and whole.tpot_s is not None
        assert part.tpot_s > whole.tpot_s
