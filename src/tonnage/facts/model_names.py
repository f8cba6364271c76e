"""Names of models that Hugging Face cannot have: no name at all, or a known one with a letter wrong.

What is not known is not wrong: new models appear every day, and most organisations keep some of their own. Only what is
certain is said here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tonnage.errors import InputError
from tonnage.facts import models

_PART = re.compile(r"[A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?", re.ASCII)
_LONGEST = 96
"""Source: huggingface_hub utils/_validators.py, validate_repo_id."""
_WORDS = re.compile(r"[a-z]+|\d+")
_TUNINGS = ("", "-Instruct", "-it", "-chat", "-hf", "-Base")
_WEB = ("https://huggingface.co/", "http://huggingface.co/", "https://hf.co/")
WITHOUT_ORGANISATION = frozenset(
    (
        "albert-base-v2",
        "bert-base-cased",
        "bert-base-uncased",
        "bert-large-cased",
        "bert-large-uncased",
        "distilbert-base-uncased",
        "distilgpt2",
        "gpt2",
        "gpt2-large",
        "gpt2-medium",
        "gpt2-xl",
        "openai-gpt",
        "roberta-base",
        "roberta-large",
        "xlm-roberta-base",
        "xlm-roberta-large",
    )
)
"""Models that Hugging Face has from before there were organisations, of those that vLLM serves."""


def is_address(name: str) -> bool:
    """Whether it is the address of a page at Hugging Face."""
    return name.startswith(_WEB)


def no_name(name: str) -> tuple[str, str]:
    """(why it is not a name of a model at Hugging Face, what would be one); empty where it is one."""
    for web in _WEB:
        if name.startswith(web):
            return "it is the address of a page, and no name", "/".join(name.removeprefix(web).split("/")[:2])
    plain = _without_format(name)
    wrong = next((part for part in plain.split("/") if not _PART.fullmatch(part) or "--" in part or ".." in part), None)
    if wrong is not None:
        return f"names have letters, digits, '-', '_' and '.' between letters or digits, not {wrong[:_LONGEST]!r}", ""
    if len(plain) > _LONGEST:
        return f"it has {len(plain)} characters, and names have {_LONGEST} at most", ""
    return "", ""


def no_organisation(name: str) -> tuple[str, str]:
    """The same of what may be a folder, else: it has no organisation, or more than one slash."""
    parts = _without_format(name).split("/")
    if len(parts) > 2:
        return "names are ORGANISATION/MODEL, with one slash", _known(parts[-1])
    if len(parts) == 1 and parts[0].lower() not in WITHOUT_ORGANISATION:
        return "names are ORGANISATION/MODEL, and this has no organisation", _known(parts[0])
    return "", ""


def _without_format(name: str) -> str:
    """The name without the format of GGUF files that may follow it."""
    return name.rpartition(":")[0] or name


def meant(name: str) -> str:
    """The known model of which the name is a misspelling; empty where it may be another model.

    A word of it has a letter or two wrong and all others are the same, numbers too, or its organisation has: nobody
    publishes two models that differ in that."""
    organisation, _, short = name.rpartition("/")
    found = _get(name)
    if found is not None:
        known, _, _ = found.name.rpartition("/")
        return f"{known}/{short}" if organisation and _slip(organisation.lower(), known.lower()) else ""
    words = _WORDS.findall(short.lower())
    for full in _full_names():
        known, _, other = full.rpartition("/")
        if known.lower() == organisation.lower() and _alike(words, _WORDS.findall(other.lower())):
            return full
    return ""


def _alike(words: list[str], known: list[str]) -> bool:
    differing = [pair for pair in zip(words, known, strict=False) if pair[0] != pair[1]]
    return len(words) == len(known) and len(differing) <= 1 and all(_slip(*pair) for pair in differing)


def _slip(word: str, known: str) -> bool:
    """Whether one word is the other with a letter wrong, missing, too many or in another place; two in long words."""
    short, long = sorted((len(word), len(known)))
    if word == known or short < 4 or long > short + 2 or word.isdigit() or known.isdigit():
        return False
    return _distance(word, known) <= (2 if len(known) >= 7 else 1)


def _distance(one: str, other: str) -> int:
    """Letters to change, add, leave out or swap with the next (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, known in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != known))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == known:
                best = min(best, earlier[j - 2] + 1)
            row.append(best)
    return row[-1]


@lru_cache(maxsize=1)
def _full_names() -> tuple[str, ...]:
    return tuple(f"{one.name}{end}" for one in models.all() for end in _TUNINGS)


def _get(name: str) -> models.ModelShape | None:
    try:
        return models.get(name)
    except InputError:
        return None


def _known(short: str) -> str:
    """The name of the model that is called so, with its organisation, as far as it is known."""
    found = _get(short)
    return f"{found.name.rpartition('/')[0]}/{short}" if found is not None else ""
