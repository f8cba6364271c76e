"""mig-parted's hooks file, version v1: programs that it runs around a change. Read, checked, written.

Source: NVIDIA/mig-parted api/hooks/v1, cmd/nvidia-mig-parted/apply."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.facts import names
from tonnage.partitioning.documents import ConfigDocument, check_version, typed, unknown_fields
from tonnage.partitioning.mig_parted import WHO

HOOKS = ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")
"""When hooks run, in this order."""


class Hook(Struct, frozen=True, omit_defaults=True):
    """A program that mig-parted runs. ``envs``: mig-parted's own variables win over these."""

    command: str
    args: list[str] = []
    envs: dict[str, str] = {}
    workdir: str = ""


class Hooks(Struct, frozen=True):
    """Programs by the moment at which they run, in order."""

    hooks: Mapping[str, tuple[Hook, ...]]


def parse(document: ConfigDocument) -> Hooks:
    """The hooks of a document. Raises InputError for what mig-parted refuses, and for a moment that never comes."""
    problems = check_version(document, required=True)
    value = document.value if isinstance(document.value, dict) else {}
    at = document.problem
    unknown = [key for key in value if key not in ("version", "hooks")]
    problems += [at(key, f"unknown field {key!r}", "expected hooks") for key in unknown]
    hooks, found = value.get("hooks"), dict[str, tuple[Hook, ...]]()
    if not isinstance(hooks, dict):
        problems.append(at("hooks", "expected a mapping", f"with {', '.join(HOOKS)}"))
        hooks = {}
    for name, programs in hooks.items():
        if name not in HOOKS:
            near = names.near(name, HOOKS)
            hint = f"did you mean {near[0]}?" if near else f"mig-parted runs {', '.join(HOOKS)}"
            problems.append(at(f"hooks.{name}", f"nothing runs {name!r}", hint))
        if not isinstance(programs, list):
            problems.append(at(f"hooks.{name}", "expected a list", "of entries with command, args, envs and workdir"))
            continue
        made = []
        for number, content in enumerate(programs):
            here = f"hooks.{name}[{number}]"
            problems += unknown_fields(document, content, Hook, here, "it has no effect")
            hook = typed(document, content, Hook, here, WHO)
            if isinstance(hook, list):
                problems += hook
            else:
                made.append(hook)
        found[name] = tuple(made)
    if problems:
        raise InputError(*sorted(problems, key=lambda problem: problem.where.line))
    return Hooks(found)
