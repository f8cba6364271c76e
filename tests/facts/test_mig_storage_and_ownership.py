"""MIG profiles, disks, and the price of an hour of a GPU that one owns."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.facts import gpus, mig, ownership, storage


@pytest.mark.parametrize(
    ("gpu", "profile", "sms", "mib", "most"),
    [
        ("a100-40", "1g.5gb", 14, 4864, 7),
        ("a100-80", "3g.40gb", 42, 40192, 2),
        ("a100-80", "7g.80gb", 98, 80384, 1),
        ("h100", "1g.20gb", 26, 20096, 4),
        ("h100", "3g.40gb", 60, 40448, 2),
        ("h200", "2g.35gb", 32, 33280, 3),
        ("a30", "2g.12gb", 28, 11971, 2),
        ("b200", "2g.45gb", 36, 45312, 3),
    ],
)
def test_a_profile_has_the_sms_and_memory_that_drivers_list(
    gpu: str, profile: str, sms: int, mib: int, most: int
) -> None:
    found = mig.get(gpu, profile)
    assert (found.sms, found.memory_mib, found.max_instances) == (sms, mib, most)
    assert found.measured


@pytest.mark.parametrize("gpu", ["a30", "a100-40", "a100-80", "h100", "h200", "b200"])
def test_instances_of_a_gpu_never_have_more_than_the_gpu(gpu: str) -> None:
    whole = gpus.get(gpu)
    assert mig.profiles(gpu)
    for profile in mig.profiles(gpu):
        card = mig.as_gpu(whole, profile)
        count = profile.max_instances
        assert count * profile.memory_slices <= profile.of_memory_slices
        assert count * card.memory_mib <= whole.memory_mib
        assert count * card.bandwidth_bytes_per_s <= whole.bandwidth_bytes_per_s + count
        assert count * card.bf16_flops <= whole.bf16_flops * 1.001
        assert card.nvlink_bytes_per_s is None


def test_compute_and_bandwidth_shares_differ() -> None:
    half = mig.get("h100", "3g.40gb")
    assert (half.compute_share, half.memory_share) == (60 / 132, 4 / 8)
    unlisted = mig.get("b200", "4g.90gb")
    assert not unlisted.measured
    assert unlisted.compute_share == 4 / 7
    assert unlisted.usable_mib(gpus.get("b200")) == gpus.get("b200").memory_mib // 2


def test_unknown_profiles_and_gpus_are_refused_with_near_names() -> None:
    with pytest.raises(InputError, match=r"unknown MIG profile '1g.11gb' \(did you mean 1g.10gb"):
        mig.resolve("h100:1g.11gb")
    with pytest.raises(InputError, match="no MIG profiles of l4 are known"):
        mig.resolve("l4:1g.10gb")
    with pytest.raises(InputError, match=r"unknown GPU 'h110'"):
        mig.resolve("h110:1g.10gb")
    gpu, profile = mig.resolve("H100:1g.10gb")
    assert profile is not None
    assert (gpu.name, gpu.memory_mib) == ("h100:1g.10gb", 9984)


def test_gp3_as_it_comes_is_the_slowest_and_the_first() -> None:
    names = [place.name for place in storage.all()]
    assert names == ["gp3", "gp3-max", "io2", "instance-store", "fsx", "page-cache"]
    assert min(storage.all(), key=lambda place: place.bytes_per_s).name == "gp3"
    assert 140e9 / storage.get("gp3").bytes_per_s == pytest.approx(1068, abs=1)
    with pytest.raises(InputError, match=r"unknown disk 'gp4' \(did you mean gp3"):
        storage.get("gp4")


def test_an_owned_gpu_costs_its_price_over_its_life_and_its_energy() -> None:
    own = ownership.get()
    h100 = gpus.get("h100")
    capital = 30_000 * 1.35 / (4 * 8766)
    energy = 0.7 * 0.7 * 1.46 * 1.3 * 0.12
    assert own.usd_per_hour(h100, 30_000) == pytest.approx(capital + energy)
    assert ownership.price_usd("h100") == 30_000
    assert ownership.price_usd("l4") is None
