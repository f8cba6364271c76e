"""Which container of a pod is a vLLM server, and what its command line says. Whoever asks this asks here.

A server is recognised by what it runs (``vllm serve``, ``python -m vllm.entrypoints…``, also in a shell script), or, if
it has no command, by its image: that of ``vllm/vllm-openai`` runs the server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from tonnage.errors import InputError, Problem
from tonnage.facts import model_names, models, names
from tonnage.facts.cuda import Version, split_image
from tonnage.facts.models import ModelShape
from tonnage.inference import vllm_flags
from tonnage.inference.servers.command_lines import Word, commands, environment
from tonnage.inference.vllm_args import GivenFlag, VllmArgs, given, parse_vllm_args
from tonnage.objects import core

MODEL = "--model"
PARTITION = "VLLM_PP_LAYER_PARTITION"
"""Layers of each pipeline stage, like 20,12 (vllm-project/vllm distributed/utils.py, get_pp_indices)."""
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_ENTRYPOINT = "vllm.entrypoints"
_STORES = ("s3://", "gs://", "az://", "hdfs://", "http://", "https://", "oci://")
_TRUE = ("1", "true", "True", "TRUE")
Shapes = Mapping[str, ModelShape]
_NONE: Shapes = {}


class EngineServer(msgspec.Struct, frozen=True):
    """The server in ``containers[index]``. ``words``: its flags as they are run, and where each stands. ``certain``: it
    is vLLM's own server, so that its flags are those of vLLM. ``open``: flags (and ``--model``) whose values come from
    where the manifest does not show them. ``problem``: a value that cannot be read; then ``args`` is without it.
    ``known``: what is known of its model, None where it names none or that is open."""

    index: int
    container: core.Container
    words: tuple[Word, ...]
    args: VllmArgs
    certain: bool
    open: frozenset[str] = frozenset()
    problem: Problem | None = None
    known: ModelShape | UnknownModel | None = None

    @property
    def shape(self) -> ModelShape | None:
        """The model's shape, where it is known."""
        return self.known if isinstance(self.known, ModelShape) else None

    @property
    def version(self) -> Version | None:
        """The release of vLLM, by the tag of its own image."""
        return vllm_flags.version_of(self.container.image)

    def given(self) -> list[GivenFlag]:
        """The flags as they were written."""
        return list(_given(tuple(word.text for word in self.words)))

    def field(self, *flags: str) -> str:
        """The field of the pod's spec where the first of these flags that was given has its value, else of all args
        (``--model``: also a word without a flag)."""
        for flag in flags:
            for one in reversed(self.given()):
                if _name(one.flag) == flag or (flag == MODEL and not one.flag):
                    return self._in(self.words[one.value_at].field)
        return self._in("args" if self.container.args else "command" if self.container.command else "image")

    def value(self, flag: str) -> str | None:
        """What was written for a flag that is not among ``args``; the last one counts, None where it is absent."""
        return next((one.value or "" for one in reversed(self.given()) if _name(one.flag) == flag), None)

    def _in(self, field: str) -> str:
        return f"containers[{self.index}].{field}"


def find(spec: core.PodSpec, shapes: Shapes = _NONE) -> EngineServer | None:
    """The first container that is a vLLM server; None if there is none. ``shapes``: of models beside those in the
    table, by their names."""
    for index, container in enumerate(spec.containers):
        server = next(all_in(index, container, shapes), None)
        if server is not None:
            return server
    return None


def all_in(index: int, container: core.Container, shapes: Shapes = _NONE) -> Iterator[EngineServer]:
    """Every server that a container runs, which is ``containers[index]``, in the order in which they start."""
    official = vllm_flags.is_official(split_image(container.image)[0])
    for words in commands(container):
        start = _start(words)
        if start is not None:
            yield _read(index, container, words[start:], shapes, certain=True)
        elif official and not container.command:
            yield _read(index, container, words, shapes, certain=True)
        elif "vllm" in container.image or any("vllm" in word.text for word in words):
            made = _read(index, container, words, shapes, certain=False)
            if made.args.model and (made.value(MODEL) is not None or made.shape is not None):
                yield made


@lru_cache(maxsize=1024)
def _given(words: tuple[str, ...]) -> tuple[GivenFlag, ...]:
    return tuple(given(words))


def _start(words: Sequence[Word]) -> int | None:
    """Where the server's own arguments begin; None where no server is called."""
    for at, word in enumerate(words[:-1]):
        following = words[at + 1].text
        if word.text.rpartition("/")[2] == "vllm" and following == "serve":
            return at + 2
        if word.text == "-m" and following.startswith(_ENTRYPOINT):
            return at + 2
    return None


