"""Images on drivers and GPUs: published combinations, and each rule of compatibility by itself."""

from __future__ import annotations

import pytest

from tonnage.cuda_fit import check, host, need, remedy
from tonnage.cuda_fit.check import Fit
from tonnage.cuda_fit.need import Need, kernels_of
from tonnage.errors import InputError
from tonnage.facts import cuda as facts

TORCH = "pytorch/pytorch:{}-cuda{}-cudnn9-runtime"


def fit(image: str, driver: str, gpu: str, **environment: str) -> Fit:
    return check.fit(need.of_image(image, environment), host.of(driver, gpu))


def answer(found: Fit, name: str) -> check.Check:
    return next(one for one in found.checks if one.name == name)


def helps(image: str, driver: str, gpu: str) -> dict[str, str]:
    found = remedy.remedies(need.of_image(image), host.of(driver, gpu))
    return {one.kind: one.text for one in found}


@pytest.mark.parametrize(
    ("image", "driver", "gpu", "fits", "question", "said"),
    [
        # vllm-project/vllm issue 5635: V100, driver 530
        ("vllm/vllm-openai:v0.5.0", "530.30.02", "v100", False, "require", "unsatisfied condition: cuda>=12.4"),
        # NGC release notes 24.05: CUDA 12.4.1, on data center GPUs also R470, R525, R535
        ("nvcr.io/nvidia/pytorch:24.05-py3", "470.57.02", "t4", True, "driver", "cuda-compat-12-4"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "450.51.06", "t4", False, "driver", "R470, R525, R535 only"),
        # pytorch/pytorch issue 182250: 2.11 with cu128 has no sm_70, 2.10 has
        (
            TORCH.format("2.11.0", "12.8"),
            "570.124.06",
            "v100",
            False,
            "kernels",
            "no kernel image is available for 7.0",
        ),
        (TORCH.format("2.10.0", "12.8"), "570.124.06", "v100", True, "kernels", "7.0"),
        (TORCH.format("2.11.0", "12.6"), "570.124.06", "v100", True, "kernels", "7.0"),
        # vllm-project/vllm issues 20173 and 16336, pytorch/pytorch issue 150733: nothing for Blackwell before CUDA 12.8
        (
            TORCH.format("2.7.0", "12.6"),
            "570.124.06",
            "b200",
            False,
            "kernels",
            "no kernel image is available for 10.0",
        ),
        (TORCH.format("2.4.1", "12.4"), "580.65.06", "b200", False, "kernels", "no kernel image is available for 10.0"),
        (TORCH.format("2.4.1", "12.4"), "550.54.14", "h100", True, "kernels", "9.0"),
        ("vllm/vllm-openai:v0.6.6", "570.124.06", "b200", False, "kernels", "no kernel image is available for 10.0"),
        ("vllm/vllm-openai:v0.6.6", "550.54.14", "l40s", True, "kernels", "8.9"),
        # R580 is the last branch for Volta; CUDA 13 has no code for it
        (TORCH.format("2.10.0", "12.8"), "590.44.01", "v100", False, "gpu", "R580 is the last driver branch"),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", "580.65.06", "v100", False, "kernels", "12.9 was the last"),
        # minor version compatibility: CUDA 12.x on R525 and later; forward compatibility not on GeForce
        (TORCH.format("2.9.0", "12.6"), "525.60.13", "a100", True, "driver", "minor version compatibility"),
        (TORCH.format("2.9.0", "12.6"), "520.61.05", "a100", False, "driver", "error 35"),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", "535.161.08", "rtx-4090", False, "driver", "error 804"),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", "535.161.08", "h100", True, "driver", "cuda-compat-13-0"),
        ("nvidia/cuda:13.0.1-base-ubuntu24.04", "545.23.08", "h100", False, "driver", "R535, R550"),
        (TORCH.format("2.9.0", "13.0"), "535.161.08", "h100", False, "driver", "is not in the image"),
        # an older GPU driver than the GPU
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", "550.54.14", "b200", False, "gpu", "needs driver R570"),
        # a newer driver runs older CUDA
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", "615.10", "h100", True, "driver", "newer than CUDA 12.4"),
        # what nobody knows
        ("acme/model:1", "535.161.08", "h100", None, "driver", "not known"),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", "570.26", "b200", None, "kernels", "12.8 is the first"),
    ],
)
def test_a_published_combination(
    image: str, driver: str, gpu: str, fits: bool | None, question: str, said: str
) -> None:
    found = fit(image, driver, gpu)
    assert found.fits is fits
    assert said in answer(found, question).reason


