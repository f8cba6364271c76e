"""Benchmarks: `python -m benchmarks NAME [--quick] [--data DIR] [--json]`.

Not tests: they measure, print ratios and say whether a bar holds.
"""
