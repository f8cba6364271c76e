"""What the physical and commercial world is: GPUs, instance types, prices, LLM shapes, durations, metrics.

Every table is a CSV file in ``data/`` whose rows name their source; a source that many rows share is a key of
``data/sources.csv``. The modules gpus, instances, prices, models, durations and metric_names turn the tables
into typed, immutable objects, each read once, when it is first asked for.
"""
