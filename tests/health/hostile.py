"""Input that nobody means well with: seeded, of every kind that a manifest, a scenario or a file's name can be bad in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

from health.broken_sets import PROFILE, all_sets

Json = dict[str, Any]
ESCAPES = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x1b\\link", "\x9b2J", "\x1b[2J\x1b[H", "a\rb", "\x08\x08",
    "\x00", "\x7f", "\u202eevil", "\u2028", "\x85", "\x1bP$q\x1b\\", "[red]markup[/]", "[/bold]", "[link=http://evil.example]x[/link]", ":boom:",
    "a\nerror: not mine", "\t", "%s%n{0}", "\ud83d", "𝔘" * 300, "x" * 100_000, "", " ", "../../etc/passwd", "a/b/c", "*", "$(VAR)",
)  # fmt: skip
NUMBERS = (
    2147483647, -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e400, 1e-400, float("nan"), float("-inf"), 1e308, 0.1, "1e400", "-1",
    "9999999999999999999Ei", "1e-400", "0x7fffffff", "1" * 400, "1" * 5_000, "١٢٣", "1_000", "0", "-0", "1Ki", "1.5", "1e1001", "9" * 30 + "m",
)  # fmt: skip
ODD = (
    None,
    True,
    [],
    {},
    [[]],
    [None],
    {"a": None},
    "text",
    [1, "a", None],
    {"": ""},
    {"x": {"y": {"z": []}}},
    [{}],
    "null",
    "on",
    "2026-01-01",
)
SERVING = (
    "replicas", "parallelism", "completions", "containerPort", "cpu", "memory", "nvidia.com/gpu", "periodSeconds", "failureThreshold",
    "initialDelaySeconds", "timeoutSeconds", "terminationGracePeriodSeconds", "duration", "count", "rate", "ttft", "tpot", "weight", "storage",
)  # fmt: skip
Made = Callable[[Random, Path], list[Path]]


def well(rng: Random) -> tuple[list[Json], Json]:
    """The objects and the scenario of a set, to be spoilt."""
    return copy.deepcopy(rng.choice(all_sets()).parts())


def _set(folder: Path, objects: list[Any], scenario: Json, *, name: str = "objects.yaml") -> list[Path]:
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests" / name).write_text(_dumped_all(objects), encoding="utf-8", errors="surrogatepass")
    if scenario:
        (folder / "scenario.yaml").write_text(_dumped(scenario), encoding="utf-8", errors="surrogatepass")
        (folder / "profile.yaml").write_text(PROFILE.read_text())
    return [folder]


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dumped(value: Any) -> str:
    try:
        return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10**6))
    except (ValueError, UnicodeError):  # a number of more digits than Python writes, a half of a character
        return _json(value)


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {_json(v)}" for k, v in value.items()) + "}\n"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "9" * 400
    return json.dumps(value)


def _dumped_all(objects: list[Any]) -> str:
    return "---\n".join(map(_dumped, objects))


def _places(value: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """Every place of a value: what holds it and under which key."""
    found = [] if found is None else found
    for key, inner in (
        list(value.items()) if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        found.append((value, key))
        _places(inner, found)
    return found


def _spoilt(rng: Random, values: tuple[Any, ...], among: tuple[str, ...] = ()) -> tuple[list[Json], Json]:
    objects, scenario = well(rng)
    for _ in range(rng.choice((1, 1, 2, 5))):
        places = _places(objects) + _places(scenario)
        if among:
            places = [(held, key) for held, key in places if key in among] or places
        held, key = rng.choice(places)
        held[key] = copy.deepcopy(rng.choice(values))
    return objects, scenario


def _wrong_types(rng: Random, folder: Path) -> list[Path]:
    return _set(folder, *_spoilt(rng, (*ODD, *NUMBERS, *ESCAPES)))


def _numbers(rng: Random, folder: Path) -> list[Path]:
    return _set(folder, *_spoilt(rng, NUMBERS, SERVING))


def _escapes(rng: Random, folder: Path) -> list[Path]:
    """Strings that would steer a terminal, in values and in keys."""
    objects, scenario = _spoilt(rng, tuple(f"{rng.choice(('model', ''))}{escape}" for escape in ESCAPES))
    maps = [held[key] for held, key in _places(objects) if isinstance(held[key], dict)]
    if maps and rng.random() < 0.5:
        rng.choice(maps)[rng.choice(ESCAPES)] = rng.choice(ESCAPES)
    where = objects[rng.randrange(len(objects))]
    if isinstance(where, dict) and rng.random() < 0.5:
        metadata = where.get("metadata")
        if isinstance(metadata, dict):
            metadata[rng.choice(("labels", "annotations"))] = {"k": rng.choice(ESCAPES), rng.choice(ESCAPES): "v"}
    return _set(folder, objects, scenario)


def _file_names(rng: Random, folder: Path) -> list[Path]:
    name = rng.choice(
        [
            one
            for one in ESCAPES
            if one.isprintable() is False
            and "\0" not in one
            and "/" not in one
            and len(one) < 60
            and "\ud83d" not in one
        ]
    )
    objects, scenario = _spoilt(rng, ODD)
    _set(folder, objects, scenario, name=f"{name}.yaml")
    return [folder] if rng.random() < 0.5 else [folder / "manifests" / f"{name}.yaml"]


def _many(rng: Random, folder: Path) -> list[Path]:
    """2,147,483,647 of what there is one of."""
    objects, scenario = well(rng)
    most = rng.choice((2147483647, 1_000_000, 10**12))
    for one in objects:
        spec = one.get("spec") if isinstance(one, dict) else None
        if isinstance(spec, dict):
            for key in ("replicas", "parallelism", "completions"):
                if key in spec or key == "replicas":
                    spec[key] = most
    if scenario and rng.random() < 0.5:
        for held, key in _places(scenario):
            if key in ("count", "rate", "copies", "maxReplicas"):
                held[key] = most
    return _set(folder, objects, scenario)


def _bomb(rng: Random, folder: Path) -> list[Path]:
    """Aliases that multiply, contain themselves, or are merged without end."""
    lines = {
        0: "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
        1: "a: &a {x: *a}\n",
        2: "a: &a [*a]\n",
        3: "a: &a {k0: v}\n"
        + "".join(
            f"b{n}: &{n} {{<<: [*{p}, *{p}, *{p}], k{n}: v}}\n"
            for p, n in zip(["a", *map(str, range(59))], range(60), strict=True)
        ),
        4: "a: &a {<<: *a}\n",
        5: "a: &a\n" + "".join(f"  k{n}: v\n" for n in range(300)) + "b:\n" + "  - *a\n" * 20_000,
        6: "<<: [[[]]]\n<<: 3\n<<: *missing\n",
        7: "? {a: b}\n: &k c\n? [1, 2]\n: *k\n? *k\n: 1\n",
    }[rng.randrange(8)]
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\ndata:\n"
    text = lines if rng.random() < 0.5 else head + "".join(f"  {line}\n" for line in lines.splitlines())
    return _file(folder, text)


def _deep(rng: Random, folder: Path) -> list[Path]:
    depth = rng.choice((100, 500, 900, 1_500, 10_000, 100_000))
    text = {
        0: "[" * depth + "]" * depth,
        1: "{a: " * depth + "1" + "}" * depth,
        2: "[" * depth,
        3: '{"a":' * depth + "1" + "}" * depth,
        4: "".join(f"{' ' * n}a:\n" for n in range(min(depth, 1_500))),
        5: "- " * depth + "x",
        6: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: "
        + "{a: " * depth
        + "b"
        + "}" * depth
        + "}\n",
        7: "apiVersion: v1\nkind: List\nitems: "
        + "[{apiVersion: v1, kind: List, items: " * depth
        + "[]"
        + "}]" * depth
        + "\n",
    }[rng.randrange(8)]
    return _file(folder, text, rng.choice((".yaml", ".json")))


def _bytes(rng: Random, folder: Path) -> list[Path]:
    text = _dumped_all(well(rng)[0])
    data = {
        0: b"",
        1: rng.randbytes(4_000),
        2: text.encode("utf-16"),
        3: text.encode("utf-32"),
        4: text.encode().replace(b"name", b"na\0me", 2),
        5: text.replace("  ", "\t").encode(),
        6: text.encode("latin-1", "replace") + b"\xff",
        7: b"\xef\xbb\xbf" + text.encode(),
        8: text.encode().replace(b"\n", b"\r"),
        9: b"\0" * 100_000,
        10: b"---\n" * 50_000,
        11: b"# \x1b[31m\n" + text.encode(),
        12: b"...\n%YAML 9.9\n---\n" + text.encode(),
    }[rng.randrange(13)]
    path = folder / f"x{rng.choice(('.yaml', '.json', '.yml'))}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return [path]


def _tags(rng: Random, folder: Path) -> list[Path]:
    tag = rng.choice(("!!python/object/apply:os.system ['echo x']", "!!python/name:os.system", "!!binary =====", "!!set {a, b}", "!!omap [a: 1]",
                      "!!timestamp 2026-99-99", "!!int x", "!!float x", "!!bool x", "!!null x", "!!merge x", "!x y", "!<tag:x> y", "|\n    \x1b", '"\\x1b[31m"', '"\\u202e"', '"\\ud800"'))  # fmt: skip
    field = rng.choice(
        (
            "metadata: {name: NAME}",
            "metadata:\n  name: x\n  labels: {a: NAME}",
            "spec: NAME",
            "metadata: NAME",
            "kind: NAME",
        )
    )
    return _file(
        folder,
        f"apiVersion: {rng.choice(('v1', 'apps/v1'))}\nkind: {rng.choice(('Pod', 'Deployment', 'Node'))}\n"
        + field.replace("NAME", tag)
        + "\n",
    )


def _twice(rng: Random, folder: Path) -> list[Path]:
    text = _dumped_all(well(rng)[0])
    lines = text.splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        lines[at:at] = [lines[at]] * rng.choice((1, 3, 2_000))
    return _file(folder, "\n".join(lines) + "\n")


def _legal_words(rng: Random, folder: Path) -> list[Path]:
    """Strings where any are allowed: arguments, variables, annotations, names of images and of what is not there."""
    objects, scenario = well(rng)
    words = (
        *(e for e in ESCAPES if "\0" not in e),
        *map(str, NUMBERS),
        "$(A)$$(B)$(",
        "sh -c '",
        '"',
        "--",
        "-",
        "=",
        "--model",
        "\\",
    )
    free = (
        "args",
        "command",
        "env",
        "annotations",
        "data",
        "image",
        "value",
        "query",
        "claimName",
        "key",
        "schedulerName",
    )
    for _ in range(rng.choice((1, 2, 5, 20))):
        held, key = rng.choice([(h, k) for h, k in _places(objects) if k in free] or _places(objects))
        value = held[key]
        if isinstance(value, list):
            value.insert(rng.randint(0, len(value)), rng.choice(words))
        elif isinstance(value, dict):
            value[rng.choice(("a", "b.example/c", *list(value)[:1]))] = rng.choice(words)
        else:
            held[key] = rng.choice(words)
    return _set(folder, objects, scenario)


def _legal_numbers(rng: Random, folder: Path) -> list[Path]:
    """Numbers at the ends of what the API server lets in."""
    objects, scenario = well(rng)
    ends = {
        "replicas": (0, 1, 40),
        "parallelism": (0, 1, 40),
        "completions": (1, 40),
        "periodSeconds": (1, 2147483647),
        "failureThreshold": (1, 2147483647),
        "initialDelaySeconds": (0, 2147483647),
        "terminationGracePeriodSeconds": (0, 2**62),
        "cpu": ("1m", "0", "9223372036854775", "1e15", "8Ei"),
        "memory": ("1", "0", "8Ei", "7Ei", "1m"),
        "nvidia.com/gpu": (0, 1, 2**31, "9223372036854775807", "1k"),
        "containerPort": (1, 65535),
        "storage": ("1", "8Ei", "1m"),
        "duration": ("1s", "50ms", "8h"),
        "rate": (1e-9, 1e-300, 3.0, 1e300),
        "count": (1, 500),
        "ttft": ("1ms", "1000000h"),
        "tpot": ("1ms", "1000000h"),
        "minReplicas": (1, 2147483647),
        "maxReplicas": (1, 2147483647),
        "averageValue": ("1n", "8Ei"),
        "value": (-2147483648, 1_000_000_000),
    }
    places = [
        (h, k) for h, k in (*_places(objects), *_places(scenario)) if k in ends and not isinstance(h[k], dict | list)
    ]
    for held, key in rng.sample(places, min(len(places), rng.choice((1, 2, 4)))):
        held[key] = rng.choice(ends[key])
    for container in (h for h, k in _places(objects) if k == "args" and rng.random() < 0.3):
        container["args"] = [*container["args"], rng.choice(("--max-model-len", "--tensor-parallel-size", "--max-num-seqs", "--block-size", "--gpu-memory-utilization", "--max-num-batched-tokens")) + f"={rng.choice((0, 1, 2147483647, 10**18, 1e-300, 0.99999, -1))}"]  # fmt: skip
    return _set(folder, objects, scenario)


def _crowd(rng: Random, folder: Path) -> list[Path]:
    """Hundreds of what a set has one of: workloads, containers, variables, rules of placement, volumes."""
    objects, scenario = well(rng)
    many = rng.choice((20, 200))
    if rng.random() < 0.4:
        one = rng.choice(objects)
        for number in range(many):
            other = copy.deepcopy(one)
            other["metadata"]["name"] = f"{other['metadata']['name'][:40]}-{number}"
            objects.append(other)
        return _set(folder, objects, scenario)
    for spec in [h for h, k in _places(objects) if k == "containers" and isinstance(h[k], list) and h[k]][:3]:
        kind = rng.randrange(6)
        if kind == 0:
            first = spec["containers"][0]
            spec["containers"] += [{"name": f"c{n}", "image": first.get("image", "x")} for n in range(many)]
        elif kind == 1:
            spec["containers"][0]["env"] = [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(many)]
        elif kind == 2:
            spec["tolerations"] = [{"key": f"k{n}", "operator": "Exists"} for n in range(many)]
        elif kind == 3:
            terms = [
                {"matchExpressions": [{"key": f"k{n}", "operator": "NotIn", "values": ["a"]}]} for n in range(many)
            ]
            node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec["affinity"] = {"nodeAffinity": node}
        elif kind == 4:
            spec["topologySpreadConstraints"] = [{"maxSkew": 1, "topologyKey": f"k{n}", "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")), "labelSelector": {}} for n in range(many)]  # fmt: skip
        else:
            spec["volumes"] = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(many)]
            spec["containers"][0]["volumeMounts"] = []
            objects += [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"c{n}", "namespace": "inference"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}} for n in range(many)]  # fmt: skip
    return _set(folder, objects, scenario)


def much(rng: Random, folder: Path) -> list[Path]:
    """100,000 labels, 3,000 documents, a line of 3 MB: seconds each."""
    objects, scenario = well(rng)
    kind = rng.randrange(5)
    if kind == 0:
        objects[0].setdefault("metadata", {})["labels"] = {f"l{n}": "v" for n in range(100_000)}
        return _set(folder, objects, scenario)
    if kind == 1:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
        return _file(
            folder, "---\n".join(json.dumps({**config, "metadata": {"name": f"x{n}"}}) + "\n" for n in range(3_000))
        )
    if kind == 2:
        return _file(
            folder, f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata: {{a: {'x' * 3_000_000}}}\n"
        )
    if kind == 3:
        return _file(folder, "---\n".join('{"kind": 3}\n' for _ in range(5_000)))
    return _file(folder, "\n".join(f"k{n}: {n}" for n in range(50_000)))


def _not_json(rng: Random, folder: Path) -> list[Path]:
    value = rng.choice(
        (
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "9" * 400,
            "9" * 5_000,
            '"\\ud800"',
            '"\\u001b[31m"',
            "[,]",
            "01",
            '"\\u0000"',
        )
    )
    texts = (
        '{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m"}, "spec": {"replicas": VALUE}}',
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": VALUE}}',
        '{"apiVersion": "v1", "kind": "List", "items": VALUE}',
        '{"apiVersion": VALUE, "kind": VALUE, "metadata": {"name": "x"}}',
        '{"kind": "Event", "apiVersion": "v1", "metadata": {"name": "x"}, "count": VALUE, "message": VALUE}',
    )
    return _file(folder, rng.choice(texts).replace("VALUE", value), ".json")


def _scenario_text(rng: Random, folder: Path) -> list[Path]:
    """A scenario that is spoilt as text."""
    objects, scenario = well(rng)
    paths = _set(
        folder,
        objects,
        scenario or {"kind": "Scenario", "name": "x", "duration": "1m", "policies": {"a": {"manifests": "manifests"}}},
    )
    file = folder / "scenario.yaml"
    text = file.read_text()
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    key, _, _ = lines[at].partition(":")
    lines[at] = (
        f"{key}: {rng.choice(('&a [*a]', '{', '1e400', '9' * 400, '[[[[', '2147483647', '-1', 'x' * 100_000, '.nan', '1000000h', '!!python/none', '../../..', json.dumps(chr(27) + '[31m')))}"
    )
    file.write_text("\n".join(lines) + "\n")
    return paths


def _file(folder: Path, text: str, suffix: str = ".yaml") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"x{suffix}"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return [path]


_KINDS: tuple[Made, ...] = (
    _wrong_types, _wrong_types, _wrong_types, _numbers, _numbers, _escapes, _escapes, _file_names, _many, _bomb, _deep, _bytes, _tags, _twice, much,
    _not_json, _scenario_text, _legal_words, _legal_words, _legal_numbers, _legal_numbers, _crowd,
)  # fmt: skip


def kinds() -> Iterator[Made]:
    """Every kind once."""
    yield from dict.fromkeys(_KINDS)


def any_kind(rng: Random) -> Made:
    """One of them, those more often that have more in them."""
    return rng.choice(_KINDS)
