"""The one way to a terminal: what a file says cannot steer it.

A label, an image or a message may hold escape sequences. Of text for people, control characters but for line ends and
tabs are shown as ``\\x1b``, and those that turn the direction of writing as ``\\u202e``; of JSON as JSON writes them.
"""

from __future__ import annotations

import re

import click

_UNSEEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_UNSEEN}]")
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with its control characters spelt out; line ends and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\u0100" else _in_json(found), text)


def echo(message: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Write to standard output or error. ``str`` is for people, ``bytes`` are a JSON document, in UTF-8."""
    text = _RAW_IN_JSON.sub(_in_json, message.decode()) if isinstance(message, bytes) else visible(message)
    click.echo(text, err=err, nl=nl)


def _in_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
