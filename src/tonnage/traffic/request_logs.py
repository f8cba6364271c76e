"""Request logs as gateways and engines write them: who asked when, with which prompt, and how much was answered.

Read are, recognised line by line:

- JSON Lines of OpenAI requests, alone or with their responses (``messages`` or ``prompt``; a batch file's ``body``; a
  gateway's ``request`` and ``response``; LiteLLM's ``startTime`` and ``response``), or of token ids
  (``prompt_token_ids``, ``token_ids``, ``input_ids``);
- vLLM's own log (``--enable-log-requests``): its lines ``Received request …: prompt: …, prompt_token_ids: …``, or of
  newer releases ``Request … details: prompt: …`` (``VLLM_LOGGING_LEVEL=DEBUG``) and ``Received request …: params: …``
  (vllm-project/vllm, vllm/entrypoints/logger.py); all others are passed over;
- sessions as ShareGPT has them (``conversations`` of ``from`` and ``value``), one JSON object a line or one array:
  each answer is a request whose prompt is all that was said before it.

No message of an error repeats what a prompt says.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tonnage.errors import InputError
from tonnage.objects.tree import without_halves
from tonnage.units import NS_PER_S

_PROMPTS = ("prompt_token_ids", "token_ids", "input_ids", "messages", "prompt", "input", "conversations")
_INSIDE = ("body", "request", "kwargs", "data", "proxy_server_request")
_TIMES = ("timestamp", "arrival_time", "startTime", "start_time", "time", "ts", "created_at", "created", "@timestamp")
_SCALES = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000))
"""From which number on a time counts in units of so many nanoseconds: those since 1970 of 1973 and later. Below all
of them it counts seconds."""
_VLLM = re.compile(
    r"Received request (?P<id>[^:]*): prompt: (?P<prompt>.*), params: SamplingParams\((?P<params>.*)\), "
    r"prompt_token_ids: (?P<ids>\[[\d, ]*\]|None)"
)
_VLLM_DETAILS = re.compile(
    r"Request (?P<id>\S+) details: prompt: (?P<prompt>.*), prompt_token_ids: (?P<ids>\[[\d, ]*\]|None)"
)
_VLLM_PARAMS = re.compile(r"Received request (?P<id>[^:]*): params: SamplingParams\((?P<params>.*)\)")
_VLLM_LORA = re.compile(r"lora_request: LoRARequest\(.*?lora_name='(?P<name>[^']*)'")
_VLLM_TIME = re.compile(r"\b\d\d-\d\d \d\d:\d\d:\d\d\b")
_MOST_TOKENS = re.compile(r"\bmax_tokens=(\d+)")
_SHAREGPT = {"human": "user", "gpt": "assistant"}
_DEPTH = 3
_MOST_TOKENS_OF_ONE = 2**31 - 1
_MOST_ID = 2**32 - 1
_OF_A_MESSAGE = dict.fromkeys(("name", "tool_calls", "function_call", "tool_call_id")).keys()
"""What a message has beside role and content, and templates print."""
_NO_PROMPT = "neither a text, token ids nor messages"
_NO_IDS = "neither texts, messages nor token ids throughout"


class Said(msgspec.Struct, frozen=True):
    """A text in parts, whose token ids are those of the parts: of a chat, one a message. What a session repeats at each
    turn, and system prompts, are equal parts."""

    parts: tuple[str, ...]


class Logged(msgspec.Struct, frozen=True):
    """One request. ``at_ns``: nanoseconds since the log's own beginning of time, None where the log has no time.
    ``prompt``: what it says, or its token ids. ``answer``: output tokens, what it says, or None where neither is there;
    ``limit``: the most output tokens that were asked for, None where that is not said. ``apart``: whose prompts share
    nothing with those of others (model, adapter, ``cache_salt``). ``turn`` counts the requests of one session."""

    line: int
    at_ns: int | None
    prompt: Said | tuple[int, ...]
    answer: int | Said | None
    limit: int | None = None
    apart: tuple[str, ...] = ()
    turn: int = 0


def read(text: str, name: str, passed: Callable[[int], None] = lambda _: None) -> Iterator[Logged]:
    """The requests of a log, in the order of its lines. ``name`` is the file's, for messages; ``passed`` is told the
    number of each line that is passed over, empty ones aside.

    Raises InputError with the line where one is neither of the forms above nor plain text between vLLM's lines."""
    if text.lstrip().startswith("["):
        yield from _array(text, name)
        return
    details: dict[str, re.Match[str]] = {}
    for number, line in enumerate(_lines(text), start=1):
        if line.lstrip().startswith("{"):
            yield from _record(_decoded(line, name, number), name, number)
        elif found := _VLLM.search(line):
            yield _of_vllm(found, found, name, number)
        elif found := _VLLM_DETAILS.search(line):
            details[found["id"]] = found
        elif found := _VLLM_PARAMS.search(line):
            prompt = details.pop(found["id"], None)
            if prompt is None:
                hint = "let vLLM log prompts: VLLM_LOGGING_LEVEL=DEBUG beside --enable-log-requests"
                raise _wrong(name, number, "", "the prompt of this request is not in the log", hint)
            yield _of_vllm(prompt, found, name, number)
        elif "Received request" in line:
            raise _wrong(name, number, "", "the prompt is not in this line", "is it one of vLLM's, and whole?")
        elif line.strip():
            passed(number)


