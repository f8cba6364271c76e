"""What a module keeps is facts, or the answers of pure functions: nobody changes it, and it does not grow for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from docs_outputs import REPOSITORY

CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "update",
    ]
)
OWN = "it is asked of what the program itself has: engines, kinds, regions, files of facts"
UNBOUNDED = {
    "apiserver/tables.py:columns": OWN,
    "inference/servers/engine_flags.py:flags": OWN,
    "inference/servers/engine_metrics.py:engine_metrics": OWN,
    "inference/servers/exposition.py:_names": OWN,
    "inference/index/hashes.py:_blocks": "one entry for each block size of the engines that there are",
    "inference/tables.py:rows": OWN,
    "inference/vllm_flags.py:choices": OWN,
    "objects/dump.py:_fields": OWN,
    "objects/api/protobuf.py:_puts": OWN,
    "objects/podlist.py:_mirror": OWN,
    "objects/unknown.py:_known": OWN,
    "objects/unknown.py:read_members": OWN,
    "provisioning/catalogue.py:_bundled": OWN,
    "simulation/report/page.py:_asset": OWN,
}
"""Caches of functions with arguments that keep every answer, and why that is bounded all the same."""
REGISTERED = {"cel/registry.py: _VARIANTS.setdefault(name, [])": "a decorator writes it while modules are imported"}
"""What functions change of their module all the same, and why."""


def changes(text: str) -> Iterator[str]:
    """What functions change of what the module has at its top: statements, as they stand."""
    tree = ast.parse(text)
    top = {name.id for node in tree.body for name in _targets(node)}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        own |= {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        for node in ast.walk(function):
            match node:
                case ast.Global():
                    yield ast.unparse(node)
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in top - own:
                    yield ast.unparse(node)
                case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in top - own:
                    yield ast.unparse(node)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if (
                    name in top - own and attr in CHANGES
                ):
                    yield ast.unparse(node)


def _targets(node: ast.stmt) -> Iterator[ast.Name]:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one for one in targets if isinstance(one, ast.Name))


def caches(text: str) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of functions whose answers are kept: all of them for ever, or with the object asked."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        how = [ast.unparse(one).removeprefix("functools.") for one in node.decorator_list]
        kept = next((one for one in how if one == "cache" or one.startswith("lru_cache")), None)
        arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if kept is not None and arguments:
            if arguments[0] in ("self", "cls"):
                yield node.name, "keeps the object"
            elif kept in ("cache", "lru_cache(maxsize=None)"):
                yield node.name, "keeps every answer"


def _modules() -> Iterator[tuple[str, str]]:
    root = REPOSITORY / "src" / "tonnage"
    for path in sorted(root.rglob("*.py")):
        yield str(path.relative_to(root)), path.read_text(encoding="utf-8")


@pytest.mark.fuzz
def test_no_function_changes_what_its_module_has() -> None:
    assert {f"{file}: {one}" for file, text in _modules() for one in changes(text)} == set(REGISTERED)


@pytest.mark.fuzz
def test_what_caches_keep_is_bounded() -> None:
    found = {f"{file}:{name}": what for file, text in _modules() for name, what in caches(text)}
    strangers = [one for one in found if one not in UNBOUNDED]
    assert not strangers, "give it a maxsize, or list it in UNBOUNDED with its reason"
    assert set(UNBOUNDED) == set(found), "what is bounded now, or gone, is no longer listed"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SEEN = {}\ndef f(x): SEEN[x] = 1", ["SEEN[x]"]),
        ("SEEN: list[int] = []\ndef f(x): SEEN.append(x)", ["SEEN.append(x)"]),
        ("LAST = None\ndef f(x):\n    global LAST\n    LAST = x", ["global LAST"]),
        ("SEEN = {}\ndef f(SEEN): SEEN[1] = 1", []),
        ("SEEN = {}\ndef f():\n    SEEN = {}\n    SEEN[1] = 1", []),
        ("SEEN = {}\ndef f(x): return SEEN.get(x)", []),
        ("SEEN = {}\nSEEN[1] = 2", []),
    ],
)
def test_changes_of_a_module_are_found(text: str, found: list[str]) -> None:
    assert list(changes(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@cache\ndef f(x): pass", [("f", "keeps every answer")]),
        ("@functools.lru_cache(maxsize=None)\ndef f(*, x): pass", [("f", "keeps every answer")]),
        ("class A:\n    @lru_cache(maxsize=4)\n    def f(self): pass", [("f", "keeps the object")]),
        ("@lru_cache(maxsize=4)\ndef f(x): pass", []),
        ("@lru_cache\ndef f(x): pass", []),
        ("@cache\ndef f(): pass", []),
    ],
)
def test_caches_without_bound_are_found(text: str, found: list[tuple[str, str]]) -> None:
    assert list(caches(text)) == found
