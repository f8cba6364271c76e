from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kube_programs
from tonnage.errors import InputError
from tonnage.objects import tree

SCALARS = {
    "yes": True,
    "On": True,
    "y": True,
    "NO": False,
    "off": False,
    "n": False,
    "oN": "oN",
    "~": None,
    "null": None,
    "Null": None,
    "010": 8,
    "0o17": 15,
    "08": 8,
    "0x1F": 31,
    "0b11": 3,
    "1_000": 1000,
    "+5": 5,
    "-010": -8,
    "1e3": 1000,
    "3.0": 3,
    "1.5": 1.5,
    ".5": 0.5,
    "1e400": "1e400",
    "12:30": "12:30",
    "2026-07-20": "2026-07-20",
    "2026-07-20T10:00:00Z": "2026-07-20T10:00:00Z",
    "1.2.3": "1.2.3",
    "4Gi": "4Gi",
    "500m": "500m",
    ".": ".",
    "+": "+",
    "1_": 1,
    "18446744073709551615": 18446744073709551615.0,
}
"""Plain scalars and what kubectl makes of them."""

QUOTED = {'"on"': "on", "'010'": "010", "!!str 10": "10", "!!str on": "on", '!!int "10"': 10, "|-\n    on": "on"}


def values(text: str) -> Any:
    (found,) = tree.parse(text, "x.yaml")
    return found.value


def problems(text: str) -> list[str]:
    (found,) = tree.parse(text, "x.yaml")
    return [str(problem) for problem in found.problems]


@pytest.mark.parametrize(("written", "value"), [*SCALARS.items(), *QUOTED.items()])
def test_a_scalar_means_what_it_means_to_kubernetes(written: str, value: Any) -> None:
    found = values(f"k: {written}\n")["k"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "name"), [("on", "true"), ("n", "false"), ("010", "8"), ("1.5", "1.5"), ("'on'", "on"), ("a/b", "a/b")]
)
def test_a_key_is_read_like_a_scalar_and_made_a_string(key: str, name: str) -> None:
    assert values(f"{key}: v\n") == {name: "v"}


@pytest.mark.peer
def test_kubectl_reads_the_same_scalars_keys_and_merges(tmp_path: Path) -> None:
    # Floats beyond 2**63 are printed without an exponent, which Python reads as an integer.
    plain = [written for written, value in SCALARS.items() if value != 2.0**64]
    lines = [f"  k{i}: {written}" for i, written in enumerate([*plain, *QUOTED])]
    lines += ["  on: a", "  10: b", "  1.5: c", "  merged:", "    <<: [*one, *two]", "    b: own", "    c: own"]
    data = "anchors:\n  one: &one {a: 1, b: 1}\n  two: &two {a: 2, d: 2}\ndata:\n" + "\n".join(lines) + "\n"
    file = tmp_path / "in.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" + data)
    command = [str(kube_programs.kubectl()), "label", "--local", "-f", str(file), "x=y", "-o", "json"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert values(data)["data"] == json.loads(printed)["data"]


def test_the_text_of_a_scalar_that_is_not_what_it_looks_like_is_kept() -> None:
    (found,) = tree.parse("a: on\nb: [010, 10, 'on']\nc: 3.0\nd: true\n", "x.yaml")
    assert found.written == {"a": "on", "b[0]": "010", "c": "3.0"}


def test_a_key_that_stands_twice_is_told_with_both_places_in_reach() -> None:
    assert problems("a: 1\nb:\n  c: 1\n  c: 2\n") == ["x.yaml:4:b.c: the key 'c' appears twice (keep one of them)"]
    assert problems("on: 1\n'true': 2\n") == ["x.yaml:2:true: the key 'true' appears twice (keep one of them)"]


def test_an_anchor_is_taken_over_with_the_line_on_which_its_parts_stand() -> None:
    (found,) = tree.parse("a: &x\n  b: 1\nc: *x\n", "x.yaml")
    assert found.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert (found.lines["c"], found.lines["c.b"]) == (3, 2)


def test_what_stands_beside_a_merge_key_wins_wherever_it_stands() -> None:
    assert values("a: &x {p: 1, q: 1}\nb:\n  p: 2\n  <<: *x\n")["b"] == {"p": 2, "q": 1}
    assert values("a: &x {p: 1, q: 1}\nb:\n  <<: *x\n  p: 2\n")["b"] == {"p": 2, "q": 1}


def test_of_several_merged_mappings_the_first_wins_and_merges_nest() -> None:
    assert values("a: &a {p: 1}\nb: &b {p: 2, q: 2}\nc: {<<: [*a, *b]}\n")["c"] == {"p": 1, "q": 2}
    assert values("a: &a {p: 1}\nb: &b {<<: *a, q: 2}\nc: {<<: *b}\n")["c"] == {"p": 1, "q": 2}


def test_merging_something_else_than_a_mapping_is_told() -> None:
    assert problems("a: &a 1\nb: {<<: *a}\n") == ["x.yaml:1:b: << must name a mapping (e.g. <<: *defaults)"]


def test_an_unrendered_template_is_told_as_such() -> None:
    assert problems("a:\n  {{ .Values.a }}: 1\n") == [
        "x.yaml:2:a: a key must be a string (a Helm template must be rendered first: helm template)"
    ]


def test_an_alias_inside_its_own_anchor_is_refused() -> None:
    with pytest.raises(InputError, match=r"x.yaml:1:a\[0\]: an alias is inside its own anchor"):
        values("a: &a [*a]\n")


def test_aliases_that_multiply_without_end_are_refused() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 9):
        text += f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
    with pytest.raises(InputError, match="the aliases stand for more than 100000 values"):
        values(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "x.yaml:2: not valid YAML"),
        ("a: b: c\n", "x.yaml:1: not valid YAML"),
        ("a: \x00\n", "x.yaml: not valid YAML"),
        ("a: *b\n", "x.yaml:1: not valid YAML"),
    ],
)
def test_broken_yaml_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        values(text)
    assert str(raised.value).startswith(message)


