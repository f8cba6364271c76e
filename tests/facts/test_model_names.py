"""Which names of models cannot be, and which are misspelt for certain."""

from __future__ import annotations

import pytest

from tonnage.facts.model_names import meant, no_name, no_organisation


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen/Qwen2.5-7B-Instrct", "Qwen/Qwen2.5-7B-Instruct"),
        ("meta-lama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen/Qwne3-8B", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3_8B", "Qwen/Qwen3-8B"),
    ],
)
def test_a_letter_wrong_in_a_known_name_is_told(name: str, known: str) -> None:
    assert meant(name) == known


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B",
        "unsloth/Llama-3.1-8B-Instruct",
        "acme/house-model",
        "Qwen/Qwen2.5-Coder-7B-Instruct",
        "Qwen/Qwen2-7B-Instruct",
        "mistralai/Ministral-8B-Instruct-2410",
        "microsoft/Phi-4",
    ],
)
def test_another_model_is_no_misspelling(name: str) -> None:
    assert (meant(name), no_name(name), no_organisation(name)) == ("", ("", ""), ("", ""))


def test_what_is_no_name_is_told_with_the_one_that_was_meant() -> None:
    assert no_name("https://huggingface.co/Qwen/Qwen3-8B/tree/main")[1] == "Qwen/Qwen3-8B"
    assert no_organisation("Qwen3-8B")[1] == "Qwen/Qwen3-8B"
    assert no_name("Qwen/Qwen3-8B ")[0]
    assert no_organisation("a/b/c")[0]
    assert no_organisation("gpt2") == ("", "")
