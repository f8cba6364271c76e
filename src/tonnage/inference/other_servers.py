"""Which container of a pod is an SGLang or a TensorRT-LLM server, and what its command line says.

A server is recognised by what it runs, also in a shell script: ``python -m sglang.launch_server``, ``sglang serve``,
``trtllm-serve MODEL`` (also ``trtllm-serve serve MODEL``, and behind ``mpirun`` or ``trtllm-llmapi-launch``). The
images of both run no server by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tonnage.facts.models import ModelShape
from tonnage.inference.command_lines import Word, commands
from tonnage.inference.engine_flags import Line, read
from tonnage.inference.servers import Shapes, UnknownModel, shape_of
from tonnage.objects import core

SGLANG, TENSORRT_LLM = "sglang", "tensorrt-llm"
TITLES = {SGLANG: "SGLang", TENSORRT_LLM: "TensorRT-LLM"}
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
            line = read(engine, [word.text for word in rest])
            known = shape_of(line.args.model, shapes) if line.args.model else None
            return OtherServer(engine, index, container, rest, line, known)
    return None


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