@pytest.mark.parametrize(
    ("cuda", "lowest"),
    [
        ("13.2", "595.45.04"),
        ("13.0", "580.65.06"),
        ("12.9", "575.51.03"),
        ("12.8", "570.26"),
        ("12.4", "550.54.14"),
        ("12.2", "535.54.03"),
        ("12.0", "525.60.13"),
        ("11.8", "520.61.05"),
        ("11.4", "470.42.01"),
    ],
)
def test_the_driver_that_came_with_a_toolkit_reports_its_version(cuda: str, lowest: str) -> None:
    assert facts.driver_cuda(facts.parse_version(lowest)) == facts.parse_version(cuda)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("550.40.07", "12.4"), ("550.54", "12.4"), ("550.40", "12.4"), ("535.43.02", "12.2"), ("545.29.06", "12.3")],
)
def test_every_driver_of_a_branch_reports_the_cuda_of_that_branch(driver: str, cuda: str) -> None:
    assert facts.driver_cuda(facts.parse_version(driver)) == facts.parse_version(cuda)
    assert fit("vllm/vllm-openai:v0.7.3", "550.40.07", "h100").fits is True


@pytest.mark.parametrize(
    ("branch", "cuda"),
    [
        (470, "11.4"),
        (525, "12.0"),
        (535, "12.2"),
        (550, "12.4"),
        (560, "12.6"),
        (570, "12.8"),
        (575, "12.9"),
        (580, "13.0"),
        (590, "13.1"),
        (595, "13.2"),
    ],
)
def test_the_last_driver_of_a_branch_runs_the_cuda_of_its_branch(branch: int, cuda: str) -> None:
    assert facts.driver_cuda((branch, 999)) == facts.parse_version(cuda)


@pytest.mark.parametrize("major", [11, 12, 13])
def test_any_toolkit_of_a_major_release_runs_from_its_floor_on_and_not_below(major: int) -> None:
    floor = facts.floors()[major]
    for toolkit in facts.toolkits():
        if toolkit.cuda[0] == major:
            wanted = Need("x", toolkit.cuda, compat=False)
            at = check.fit(wanted, host.of(".".join(map(str, floor)), "t4"))
            below = check.fit(wanted, host.of(f"{floor[0] - 1}.99", "t4"))
            assert answer(at, "driver").fits is True, toolkit
            assert answer(below, "driver").fits is False, toolkit


def test_a_newer_driver_of_the_same_node_never_runs_less_until_it_drops_the_gpu() -> None:
    for image in ("nvidia/cuda:12.4.1-base", TORCH.format("2.9.0", "13.0"), TORCH.format("2.9.0", "12.6")):
        for gpu in ("v100", "t4", "a100", "h100", "b200"):
            answers = [fit(image, one.written, gpu) for one in reversed(facts.toolkits())]
            exact = [found.mode == check.EXACT for found in answers if "gpu" not in found.refusals]
            assert exact == sorted(exact)


@pytest.mark.parametrize(
    ("archs", "arch", "runs"),
    [
        ("8.0", "8.6", True),
        ("8.6", "8.0", False),
        ("8.0", "9.0", False),
        ("8.0+PTX", "9.0", True),
        ("9.0a", "9.0", True),
        ("10.0a", "10.3", False),
        ("10.0f", "10.3", True),
        ("10.0f", "12.0", False),
        ("9.0a+PTX", "10.0", False),  # PTX for one architecture serves no other
        ("compute_80", "8.6", True),
        ("sm_75;sm_80", "8.9", True),
        ("12.0", "12.1", True),
        ("12.0+PTX", "9.0", False),
    ],
)
def test_code_for_one_architecture_runs_on_another(archs: str, arch: str, runs: bool) -> None:
    found = check.fit(Need("x", (12, 9), kernels_of(archs)), host.of("580.65.06", arch=arch))
    assert answer(found, "kernels").fits is runs


