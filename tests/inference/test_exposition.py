"""What a scrape of an engine shows."""

from __future__ import annotations

from itertools import pairwise

from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.servers.exposition import Histogram, ServingStats, vllm_samples
from tonnage.inference.timing import LinearTiming

MS = 1_000_000


def scrape(engine: Engine, stats: ServingStats) -> dict[tuple[str, str], float]:
    stats.observe(engine.take_first_tokens(), engine.take_finished())
    return {(s.name, s.labels[0][1] if s.labels else ""): s.value for s in vllm_samples(engine, stats)}


def test_a_scrape_shows_vllms_gauges_counters_and_histograms() -> None:
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=1, max_model_len=1000, kv_blocks=10)
    engine, stats = Engine(config, LinearTiming(base_ps=20 * MS * 1000)), ServingStats()
    engine.submit(0, 0, prompt_tokens=32, output_tokens=5)  # first token after 20 ms, then one every 20 ms
    engine.submit(1, 0, prompt_tokens=32, output_tokens=5)
    engine.submit(2, 0, prompt_tokens=999, output_tokens=5)  # refused
    engine.advance(50 * MS)
    seen = scrape(engine, stats)
    assert seen["vllm:num_requests_running", ""] == 1
    assert seen["vllm:num_requests_waiting", ""] == 1
    assert seen["vllm:kv_cache_usage_perc", ""] == 0.3  # two blocks for the prompt, one for what follows
    assert seen["vllm:prompt_tokens_total", ""] == 32
    assert seen["vllm:generation_tokens_total", ""] == 2
    assert seen["vllm:time_to_first_token_seconds_bucket", "0.01"] == 0
    assert seen["vllm:time_to_first_token_seconds_bucket", "0.02"] == 1
    assert seen["vllm:request_success_total", "stop"] == 0

    engine.advance(10_000 * MS)
    seen = scrape(engine, stats)
    assert seen["vllm:num_requests_running", ""] == seen["vllm:num_requests_waiting", ""] == 0
    assert seen["vllm:num_preemptions_total", ""] == 0
    assert seen["vllm:request_success_total", "stop"] == 2
    assert seen["vllm:request_success_total", "abort"] == 0
    assert seen["vllm:time_to_first_token_seconds_bucket", "+Inf"] == 2
    assert seen["vllm:time_to_first_token_seconds_count", ""] == 2
    assert seen["vllm:time_to_first_token_seconds_sum", ""] == 0.02 + 0.12
    assert seen["vllm:request_time_per_output_token_seconds_bucket", "0.01"] == 0
    assert seen["vllm:request_time_per_output_token_seconds_bucket", "0.025"] == 2
    assert seen["vllm:request_queue_time_seconds_sum", ""] == 0.1
    assert seen["vllm:e2e_request_latency_seconds_sum", ""] == 0.1 + 0.2


def test_buckets_are_cumulative_and_their_edges_inclusive() -> None:
    histogram = Histogram("h", (1.0, 2.5))
    for value in (0.5, 1.0, 1.1, 2.5, 9.0):
        histogram.observe(value)
    seen = [(s.name, s.labels, s.value) for s in histogram.samples()]
    assert seen == [
        ("h_bucket", (("le", "1.0"),), 2.0),
        ("h_bucket", (("le", "2.5"),), 4.0),
        ("h_bucket", (("le", "+Inf"),), 5.0),
        ("h_sum", (), 14.1),
        ("h_count", (), 5.0),
    ]


def test_vllms_edges_rise() -> None:
    for histogram in ServingStats()._histograms.values():
        assert all(low < high for low, high in pairwise(histogram._edges))


def test_a_prefix_cache_shows_what_was_looked_for_in_it_and_what_was_found() -> None:
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=4, max_model_len=1000, kv_blocks=100)
    engine, stats = Engine(config, LinearTiming(base_ps=20 * MS * 1000), prefix_caching=True), ServingStats()
    for number in range(2):
        engine.submit(number, number * 1000 * MS, prompt_tokens=40, output_tokens=1, path=((0, 2),))
        engine.advance((number + 1) * 1000 * MS)
    seen = scrape(engine, stats)
    assert seen["vllm:prefix_cache_queries_total", ""] == 80
    assert seen["vllm:prefix_cache_hits_total", ""] == 32
    plain = [sample.name for sample in vllm_samples(engine, None)]
    assert "vllm:prefix_cache_hits_total" in plain and not any(name.endswith("_bucket") for name in plain)


def test_an_engine_that_keeps_nothing_shows_no_prefix_cache() -> None:
    config = EngineConfig(max_num_batched_tokens=100, max_num_seqs=4, max_model_len=1000, kv_blocks=100)
    engine = Engine(config, LinearTiming(base_ps=20 * MS * 1000))
    assert not any("prefix_cache" in sample.name for sample in vllm_samples(engine, None))