def _lines(text: str) -> Iterator[str]:
    """One at a time: a log is large. Other line ends than a line feed stand inside of texts."""
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def _array(text: str, name: str) -> Iterator[Logged]:
    try:
        records = msgspec.json.decode(text, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise _wrong(
            name, 1, "", "neither JSON Lines nor an array of JSON objects", "give one request a line"
        ) from error
    for number, record in enumerate(records, start=1):
        yield from _record(record, name, number)


def _decoded(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        try:
            found = json.loads(line)  # takes half of a surrogate pair, as JavaScript writes it
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _wrong(name, number, "", "not a JSON object", "one JSON object a line is expected") from error
        whole: dict[str, Any] = without_halves(found)
        return whole


def _record(record: Mapping[str, Any], name: str, line: int) -> Iterator[Logged]:
    asked = _holder(record, _PROMPTS, _DEPTH)
    if asked is None:
        raise _wrong(name, line, _PROMPTS[0], "no prompt is here", f"expected one of {', '.join(_PROMPTS)}")
    at = _time(record, name, line)
    at = _time(asked, name, line) if at is None else at
    if "conversations" in asked:
        yield from _session(asked["conversations"], at, name, line)
        return
    limits = [key for key in ("max_completion_tokens", "max_tokens", "max_output_tokens") if asked.get(key) is not None]
    limit = _count(asked[limits[0]], name, line, limits[0]) if limits else None
    apart = tuple(str(asked.get(key) or record.get(key) or "") for key in ("model", "lora", "cache_salt"))
    answer = _answer(record, name, line)
    for prompt in _prompts(asked, name, line):
        yield Logged(line, at, prompt, answer, limit, apart)


def _holder(record: Mapping[str, Any], fields: Sequence[str], depth: int) -> Mapping[str, Any] | None:
    """The object that has one of the fields: the record, or one inside it where gateways put requests."""
    if any(record.get(field) is not None for field in fields):
        return record
    inside = (record.get(key) for key in _INSIDE) if depth else ()
    found = (_holder(one, fields, depth - 1) for one in inside if isinstance(one, Mapping))
    return next((one for one in found if one is not None), None)


def _prompts(asked: Mapping[str, Any], name: str, line: int) -> Iterator[Said | tuple[int, ...]]:
    """The prompt of a request, or those of one that has several."""
    field = next(one for one in _PROMPTS if asked.get(one) is not None)
    value = asked[field]
    before = [("tools", msgspec.json.encode(asked["tools"]).decode())] if asked.get("tools") else []
    if isinstance(asked.get("instructions"), str):
        before.append(("system", asked["instructions"]))
    if isinstance(value, str):
        yield chat([*before, ("user", value)]) if before else Said((value,))
    elif value == []:
        raise _wrong(name, line, field, "an empty prompt", "a text, token ids or messages are expected")
    elif not isinstance(value, list):
        raise _wrong(name, line, field, _NO_PROMPT, "a text, token ids or messages are expected")
    elif all(_is_token(one) for one in value):
        yield tuple(value)
    elif all(isinstance(one, Mapping) for one in value):
        yield chat([*before, *((str(one.get("role", "user")), _content(one)) for one in value)])
    elif all(isinstance(one, str) for one in value):
        yield from (Said((one,)) for one in value)
    elif all(isinstance(one, list) and one and all(_is_token(id_) for id_ in one) for one in value):
        yield from (tuple(one) for one in value)
    else:
        raise _wrong(name, line, field, _NO_IDS, f"token ids are whole numbers from 0 to {_MOST_ID}")


def chat(messages: Sequence[tuple[str, str]]) -> Said:
    """(role, content) of each message, in ChatML. A model's own template has other marks and as many: what prompts have
    in common does not depend on it."""
    return Said(
        (*(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages), "<|im_start|>assistant\n")
    )


def _content(message: Mapping[str, Any]) -> str:
    """All that a template prints of a message. An image, a sound or a file is a digest of what names it."""
    content = message.get("content")
    if isinstance(content, str) and not message.keys() & _OF_A_MESSAGE:
        return content
    parts = content if isinstance(content, list) else [content] if content is not None else []
    text = "".join(_part(part) for part in parts)
    more = {key: message[key] for key in _OF_A_MESSAGE if message.get(key)}
    return text + (msgspec.json.encode(more).decode() if more else "")


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return f"<|{hashlib.blake2b(msgspec.json.encode(part), digest_size=8).hexdigest()}|>"


def _answer(record: Mapping[str, Any], name: str, line: int) -> int | Said | None:
    """Output tokens, as counted by whoever served it, else the text of the first answer."""
    response: Any = record.get("response", record)
    if isinstance(response, str):
        return Said((response,))
    for one in (response, response.get("body") if isinstance(response, Mapping) else None, record):
        if not isinstance(one, Mapping):
            continue
        usage = one.get("usage")
        counts = (usage if isinstance(usage, Mapping) else {}, one)
        for of, key in ((of, key) for of in counts for key in ("completion_tokens", "output_tokens", "output_length")):
            if of.get(key) is not None:
                return _count(of[key], name, line, key)
        choices = one.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            message = choices[0].get("message")
            text = _content(message) if isinstance(message, Mapping) else str(choices[0].get("text", ""))
            return Said((text,))
        output = one.get("output")
        if isinstance(output, list) and output:
            return Said(("".join(_content(part) for part in output if isinstance(part, Mapping)),))
    return None


def _session(turns: Any, at: int | None, name: str, line: int) -> Iterator[Logged]:
    if not isinstance(turns, list) or not all(isinstance(one, Mapping) for one in turns):
        raise _wrong(name, line, "conversations", "not a list of turns", 'each turn has "from" and "value"')
    said: list[tuple[str, str]] = []
    number = 0
    for one in turns:
        speaker, value = str(one.get("from", one.get("role", ""))), str(one.get("value", one.get("content", "")))
        role = _SHAREGPT.get(speaker, speaker)
        if role == "assistant" and said:
            yield Logged(line, at, chat(said), Said((value,)), turn=number)
            number += 1
        said.append((role, value))


def _of_vllm(found: re.Match[str], params: re.Match[str], name: str, line: int) -> Logged:
    """``found`` has the prompt, ``params`` the limit, the time and the adapter."""
    limit = _MOST_TOKENS.search(params["params"])
    lora = _VLLM_LORA.search(params.string, params.start("params"))
    prompt: Said | tuple[int, ...]
    if found["ids"] != "None":
        prompt = tuple(msgspec.json.decode(found["ids"], type=list[int]))
        if not all(_is_token(one) for one in prompt):
            raise _wrong(name, line, "prompt_token_ids", _NO_IDS, f"expected numbers up to {_MOST_ID}")
    else:
        try:
            prompt = Said((str(ast.literal_eval(found["prompt"])),))
        except (ValueError, SyntaxError) as error:
            raise _wrong(
                name, line, "prompt", "not a whole text", "let vLLM log whole prompts: no --max-log-len"
            ) from error
    begun = _VLLM_TIME.search(params.string, 0, params.start())
    at = _calendar(f"2000-{begun[0]}") if begun else None
    most = _count(int(limit[1]), name, line, "max_tokens") if limit else None
    return Logged(line, at, prompt, None, most, ("", lora["name"] if lora else "", ""))


def _time(record: Mapping[str, Any], name: str, line: int) -> int | None:
    field = next((one for one in _TIMES if record.get(one) is not None), None)
    if field is None:
        return None
    value = record[field]
    if isinstance(value, str):
        at = _number(float(value)) if re.fullmatch(r"\d+(\.\d+)?", value) else _calendar(value)
    else:
        at = _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if at is None:
        raise _wrong(name, line, field, "not a time", "expected ISO 8601, or seconds, ms, µs or ns since 1970")
    return at


def _number(value: float) -> int | None:
    if not 0 <= value < 1e20:
        return None
    unit = next((ns for least, ns in _SCALES if value >= least), NS_PER_S)
    return value * unit if isinstance(value, int) else round(value * unit)


def _calendar(text: str) -> int | None:
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    since = at.replace(tzinfo=at.tzinfo or datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_ID


def _count(value: Any, name: str, line: int, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS_OF_ONE:
        return value
    raise _wrong(name, line, field, "not a number of tokens", f"expected a whole number up to {_MOST_TOKENS_OF_ONE}")


def _wrong(name: str, line: int, field: str, message: str, hint: str) -> InputError:
    return InputError.at(message, file=name, line=line, field=field, hint=hint)
