"""Which container of a pod is an SGLang or a TensorRT-LLM server, and what its command line says.

A server is recognised by what it runs, also in a shell script: ``python -m sglang.launch_server``, ``sglang serve``,
``trtllm-serve MODEL`` (also ``trtllm-serve serve MODEL``, and behind ``mpirun`` or ``trtllm-llmapi-launch``). The
images of both run no server by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts.models import ModelShape
from tonnage.inference.servers.command_lines import Word, commands, environment
from tonnage.inference.servers.engine_flags import Line, read
from tonnage.inference.servers.vllm import Shapes, UnknownModel, pipeline_layers, shape_of
from tonnage.objects import core

SGLANG, TENSORRT_LLM = "sglang", "tensorrt-llm"
TITLES = {SGLANG: "SGLang", TENSORRT_LLM: "TensorRT-LLM"}
PARTITION = "SGLANG_PP_LAYER_PARTITION"
"""Layers of each pipeline stage, like 20,12 (sgl-project/sglang srt/distributed/utils.py, get_pp_indices)."""
_NONE: Shapes = {}


class OtherServer(Struct, frozen=True):
    """The server of kind ``engine`` in ``containers[index]``. ``words``: its arguments, and where each stands."""

    engine: str
    index: int
    container: core.Container
    words: tuple[Word, ...]
    line: Line
    known: ModelShape | UnknownModel | None = None

    def field(self, at: int) -> str:
        """The field of the pod's spec in which a word stands."""
        return f"containers[{self.index}].{self.words[at].field}"


def find(spec: core.PodSpec, shapes: Shapes = _NONE) -> OtherServer | None:
    """The first container that is such a server; None if there is none. ``shapes``: of models beside those in the
    table, by their names."""
    for index, container in enumerate(spec.containers):
        for words in commands(container):
            called = _called(words)
            if called is None:
                continue
            engine, start = called
            rest = tuple(words[start:])
            line = _with_stages(read(engine, [word.text for word in rest]), engine, container)
            known = shape_of(line.args.model, shapes) if line.args.model else None
            return OtherServer(engine, index, container, rest, line, known)
    return None


def _with_stages(line: Line, engine: str, container: core.Container) -> Line:
    """The line with the layers of the pipeline stages, which SGLang reads from its environment."""
    written = environment(container).get(PARTITION) if engine == SGLANG else None
    if not written:
        return line
    try:
        return replace(line, args=replace(line.args, pipeline_layers=pipeline_layers(written, PARTITION)))
    except InputError as error:
        return replace(line, problem=line.problem or error.problems[0])


def _called(words: Sequence[Word]) -> tuple[str, int] | None:
    """(engine, where its own arguments begin); None where no such server is called."""
    for at, word in enumerate(words):
        program = word.text.rpartition("/")[2]
        following = words[at + 1].text if at + 1 < len(words) else ""
        if word.text == "-m" and following == "sglang.launch_server":
            return SGLANG, at + 2
        if program == "sglang" and following == "serve":
            return SGLANG, at + 2
        if program == "trtllm-serve":
            return TENSORRT_LLM, at + (2 if following == "serve" else 1)
    return None
