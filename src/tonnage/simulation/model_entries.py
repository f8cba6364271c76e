"""A scenario's models of which the facts have nothing: a config.json, or a shape, as `tonnage size` takes them."""

from __future__ import annotations

from pathlib import Path

from tonnage.documents import Document, Strict
from tonnage.errors import InputError, Problem
from tonnage.facts import hf_config
from tonnage.facts.models import ModelShape
from tonnage.inference.estimate.shapes import VOCABULARY, parameters, plain_shape, plausible

_FIELDS = {
    "kv_heads": "kvHeads",
    "head_dim": "headDim",
    "the head size": "headDim",
    "active_params": "active",
    "context_tokens": "context",
}
"""What the fields of a shape are called here."""


class ModelEntry(Strict, frozen=True, kw_only=True):
    """A model by its name on command lines: either ``config``, the path of a config.json or of its folder, or a shape
    with at least ``params``, ``layers``, ``hidden`` and ``heads``."""

    config: str = ""
    params: str = ""
    active: str = ""
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int = VOCABULARY
    context: int | None = None


def shapes(entries: dict[str, ModelEntry], document: Document, folder: Path) -> dict[str, ModelShape]:
    """The shape of each model. Raises InputError with all that is wrong."""
    found: dict[str, ModelShape] = {}
    problems: list[Problem] = []
    for name, entry in entries.items():
        try:
            found[name] = _shape(name, entry, folder)
        except InputError as error:
            problems += [_placed(one, f"models.{name}", document) for one in error.problems]
    if problems:
        raise InputError(*problems)
    return found


def _shape(name: str, entry: ModelEntry, folder: Path) -> ModelShape:
    given = [field for field in ("params", "layers", "hidden", "heads") if getattr(entry, field)]
    if entry.config:
        if given:
            raise InputError.at("a config and a shape, expected one of them", field="config")
        file = folder / entry.config
        return hf_config.read(file / "config.json" if file.is_dir() else file).shape
    missing = [field for field in ("params", "layers", "hidden", "heads") if field not in given]
    if missing:
        raise InputError.at(f"{', '.join(missing)} not given", hint="give a shape, or the path of a config.json")
    shape = plain_shape(
        name=name,
        params=_parameters("params", entry.params),
        active_params=_parameters("active", entry.active) if entry.active else 0,
        layers=entry.layers,
        hidden=entry.hidden,
        heads=entry.heads,
        kv_heads=entry.kv_heads,
        head_dim=entry.head_dim,
        vocab=entry.vocab,
        context_tokens=entry.context,
        source="scenario",
    )
    plausible(shape)
    return shape


def _parameters(field: str, text: str) -> int:
    try:
        return parameters(text)
    except InputError as error:
        (told,) = error.problems
        raise InputError.at(told.message, field=field, hint=told.hint) from None


def _placed(problem: Problem, place: str, document: Document) -> Problem:
    """A problem of an entry, where it stands in the scenario; of a config.json where that is."""
    if problem.where.file:
        return problem
    field, message, hint = problem.where.field, problem.message, problem.hint
    for ours, theirs in _FIELDS.items():
        field, message, hint = (text.replace(ours, theirs) for text in (field, message, hint))
    return document.problem(f"{place}.{field}" if field else place, message, hint)
