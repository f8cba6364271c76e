"""Paths that a user names: bundled examples, and output files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tonnage.errors import InputError

EXAMPLES = "examples"


def existing(path: Path) -> Path:
    """``path``, or where nothing exists there the bundled example of that name: ``examples/traffic-surge``,
    ``traffic-surge``, or a path inside it. A path that is neither comes back as it is."""
    if path.exists() or path.is_absolute() or ".." in path.parts:
        return path
    inside = path.relative_to(EXAMPLES) if path.parts[:1] == (EXAMPLES,) else path
    folder = bundled_examples()
    if folder is None or not inside.parts or not (folder / inside).exists():
        return path
    return _short(folder / inside)


def text(path: Path, expected: str) -> str:
    """What the file says, as UTF-8 with or without a mark.

    Raises InputError where it cannot be read, with what was ``expected``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.at("not UTF-8 text", file=str(path), hint=expected) from error
    except OSError as error:
        raise InputError.at(f"cannot be read: {error.strerror}", file=str(path), hint="check the path") from error


def bundled_examples() -> Path | None:
    """The folder of the examples: in the installed package, or in the source tree; None where neither is there."""
    package = Path(__file__).resolve().parents[1]
    candidates = (package / "_examples", package.parents[1] / EXAMPLES)
    return next((folder for folder in candidates if folder.is_dir()), None)


def check_writable(path: Path) -> None:
    """Make sure that :func:`write` can write ``path``, and leave nothing behind. Raises InputError."""
    if path.is_dir():
        raise _unwritable(path, "it is a folder")
    if not path.parent.is_dir():
        raise _unwritable(path, f"there is no folder {path.parent}")
    try:
        if _is_special(path):
            path.open("ab").close()
            return
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "Permission denied")
        beside = _beside(path)
        beside.open("xb").close()
        beside.unlink()
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def write(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8. Whoever reads ``path`` meanwhile sees the old file or the new one, never a part.

    Raises InputError where that cannot be done."""
    try:
        if _is_special(path):
            path.write_text(text, encoding="utf-8")
            return
        beside = _beside(path)
        try:
            with beside.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            beside.replace(path.resolve())
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def _is_special(path: Path) -> bool:
    """A device or a pipe (/dev/null, /dev/stdout): it must not be replaced by a file."""
    return path.exists() and not path.is_file()


def _beside(path: Path) -> Path:
    real = path.resolve()
    return real.with_name(f".{real.name}.{os.getpid()}.tmp")


def _unwritable(path: Path, why: str) -> InputError:
    return InputError.at(f"cannot be written: {why}", file=str(path), hint="choose a path that can be written")


def _short(path: Path) -> Path:
    """Relative where that is shorter to read: below the current folder."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
