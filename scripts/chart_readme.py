#!/usr/bin/env python3
"""Writes charts/tonnage/README.md's values, from the comments in values.yaml, and rights, from files/rbac.yaml.

`--check` only compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts/tonnage"
NAMESPACE, OPERATOR = "tonnage", "gpu-operator"
"""Those of the release and of the GPU operator in the README."""
APPLY = "in `apply`"
CONTROLLERS = ("scheduler", "replicas", "nodes")
_KEY = re.compile(r"( *)([A-Za-z][\w-]*):(?: .*)?")
_COMMENT = re.compile(r" *# ?(.*)")


class Value(NamedTuple):
    """One value: its path from the root, its default, the comment above it (empty without one)."""

    path: tuple[str, ...]
    default: Any
    text: str

    @property
    def name(self) -> str:
        """The path as ``helm --set`` takes it."""
        return ".".join(self.path)


def read(source: str) -> list[Value]:
    """The leaves of a values file in its order: what is not a block mapping, or has a comment of its own and ``{}``.

    Comments that stand alone, with a blank line after them, belong to no value."""
    lines = source.splitlines()
    tree = yaml.safe_load(source)
    found: list[Value] = []
    path: list[tuple[int, str]] = []
    comments: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            comments.append(comment[1].strip())
            continue
        key = _KEY.fullmatch(line)
        if key is None:
            comments = []
            continue
        indent = len(key[1])
        path = [step for step in path if step[0] < indent]
        parent = tuple(name for _, name in path)
        if _is_leaf(parent, tree):
            comments = []
            continue  # inside a value that is documented as a whole
        path.append((indent, key[2]))
        names = (*parent, key[2])
        if _is_leaf(names, tree):
            found.append(Value(names, _at(tree, names), " ".join(comments)))
        comments = []
    return found


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def _is_leaf(path: tuple[str, ...], tree: Any) -> bool:
    value = _at(tree, path)
    return not isinstance(value, dict) or not value or path[-1:] == ("resources",)


def table(values: list[Value]) -> str:
    """The values as a Markdown table."""
    rows = ["| value | default | |", "|---|---|---|"]
    for value in values:
        text = value.text.replace("|", r"\|")
        rows.append(f"| `{value.name}` | `{json.dumps(value.default)}` | {text} |")
    return "\n".join(rows)


class Right(NamedTuple):
    """What an account may do: ``who`` names the controllers, ``when`` the mode and setting that it takes."""

    who: tuple[str, ...]
    when: str
    rule: dict[str, list[str]]
    scope: str = "-A"


def rights(rbac: dict[str, Any]) -> list[Right]:
    """All that files/rbac.yaml gives, in the order of the README."""
    found = [Right(CONTROLLERS, "", rule | {"verbs": ["list"]}) for rule in rbac["read"]]
    operator, release = f"-n {OPERATOR}", f"-n {NAMESPACE}"
    found += [
        Right(CONTROLLERS, "with `gpuOperator.namespace`", rule, operator) for rule in rbac["gpuOperator"]["read"]
    ]
    found += [Right(CONTROLLERS, APPLY, rule) for rule in rbac["events"]]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    found.append(Right(CONTROLLERS, APPLY, lease | {"verbs": rbac["lease"]["create"]}, release))
    for name in CONTROLLERS:
        own = lease | {"verbs": rbac["lease"]["named"], "resourceNames": [f"tonnage-{name}"]}
        found.append(Right((name,), APPLY, own, release))
    for effect, rules in rbac["apply"].items():
        name, _, backend = effect.partition("/")
        when = f"{APPLY} with `backend: {backend}`" if backend else APPLY
        found += [Right((name,), when, rule) for rule in rules]
    when = f"{APPLY} with `partitioning: relayout`"
    found += [Right(("scheduler",), when, rule, operator) for rule in rbac["gpuOperator"]["write"]]
    return found + [Right(("scheduler",), when, rule) for rule in rbac["gpuOperator"]["nodes"]]


def commands(right: Right) -> list[str]:
    """The questions to kubectl, each without whom it asks about, that answer yes."""
    rule, found = right.rule, []
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plural, _, subresource = resource.partition("/")
            kind = f"{plural}.{group}" if group else plural
            for name in rule.get("resourceNames", [""]):
                words = f"{kind}/{name}" if name else kind
                words += f" --subresource={subresource}" if subresource else ""
                found += [f"kubectl auth can-i {verb} {words} {right.scope}" for verb in rule["verbs"]]
    return found


def proofs(found: list[Right]) -> str:
    """The rights as Markdown: by who has them and when, the commands that prove them."""
    grouped: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for right in found:
        grouped.setdefault((right.who, right.when), []).extend(commands(right))
    parts = []
    for (who, when), lines in grouped.items():
        names = "Every controller" if who == CONTROLLERS else f"`{who[0]}`"
        parts.append(
            f"{names} {when or 'in both modes, and the same with get and watch'}:\n\n```sh\n"
            + "\n".join(lines)
            + "\n```"
        )
    return "\n\n".join(parts)


def between(readme: str, what: str, text: str) -> str:
    """The README with the text between the markers of this name."""
    begin, end = f"<!-- {what} -->", f"<!-- end of {what} -->"
    head, _, rest = readme.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{text}\n{end}{tail}"


def rendered(readme: str, values: list[Value], rbac: dict[str, Any]) -> str:
    """The README with what is written into it."""
    return between(between(readme, "values", table(values)), "rights", proofs(rights(rbac)))


def main() -> int:
    """Writes the README; with ``--check``, 1 when it would change."""
    path = CHART / "README.md"
    before = path.read_text()
    rbac = yaml.safe_load((CHART / "files/rbac.yaml").read_text())
    after = rendered(before, read((CHART / "values.yaml").read_text()), rbac)
    if "--check" in sys.argv[1:]:
        if before != after:
            print("charts/tonnage/README.md is not up to date: run scripts/chart_readme.py", file=sys.stderr)
            return 1
        return 0
    path.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