def test_ptx_of_a_newer_toolkit_is_not_compiled_by_minor_version_compatibility() -> None:
    wanted = Need("x", (12, 8), kernels_of("8.0+PTX"), compat=False)
    assert answer(check.fit(wanted, host.of("570.26", "h100")), "kernels").fits is True
    found = answer(check.fit(wanted, host.of("550.54.14", "h100")), "kernels")
    assert found.fits is False
    assert "error 222" in found.reason


@pytest.mark.parametrize(
    ("compat", "gpu", "fits"),
    [(True, "h100", True), (None, "h100", None), (False, "h100", False), (True, "rtx-4090", False)],
)
def test_ptx_of_a_newer_toolkit_is_compiled_where_its_cuda_compat_serves(
    compat: bool | None, gpu: str, fits: bool | None
) -> None:
    wanted = Need("x", (12, 8), kernels_of("7.5+PTX"), compat=compat)
    assert answer(check.fit(wanted, host.of("550.54.14", gpu)), "kernels").fits is fits


def test_of_a_toolkit_newer_than_the_tables_it_is_not_said_which_gpus_it_builds_for() -> None:
    assert answer(check.fit(Need("x", (99, 0)), host.of("580.65.06", "h100")), "kernels").fits is None
    assert answer(check.fit(Need("x", (99, 0)), host.of("580.65.06", "v100")), "kernels").fits is False


