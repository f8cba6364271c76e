"""Every metric of dcgm-exporter has a reading behind it, or a reason why not."""

from __future__ import annotations

import pytest

from tonnage.facts import dcgm_fields, metric_names
from tonnage.node.devices import EccCounts, Measured, RemappedRows

PARTS = {
    "": frozenset(Measured.__struct_fields__),
    "rows": frozenset(RemappedRows.__struct_fields__),
    "errors": frozenset(EccCounts.__struct_fields__),
    "health": frozenset({"last_xid", "xids", "status"}),
    "driver": frozenset({"version"}),
}


def _published(*status: str) -> set[str]:
    return {one.name for one in metric_names.all() if one.exporter == "dcgm-exporter" and one.status in status}


def test_every_metric_that_the_exporter_knows_has_a_row() -> None:
    assert _published("default", "optional") == set(dcgm_fields.all())


@pytest.mark.parametrize("name", sorted(_published("default")))
def test_every_default_counter_is_served(name: str) -> None:
    field = dcgm_fields.all()[name]
    assert not field.absent
    assert field.help


def test_a_field_is_served_or_named_with_the_reason() -> None:
    for field in dcgm_fields.all().values():
        assert bool(field.value) is not bool(field.absent)
        assert field.mig in dcgm_fields.MIG
        part, _, name = field.value.rpartition(".")
        assert not field.value or name in PARTS[part]
        assert not field.absent or len(field.absent) > 20
