#!/usr/bin/env python3
"""Holds the results of examples, contract scenarios and random placements to what was recorded (tests/digests)."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "simulation")]

if __name__ == "__main__":
    from digests.command import main

    sys.exit(main(sys.argv[1:]))