def test_documents_keep_the_lines_of_the_file_and_empty_ones_are_passed_over() -> None:
    found = list(tree.parse("---\n# nothing\n---\na: 1\n---\n~\n---\n\nb: 2\n", "x.yaml"))
    assert [(one.value, one.line, one.lines) for one in found] == [({"a": 1}, 4, {"a": 4}), ({"b": 2}, 9, {"b": 9})]


JSON = """\
{
  "a": {"b": [1,
    {"c": "x, {y}"}],
    "d\\u00e9\\"": "\\ud83d\\ude00"},

  "e": []
}
"""


def test_json_has_lines_too() -> None:
    found = tree.parse_json(JSON, "x.json")
    assert found.value == {"a": {"b": [1, {"c": "x, {y}"}], 'dé"': "😀"}, "e": []}
    assert found.lines == {"a": 2, "a.b": 2, "a.b[0]": 2, "a.b[1]": 3, "a.b[1].c": 3, 'a.dé"': 4, "e": 6}


def test_a_json_key_that_stands_twice_is_told() -> None:
    found = tree.parse_json('{"a": {"b": 1,\n"b": 2}}', "x.json")
    assert [str(problem) for problem in found.problems] == [
        "x.json:2:a.b: the key 'b' appears twice (keep one of them)"
    ]


def test_broken_json_is_told_with_line_and_column() -> None:
    with pytest.raises(InputError, match=r"x.json:2: not valid JSON: Expecting ',' delimiter \(column 9\)"):
        tree.parse_json('{"a": 1,\n "b": 2 "c": 3}', "x.json")


keys = st.text(
    st.characters(codec="ascii", exclude_characters=".[]", exclude_categories=["Cc"]), min_size=1, max_size=5
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def laid_out(value: Any, path: str = "", line: int = 1) -> tuple[dict[str, int], int]:
    """The line of each field when every item has a line of its own, and the line on which the value ends."""
    if isinstance(value, dict):
        below = [(f"{path}.{key}" if path else key, inner) for key, inner in value.items()]
    else:
        below = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)] if isinstance(value, list) else []
    lines: dict[str, int] = {}
    for inner_path, inner in below:
        lines[inner_path] = line + 1
        inside, line = laid_out(inner, inner_path, line + 1)
        lines |= inside
    return lines, line + 1 if below else line


@given(st.dictionaries(keys, json_values, max_size=4))
def test_every_field_of_a_json_text_has_the_line_it_stands_on(value: dict[str, Any]) -> None:
    spread = tree.parse_json(json.dumps(value, indent=1), "x.json")
    assert (spread.value, spread.lines) == (value, laid_out(value)[0])
    on_one_line = tree.parse_json(json.dumps(value), "x.json")
    assert on_one_line.lines == dict.fromkeys(laid_out(value)[0], 1)


@given(st.dictionaries(keys, json_values, max_size=4))
def test_json_is_read_alike_as_yaml(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    if not all(character.isprintable() or character == "\n" for character in text):
        return
    assert values(text) == value
    (as_yaml,) = tree.parse(text, "x")
    assert as_yaml.lines == tree.parse_json(text, "x").lines
