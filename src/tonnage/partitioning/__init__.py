"""Partition GPUs: MIG layouts and re-layouts, time-slicing, MPS, fractions."""
