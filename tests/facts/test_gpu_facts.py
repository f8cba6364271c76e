"""GPUs: the table's numbers, names and aliases."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.facts import cuda, gpus


@pytest.mark.parametrize(
    ("name", "memory_mib", "gb_per_s", "bf16_tflops", "fp8_tflops", "nvlink_gb_per_s", "power_w"),
    [
        ("p40", 24_576, 346, 11.8, None, None, 250),
        ("p100", 16_384, 732, 21.2, None, 80, 300),
        ("t4", 16_384, 320, 65, None, None, 70),
        ("a10", 23_028, 600, 125, None, None, 150),
        ("a40", 46_068, 696, 149.7, None, 56, 300),
        ("l40", 46_068, 864, 181, 362, None, 300),
        ("h20", 97_871, 4_000, 148, 296, 450, 400),
        ("a10g", 22_888, 600, 70, None, None, 300),
        ("l4", 22_888, 300, 121, 242, None, 72),
        ("l40s", 45_776, 864, 362, 733, None, 350),
        ("a100-40", 40_960, 1_555, 312, None, 300, 400),
        ("a100-80", 81_920, 2_039, 312, None, 300, 400),
        ("a100-80-pcie", 81_920, 1_935, 312, None, None, 300),
        ("h100", 81_920, 3_350, 989, 1_978, 450, 700),
        ("h200", 144_384, 4_800, 989, 1_978, 450, 700),
        ("b200", 183_359, 7_700, 2_250, 4_500, 900, 1_000),
        ("b300", 275_040, 7_750, 2_250, 4_500, 900, 1_100),
    ],
)
def test_a_gpu_has_the_published_memory_rates_and_power(
    name: str,
    memory_mib: int,
    gb_per_s: int,
    bf16_tflops: float,
    fp8_tflops: int | None,
    nvlink_gb_per_s: int | None,
    power_w: int,
) -> None:
    gpu = gpus.get(name)
    assert gpu.memory_mib == memory_mib
    assert gpu.bandwidth_bytes_per_s == gb_per_s * 10**9
    assert gpu.bf16_flops == bf16_tflops * 1e12
    assert gpu.fp8_flops == (None if fp8_tflops is None else fp8_tflops * 1e12)
    assert gpu.nvlink_bytes_per_s == (None if nvlink_gb_per_s is None else nvlink_gb_per_s * 10**9)
    assert gpu.power_w == power_w


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("L40S", "l40s"),
        ("NVIDIA-L40S", "l40s"),
        ("NVIDIA L40S", "l40s"),
        ("a100", "a100-80"),
        ("A100-40GB", "a100-40"),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("Tesla-T4", "t4"),
        ("rtx-pro-server-6000", "rtx-pro-6000"),
    ],
)
def test_a_gpu_answers_to_its_aliases_and_product_label(spelling: str, name: str) -> None:
    assert gpus.get(spelling).name == name


def test_every_gpu_answers_to_its_own_name_and_product_label() -> None:
    for gpu in gpus.all():
        assert gpus.get(gpu.name) is gpu
        assert gpus.get(gpu.product) is gpu


def test_an_unknown_gpu_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'h1000'.*did you mean h100"):
        gpus.get("h1000")


@pytest.mark.parametrize(
    "name", ["p4", "p40", "p100", "v100-pcie", "v100s", "t4", "a2", "a10", "a16", "a40", "l2", "l20"]
)
def test_a_card_of_data_centers_has_one_name_for_its_rates_and_for_its_cuda(name: str) -> None:
    assert gpus.get(name) is gpus.get(gpus.get(name).product)
    assert cuda.gpu(name) is cuda.gpu(gpus.get(name).product)


def test_every_card_of_data_centers_that_cuda_knows_has_its_memory_and_rates() -> None:
    of_centers = [one for one in cuda.gpus() if one.forward_compat]
    assert len(of_centers) > 20
    rated = {cuda.gpu(one.product).name for one in gpus.all()}
    assert {one.name for one in of_centers} <= rated
    assert min(one.arch for one in of_centers) == (6, 0)


def test_every_name_of_a_card_is_known_to_both() -> None:
    for one in cuda.gpus():
        for name in (one.name, *one.aliases) if one.forward_compat else ():
            assert cuda.gpu(gpus.get(name).product) is one, name
