"""Names of MIG profiles: one formula, and every name of the table is of it."""

from __future__ import annotations

import re

import pytest

from tonnage.facts import mig

NAMES = {
    40: (5, 10, 20, 40),
    80: (10, 20, 40, 80),
    94: (12, 24, 47, 94),
    96: (12, 24, 48, 96),
    141: (18, 35, 71, 141),
    144: (18, 36, 72, 144),
    180: (23, 45, 90, 180),
    186: (23, 47, 93, 186),
    269: (34, 67, 135, 269),
    278: (35, 70, 139, 278),
}
"""GB in the names of 1, 2, 4 and 8 eighths, by the GPU's GiB. Source: NVIDIA/go-nvlib pkg/nvlib/device."""


@pytest.mark.parametrize("total", NAMES)
def test_half_a_gb_is_rounded_up_and_never_to_even(total: int) -> None:
    assert tuple(mig.gigabytes(eighths * total * 128, total * 1024) for eighths in (1, 2, 4, 8)) == NAMES[total]


def test_memory_that_the_driver_keeps_back_changes_no_name() -> None:
    assert [mig.gigabytes(mib, 143_771) for mib in (16_384, 33_280, 71_424, 143_360)] == [18, 35, 71, 141]
    assert [mig.gigabytes(mib, 81_559) for mib in (9_984, 20_096, 40_448, 81_152)] == [10, 20, 40, 80]


@pytest.mark.parametrize("gpu", mig.with_profiles())
def test_every_name_of_the_table_is_what_the_formula_says(gpu: str) -> None:
    named = [(one, int(re.findall(r"\.(\d+)gb", one.name)[0])) for one in mig.profiles(gpu, plain=False)]
    total = max(gb for _, gb in named)
    for one, gb in named:
        assert mig.gigabytes(total * 1024 * one.memory_slices // one.of_memory_slices, total * 1024) == gb, one.name
        assert one.name.startswith(f"{one.compute_slices}g."), one.name