@pytest.mark.parametrize(
    ("variables", "fits"),
    [
        ({}, False),
        ({"NVIDIA_DISABLE_REQUIRE": "true"}, True),
        ({"NVIDIA_DISABLE_REQUIRE": "1"}, True),
        ({"NVIDIA_DISABLE_REQUIRE": "yes"}, False),  # not true to Go's ParseBool
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, True),
        ({"NVIDIA_REQUIRE_CUDA": ""}, False),  # the image's own CUDA_VERSION stands in
        ({"NVIDIA_REQUIRE_CUDA": "", "CUDA_VERSION": ""}, True),
        ({"NVIDIA_REQUIRE_ARCH": "arch>=8.0", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, False),
        ({"NVIDIA_REQUIRE_JETPACK": "foo", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, True),
        ({"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": ""}, False),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>99 foo"}, False),
    ],
)
def test_variables_of_the_container_stand_over_those_of_the_image(variables: dict[str, str], fits: bool) -> None:
    assert answer(fit("vllm/vllm-openai:v0.5.0", "530.30.02", "v100", **variables), "require").fits is fits


def test_conditions_that_are_only_partly_known_do_not_refuse() -> None:
    found = fit("nvidia/cuda:12.5.1-base-ubuntu22.04", "545.23.08", "h100")
    assert answer(found, "require").fits is None
    assert found.fits is None


def test_the_smallest_change_comes_first() -> None:
    image = TORCH.format("2.11.0", "13.0")
    found = remedy.remedies(need.of_image(image), host.of("535.161.08", "h100"))
    assert [one.kind for one in found] == ["package", "image", "driver"]
    assert found[0].text == "install cuda-compat-13-0 in the image"
    assert "cu128" in found[1].text
    assert "R580 (580.65.06" in found[2].text


def test_a_list_of_drivers_that_omits_one_that_would_do_can_be_switched_off() -> None:
    found = helps("vllm/vllm-openai:v0.5.0", "530.30.02", "v100")
    assert "NVIDIA_DISABLE_REQUIRE=true" in found["setting"]
    assert "R535 (535.54.03" in found["driver"]


def test_a_gpu_without_code_gets_an_image_or_another_gpu_and_no_driver() -> None:
    found = helps(TORCH.format("2.11.0", "12.8"), "570.124.06", "v100")
    assert set(found) == {"image", "gpu"}
    assert "to below 2.11.0" in found["image"]
    assert "t4 (7.5)" in found["gpu"]


def test_every_change_that_is_proposed_is_tried() -> None:
    found = helps("nvidia/cuda:13.0.1-base-ubuntu24.04", "535.161.08", "rtx-4090")
    assert found["image"] == "use nvidia/cuda 12.4"
    assert fit("nvidia/cuda:12.4.1-base-ubuntu22.04", "535.161.08", "rtx-4090").fits is True
    assert fit("nvidia/cuda:13.0.1-base-ubuntu24.04", "580.65.06", "rtx-4090").fits is True


@pytest.mark.parametrize(
    ("image", "gpu", "driver", "said"),
    [
        ("vllm/vllm-openai:v0.7.3", "b200", "550.54.14", "vllm/vllm-openai from 0.20.0 R570"),
        ("vllm/vllm-openai:v0.7.3", "b300", "570.26", "vllm/vllm-openai from 0.20.0 R575"),
        (TORCH.format("2.6.0", "12.4"), "b200", "550.90.07", "pytorch/pytorch from 2.11.0 R570"),
        ("ghcr.io/acme/x:cu124", "b200", "550.90.07", "built for b200 R570"),
        ("vllm/vllm-openai:v0.9.1", "v100", "595.45.04", "vllm/vllm-openai from 0.11.1 R580"),
    ],
)
def test_an_image_and_a_driver_are_named_where_only_both_help(image: str, gpu: str, driver: str, said: str) -> None:
    found = helps(image, driver, gpu)
    repository_and_version, _, branch = said.rpartition(" ")
    assert repository_and_version in found["image"]
    assert f"{branch} (" in found["image"]
    assert "driver" not in found


def test_a_gpu_that_the_newest_driver_has_left_gets_its_last_branch() -> None:
    found = helps("vllm/vllm-openai:v0.7.3", "595.45.04", "v100")
    assert "R580 (580.65.06 or later, CUDA 13.0), the last for v100" in found["driver"]
    assert fit("vllm/vllm-openai:v0.7.3", "580.65.06", "v100").fits is True


@pytest.mark.parametrize(
    ("image", "gpu", "named", "oldest"),
    [
        ("vllm/vllm-openai:v0.7.3", "b200", "vllm/vllm-openai from 0.20.0 with cu130", "570.26"),
        ("vllm/vllm-openai:v0.9.1", "v100", "vllm/vllm-openai from 0.11.1 to below 0.20.0", "535.54.03"),
        (TORCH.format("2.11.0", "12.8"), "v100", "to below 2.11.0", "525.60.13"),
    ],
)
def test_an_image_is_named_though_the_driver_is_not_known(image: str, gpu: str, named: str, oldest: str) -> None:
    found = helps(image, "", gpu)["image"]
    assert named in found
    assert f"({oldest}) or later" in found


def test_where_it_fits_or_too_little_is_known_nothing_is_proposed() -> None:
    assert helps("nvidia/cuda:12.4.1-base-ubuntu22.04", "550.54.14", "h100") == {}
    assert helps("acme/model:1", "535.161.08", "h100") == {}


@pytest.mark.parametrize(
    ("image", "cuda"),
    [
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", (12, 4)),
        ("docker.io/nvidia/cuda:11.8.0-base", (11, 8)),
        ("registry.acme.org:5000/mirror/vllm/vllm-openai:v0.20.0@sha256:0a", (13, 0)),
        ("vllm/vllm-openai:v0.21.0-cu129", (12, 9)),
        ("vllm/vllm-openai:v0.4.3", None),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("pytorch/pytorch:2.3.1-cuda12.1-cudnn8-devel", (12, 1)),
        ("lmsysorg/sglang:v0.5.15.post1-cu129", (12, 9)),
        ("acme/own:torch2.6-cu124-py311", (12, 4)),
        ("acme/own:2024-cuda12.1", (12, 1)),
        ("acme/own:focus128", None),
        ("acme/vllm-openai:v0.20.0", None),
    ],
)
def test_the_cuda_version_of_an_image_is_known_by_its_name(image: str, cuda: tuple[int, int] | None) -> None:
    assert need.of_image(image).cuda == cuda


@pytest.mark.parametrize("written", ["", "8", "8.0,x", "sm_9x", "9.0b", "9" * 5000])
def test_what_is_no_architecture_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="not an architecture"):
        kernels_of(written)


