"""Consumable capacity: how much of a device's capacities a request takes.

Source: k8s.io/dynamic-resource-allocation v0.36.3 structured/internal/experimental/consumable_capacity.go.

Amounts are integers of 10⁻⁹, the finest that a quantity can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tonnage.objects.dra import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, Quantity
from tonnage.objects.quantity import parse

NANO = 10**9


@lru_cache(maxsize=16384, typed=True)
def nano(written: Quantity) -> int:
    """A quantity in units of 10⁻⁹. Raises ValueError for what is none."""
    value = parse(written) * NANO
    return value.numerator


def written(amount: int) -> str:
    """An amount as a quantity: whole numbers in the largest binary unit that divides them, others in nano-units."""
    whole, rest = divmod(amount, NANO)
    if rest:
        return f"{amount}n" if amount % 10**6 else f"{amount // 10**6}m"
    for power, unit in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if whole and whole % 1024**power == 0:
            return f"{whole // 1024**power}{unit}"
    return str(whole)


def consumed(capacity: Mapping[str, DeviceCapacity], requests: Mapping[str, Quantity]) -> dict[str, int] | None:
    """What a request takes of each capacity, rounded up as its policy says; None where a request names a capacity that
    the device has not, or the policy allows no such amount."""
    if not requests.keys() <= capacity.keys():
        return None
    taken = {}
    for name, one in capacity.items():
        asked = requests.get(name)
        amount = _rounded(one, None if asked is None else nano(asked))
        if not _allowed(amount, one.request_policy):
            return None
        taken[name] = amount
    return taken


def _rounded(capacity: DeviceCapacity, asked: int | None) -> int:
    policy = capacity.request_policy
    if asked is None:
        return nano(policy.default if policy is not None and policy.default is not None else capacity.value)
    if policy is None:
        return asked
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _in_range(asked, policy.valid_range, nano(policy.valid_range.min))
    return next((nano(one) for one in policy.valid_values if asked <= nano(one)), asked)


def _in_range(asked: int, valid: CapacityRequestPolicyRange, least: int) -> int:
    """Steps count in whole units, rounded up, as the API's integers do."""
    if asked < least:
        return least
    if valid.step is None:
        return asked
    start, step = _whole(least), _whole(nano(valid.step))
    return (start - (start - _whole(asked)) // step * step) * NANO if step else asked


def _whole(amount: int) -> int:
    return -(-amount // NANO)


def _allowed(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == nano(policy.default)):
        return True
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount > nano(valid.max):
            return False
        step = _whole(nano(valid.step)) if valid.step is not None else 0
        least = _whole(nano(valid.min)) if valid.min is not None else 0
        return not step or (_whole(amount) - least) % step == 0
    return not policy.valid_values or any(amount == nano(one) for one in policy.valid_values)
