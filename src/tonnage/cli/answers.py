"""Answers for programs: a JSON document, or YAML that says the same."""

from __future__ import annotations

from tonnage.cli import terminal

JSON, YAML = "json", "yaml"


def show(document: bytes, form: str) -> None:
    """Print a JSON document as it is, or where ``form`` is yaml as YAML: fields in the same order, and columns of
    numbers on one line."""
    if form == JSON:
        terminal.echo(document.rstrip(b"\n"))
        return
    import msgspec

    from tonnage.objects.dump import written

    terminal.echo(written([msgspec.json.decode(document)], flow=None), nl=False)