@pytest.mark.report(301)
@pytest.mark.parametrize(
    ("image", "driver", "gpu"),
    [
        ("vllm/vllm-openai:v0.9.0", "570.124.06", "v100"),
        ("vllm/vllm-openai:v0.9.1", "570.124.06", "v100"),
        ("mirror.example/vllm/vllm-openai:v0.10.1", "570.124.06", "v100-32"),
        ("vllm/vllm-openai:v0.7.3", "570.124.06", "p100"),
        ("vllm/vllm-openai:v0.16.0", "580.65.06", "p100"),
        (TORCH.format("2.7.0", "12.8"), "570.124.06", "v100"),
        (TORCH.format("2.7.1", "12.8"), "570.124.06", "v100"),
    ],
)
def test_an_image_without_code_for_an_older_card_does_not_fit_though_its_cuda_could_build_for_it(
    image: str, driver: str, gpu: str
) -> None:
    found = fit(image, driver, gpu)
    assert found.refusals == {"kernels"}
    assert "no kernel image is available" in answer(found, "kernels").reason


@pytest.mark.report(302)
@pytest.mark.parametrize(
    ("image", "driver", "gpu"),
    [
        ("vllm/vllm-openai:v0.9.0.1", "575.57.08", "rtx-pro-6000"),
        ("vllm/vllm-openai:v0.9.1", "580.65.06", "rtx-5090"),
        ("vllm/vllm-openai:v0.8.5", "575.57.08", "b200"),
        (TORCH.format("2.7.1", "12.6"), "570.124.06", "b200"),
        (TORCH.format("2.5.1", "12.4"), "580.65.06", "rtx-pro-6000"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "580.65.06", "b300"),
    ],
)
def test_an_image_without_code_for_a_newer_card_does_not_fit(image: str, driver: str, gpu: str) -> None:
    assert "kernels" in fit(image, driver, gpu).refusals


@pytest.mark.parametrize(
    ("image", "gpu"),
    [
        ("acme/serve:1-cu128", "b200"),
        ("acme/serve:cuda12.8", "h100"),
        ("lmsysorg/sglang:v0.5.5-cu128", "rtx-pro-6000"),
        ("vllm/vllm-openai:v0.9.2", "rtx-pro-6000"),
        ("vllm/vllm-openai:v0.11.0", "v100"),
    ],
)
def test_whether_an_image_was_built_for_a_card_is_not_known_where_nothing_says_it(image: str, gpu: str) -> None:
    wanted, there = need.of_image(image), host.of("580.65.06", gpu)
    assert answer(check.fit(wanted, there), "kernels").fits is None
    assert check.may_lack_code(wanted, there)


@pytest.mark.parametrize(
    ("image", "gpu", "driver"),
    [
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", "v100", "570.124.06"),
        ("vllm/vllm-openai:v0.8.5", "v100", "570.124.06"),
        ("vllm/vllm-openai:v0.9.1", "a10g", "570.124.06"),
        (TORCH.format("2.8.0", "12.8"), "v100", "570.124.06"),
        (TORCH.format("2.6.0", "12.4"), "p100", "570.124.06"),
        ("nvcr.io/nvidia/pytorch:22.05-py3", "a30", "550.54.14"),
    ],
)
def test_an_image_that_was_built_for_the_card_fits(image: str, gpu: str, driver: str) -> None:
    found = fit(image, driver, gpu)
    assert found.fits is True
    assert not check.may_lack_code(need.of_image(image), host.of(driver, gpu))


@pytest.mark.parametrize(
    ("image", "driver", "gpu", "text"),
    [
        (TORCH.format("2.7.1", "12.8"), "570.124.06", "v100", "from 2.9.0 to below 2.11.0 with cu128 in the tag"),
        ("vllm/vllm-openai:v0.9.1", "575.57.08", "rtx-pro-6000", "from 0.11.1 to below 0.20.0"),
        ("vllm/vllm-openai:v0.7.3", "570.124.06", "p100", "built for p100 (6.0), with CUDA 12.9 or older"),
        ("acme/serve:1-cu128", "570.124.06", "b200", "if this one is, say so: --image-archs 10.0"),
    ],
)
def test_the_image_that_helps_is_one_that_is_built_for_the_card(image: str, driver: str, gpu: str, text: str) -> None:
    assert text in helps(image, driver, gpu)["image"]
