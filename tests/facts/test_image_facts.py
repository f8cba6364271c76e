"""Names of images, and what is known of them."""

from __future__ import annotations

import pytest

from tonnage.facts.images import AMD64, ARM64, Image, architectures, is_public, parse


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("nginx", Image("docker.io", "library/nginx")),
        ("nginx:1.29", Image("docker.io", "library/nginx", "1.29")),
        ("vllm/vllm-openai:v0.11.0", Image("docker.io", "vllm/vllm-openai", "v0.11.0")),
        ("localhost:5000/a/b", Image("localhost:5000", "a/b")),
        ("registry.example.com/a:1@sha256:" + "a" * 64, Image("registry.example.com", "a", "1", "sha256:" + "a" * 64)),
        ("nvcr.io/nvidia/vllm:25.09-py3", Image("nvcr.io", "nvidia/vllm", "25.09-py3")),
    ],
)
def test_a_name_is_read_as_the_kubelet_reads_it(text: str, image: Image) -> None:
    assert parse(text) == image


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm/vllm-openai:",
        "VLLM",
        "docker.io/VLLM/vllm",
        "vllm/vllm openai",
        "vllm:v1:v2",
        "https://docker.io/vllm",
        "${IMAGE}",
        "a@sha256:123",
        "a/",
        "vllm/vllm-openai:v0.11.0 ",
    ],
)
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm/vllm-openai:v0.9.2", {AMD64}),
        ("vllm/vllm-openai:v0.10.1.1", {AMD64}),
        ("vllm/vllm-openai:v0.10.2", {AMD64, ARM64}),
        ("vllm/vllm-openai:v0.11.0-x86_64", {AMD64}),
        ("vllm/vllm-openai:latest-aarch64", {ARM64}),
        ("registry.example.com/team/server-arm64:1", {ARM64}),
        ("registry.example.com/team/server:2.1-linux-amd64", {AMD64}),
        ("arm64v8/python:3.12", {ARM64}),
        ("registry.example.com/charm64/server:1", set()),
        ("rocm/vllm:latest", {AMD64}),
    ],
)
def test_architectures_by_name_and_by_what_is_known(text: str, expected: set[str]) -> None:
    image = parse(text)
    assert image is not None and architectures(image) == expected


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("nginx", True),
        ("registry.k8s.io/pause:3.10", True),
        ("vllm/vllm-openai", True),
        ("nvcr.io/nim/meta/llama", False),
        ("me/own", False),
    ],
)
def test_some_images_are_known_to_be_public(text: str, public: bool) -> None:
    image = parse(text)
    assert image is not None and is_public(image) is public