def _read(
    index: int, container: core.Container, words: Sequence[Word], shapes: Shapes, *, certain: bool
) -> EngineServer:
    kept, unclear = _settled(words)
    problem = None
    args = None
    while args is None:
        try:
            args = parse_vllm_args([word.text for word in kept])
        except InputError as error:
            problem = problem or error.problems[0]
            kept = _without(kept, {error.problems[0].where.field})
    if environment(container).get(ALLOW_LONG) in _TRUE:
        args = msgspec.structs.replace(args, context_extended=True)
    if written := environment(container).get(PARTITION):
        try:
            args = msgspec.structs.replace(args, pipeline_layers=pipeline_layers(written, PARTITION))
        except InputError as error:
            problem = problem or error.problems[0]
    known = shape_of(args.model, shapes) if args.model and MODEL not in unclear else None
    return EngineServer(index, container, tuple(words), args, certain, unclear, problem, known)


def pipeline_layers(written: str, variable: str) -> tuple[int, ...]:
    """Layers of each pipeline stage, as an environment variable names them. Raises InputError for other text."""
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**6 for part in parts):
        hint = "expected the layers of each stage, like 20,12"
        raise InputError.at(f"{variable} is {written!r}", field=variable, hint=hint)
    return tuple(map(int, parts))


def _settled(words: Sequence[Word]) -> tuple[list[Word], frozenset[str]]:
    """The words without the flags whose values are open, and those flags."""
    unclear = {_name(one.flag) or MODEL for one in given([word.text for word in words]) if words[one.value_at].is_open}
    return _without(words, unclear), frozenset(unclear)


def _without(words: Sequence[Word], flags: Collection[str]) -> list[Word]:
    left_out = {
        at
        for one in given([word.text for word in words])
        if (_name(one.flag) or MODEL) in flags
        for at in range(one.at, one.value_at + 1)
    }
    return [word for at, word in enumerate(words) if at not in left_out]


def _name(written: str) -> str:
    found = vllm_flags.find(written) if written else None
    return found.name if found is not None else written


class UnknownModel(msgspec.Struct, frozen=True):
    """Why nothing is known of a model. ``near``: names that look like it. ``local``: it is a folder or a store, in
    which there may well be one. ``never``: why Hugging Face has none of that name, where that is certain."""

    name: str
    near: tuple[str, ...] = ()
    local: bool = False
    never: str = ""

    @property
    def message(self) -> str:
        """In one sentence."""
        if self.never:
            return f"unknown model {self.name!r}: {self.never}"
        return f"nothing is known of the model {'at ' if self.local else ''}{self.name}"

    @property
    def hint(self) -> str:
        """What to do."""
        meant = f"did you mean {' or '.join(self.near)}?" if self.near else ""
        if self.never:
            return meant or "names are those of Hugging Face, like Qwen/Qwen3-8B"
        if self.local:
            return "name the folder like the model, as in /models/Qwen3-8B, to have it weighed"
        give = f"add its config.json to the files as {self.name}/config.json to have it weighed"
        return f"{meant} Else {give}" if meant else give


def shape_of(model: str, shapes: Shapes = _NONE) -> ModelShape | UnknownModel:
    """What is known of a model by its name, the last part of a folder included (``/models/Qwen3-8B``). ``shapes``: of
    models beside those in the table; they count first."""
    name = model.rstrip("/")
    local = model.startswith(("/", "./", "../", "~", *_STORES)) and not model_names.is_address(model)
    own = shapes.get(name) or next((shapes[one] for one in shapes if local and _last(one) == _last(name)), None)
    if own is not None:
        return own
    why, meant = ("", "") if local else model_names.no_name(name)
    if not local and not why and (meant := model_names.meant(name)):
        why = "one letter or two of a known name are wrong"
    if why:
        return UnknownModel(model, (meant,) if meant else (), never=why)
    try:
        return models.get(name)
    except InputError:
        full = {_last(one.name) + end: one.name + end for one in models.all() for end in ("", "-Instruct")}
        near = () if local else names.near(_last(name), full)
        return UnknownModel(model, tuple(full[one] for one in near), local)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def too_few(args: VllmArgs, held: int, *, instances: bool = False) -> str:
    """Why the server does not start with this many GPUs in its pod, or ``instances`` of MIG; empty where it does."""
    if instances and args.gpus > 1:
        return (
            f"the engine needs {args.gpus} GPUs that reach each other, and MIG instances do not: use one that is larger"
        )
    return f"the engine needs {args.gpus} GPUs, the pod holds {held}" if held < args.gpus else ""
