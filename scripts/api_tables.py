"""The tables of the Kubernetes API from which the embedded API works: recreated, or held to their sources.

``python -m scripts.api_tables`` says where the tables differ from their sources and exits with 1; ``--write`` writes
them. It exits with 2 where a source cannot be had or read. The sources are Go modules, and Go fetches what its module
cache lacks: Kubernetes' own, of the version that ``e2e/modules/kube`` builds (OpenAPI, struct tags, printers.go), and
those with the CRDs of ``CRDS``. What no source says is written by hand: ``api_words.csv``, of which only order and
existence are looked after here, and in ``scripts/api`` the words for columns and the heads of the tables.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from e2e.recipe import RECIPE
from scripts.api import go, schemas
from scripts.api.schemas import Row, Unread
from tonnage.kube.resources import ALL, Resource

ROOT = Path(__file__).resolve().parent.parent
OBJECTS, SERVER = ROOT / "src/tonnage/objects/api", ROOT / "src/tonnage/apiserver"
FILES = {
    name: folder / f"{name}.csv"
    for folder, names in (
        (OBJECTS, ("api_types", "api_rules", "protobuf")),
        (SERVER, ("table_columns", "merge_keys", "api_words")),
    )
    for name in names
}
"""The tables, in the order in which they are made."""
COLUMN_WORDS = ROOT / "scripts/api/column_words.csv"
"""What each printed column means: kind (``*``: all that have the column), name, words."""

KINDS = tuple(resource for resource in ALL if not resource.open)
"""The kinds whose fields are in the tables: those that have a type of their own in tonnage.kube.resources."""
BESIDE = (
    ("core/v1", "Binding"),
    ("autoscaling/v1", "Scale"),
    ("policy/v1", "Eviction"),
    ("authorization/v1", "SelfSubjectAccessReview"),
    ("meta/v1", "DeleteOptions"),
    ("meta/v1", "ListMeta"),
    ("meta/v1", "Status"),
)
"""What else is sent and answered: bodies of subresources, options, errors. Go package of the API, and type."""
JSON_ONLY = ("SelfSubjectAccessReview", "ListMeta")
"""Those of them that nobody sends in protobuf by themselves."""
LEFT_OUT = {"PersistentVolumeClaim.status": "raw"}
"""Fields whose types are not in the tables, and what stands for them: a claim's status, which only its own kind has,
and that one may have any field."""

KARPENTER = next(module for module in RECIPE if module.name == "karpenter_plan")
CRDS = {
    "karpenter.sh": ("sigs.k8s.io/karpenter", KARPENTER.version("sigs.k8s.io/karpenter"), "pkg/apis/crds"),
    "karpenter.k8s.aws": ("github.com/aws/karpenter-provider-aws", "v1.14.0", "pkg/apis/crds"),
    "keda.sh": ("github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases"),
    "monitoring.coreos.com": (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.84.0",
        "example/prometheus-operator-crd",
    ),
}
"""By group: the Go module with its CRDs, its version, and the folder in it."""

KUBERNETES = RECIPE[0].version("k8s.io/kubernetes")
VERSIONS = {
    "kubernetes": KUBERNETES,
    "libraries": RECIPE[0].version("k8s.io/api"),
    "karpenter": CRDS["karpenter.sh"][1],
    "karpenter_aws": CRDS["karpenter.k8s.aws"][1],
    "keda": CRDS["keda.sh"][1],
    "prometheus_operator": CRDS["monitoring.coreos.com"][1],
}
HEADS = tomllib.loads((ROOT / "scripts/api/heads.toml").read_text(encoding="utf-8"))
"""By table: ``comment``, what stands above the rows, and ``columns``."""


def main(arguments: list[str] | None = None) -> int:
    """Compare or write; the exit code: 1 where a table differs, 2 where a source cannot be had or read."""
    parser = argparse.ArgumentParser(prog="python -m scripts.api_tables", description="Tables of the Kubernetes API.")
    parser.add_argument("--write", action="store_true", help="write the tables that differ")
    given = parser.parse_args(arguments)
    try:
        made = make()
    except Unread as why:
        print(f"api_tables: {why}", file=sys.stderr)
        return 2
    there = {name: file.read_text(encoding="utf-8") if file.exists() else "" for name, file in FILES.items()}
    different = {name: text for name, text in made.items() if text != there[name]}
    for name, text in different.items():
        shown = _shown(FILES[name])
        if given.write:
            FILES[name].write_text(text, encoding="utf-8", newline="")
            print(f"wrote {shown}")
            continue
        now = there[name].splitlines()
        sys.stdout.writelines(
            f"{line}\n" for line in difflib.unified_diff(now, text.splitlines(), shown, "its sources", lineterm="", n=0)
        )
    if different and not given.write:
        print("python -m scripts.api_tables --write writes what the sources say")
    return 1 if different and not given.write else 0


def make() -> dict[str, str]:
    """The text of each table, from its sources. Raises Unread."""
    definitions = json.loads(source("k8s.io/kubernetes", KUBERNETES, "api/openapi-spec/swagger.json"))["definitions"]
    printers = source("k8s.io/kubernetes", KUBERNETES, "pkg/printers/internalversion/printers.go")
    own = own_types(definitions)
    others = custom_types()
    types = [*own.values(), *others]
    rows = {
        "api_types": sorted(struct.row() for struct in types),
        "api_rules": sorted((struct.name, *rule) for struct in others for rule in struct.rules),
        "table_columns": list(column_rows(go.columns(printers))),
        "protobuf": go.protobuf(go_files, protobuf_roots(), LEFT_OUT),
        "merge_keys": schemas.merging(definitions, own),
        "api_words": word_rows(types),
    }
    return {name: text_of(name, rows[name]) for name in FILES}


def text_of(table: str, rows: Iterable[Row]) -> str:
    """A table as it stands in its file."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([HEADS[table]["columns"], *rows])
    return Template(HEADS[table]["comment"]).substitute(VERSIONS) + written.getvalue()


def rows_of(file: Path) -> list[Row]:
    """The rows of a table's file, without its head. Raises Unread for one that has not the head's columns."""
    return [row for _, row in _numbered(file)]


def _numbered(file: Path) -> list[tuple[int, Row]]:
    """(line, row) of a table's file, whose rows are a line each."""
    try:
        lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    except OSError as error:
        raise Unread(f"{_shown(file)}: {error.strerror}; it is written by hand") from error
    (_, head), *rows = [(at, tuple(next(csv.reader([line])))) for at, line in lines if line and line[0] != "#"]
    for at, row in rows:
        if len(row) != len(head):
            raise Unread(f"{_shown(file)}:{at}: {len(row)} cells, expected {len(head)}: {','.join(head)}")
    return rows


def _shown(file: Path) -> str:
    return str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)


# ---- sources ----


@cache
def module(path: str, version: str) -> Path:
    """The folder of a Go module; Go fetches what it does not have. Raises Unread."""
    try:
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"{path}@{version}"], capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout or "{}")
    except (OSError, ValueError) as error:
        raise Unread(f"{path} {version} cannot be had: {error}; Go 1.26 or newer is needed on PATH") from error
    if "Dir" not in found:
        raise Unread(f"{path} {version} cannot be had: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])


def source(path: str, version: str, name: str) -> str:
    """A file of a Go module. Raises Unread."""
    file = module(path, version) / name
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Unread(f"{path} {version} has no {name}: {error.strerror}") from error


def go_files(package: str) -> Iterator[str]:
    """The sources of a package of k8s.io/api or k8s.io/apimachinery, without tests and what is generated."""
    path = "/".join(package.split("/")[:2])
    folder = module(path, RECIPE[0].version(path)) / package.removeprefix(path).lstrip("/")
    for file in sorted(folder.glob("*.go")):
        if not file.name.endswith("_test.go") and not file.name.endswith(".pb.go") and "generated" not in file.name:
            yield file.read_text(encoding="utf-8")


def crd(resource: Resource) -> Any:
    """The definition of a custom kind. Raises Unread."""
    path, version, folder = CRDS[resource.group]
    return yaml.safe_load(source(path, version, f"{folder}/{resource.group}_{resource.plural}.yaml"))


# ---- what is taken from them ----


def own_types(definitions: Any) -> dict[str, schemas.Struct]:
    """The types of Kubernetes' own kinds and of what is beside them, by the name of their definition."""
    roots = [
        *(schemas.definition_of(definitions, r.group, r.version, r.kind) for r in KINDS if not r.custom),
        *(definition(package, name) for package, name in BESIDE),
    ]
    return schemas.built_in(definitions, roots, LEFT_OUT)


def custom_types() -> list[schemas.Struct]:
    """The types of custom kinds, group by group. Raises Unread."""
    groups: dict[str, list[Resource]] = {}
    for resource in KINDS:
        if resource.custom:
            groups.setdefault(f"{resource.group}/{resource.version}", []).append(resource)
    return sorted(struct for of in groups.values() for struct in schemas.custom((crd(r), r.version) for r in of))


def definition(package: str, name: str) -> str:
    """The name in OpenAPI of a type of ``BESIDE``."""
    group, version = package.split("/")
    prefix = "io.k8s.apimachinery.pkg.apis" if group == "meta" else "io.k8s.api"
    return f"{prefix}.{group}.{version}.{name}"


def protobuf_roots() -> Iterator[go.Name]:
    """The Go types of all that comes in protobuf."""
    for resource in KINDS:
        if not resource.custom:
            yield f"k8s.io/api/{resource.group.partition('.')[0] or 'core'}/{resource.version}", resource.kind
    for package, name in BESIDE:
        if name not in JSON_ONLY:
            yield f"k8s.io/{'apimachinery/pkg/apis' if package == 'meta/v1' else 'api'}/{package}", name


def column_rows(own: dict[str, list[Row]], by_hand: Path = COLUMN_WORDS) -> Iterator[Row]:
    """The rows of ``table_columns.csv``: what sources say of each column, with our words. Raises Unread."""
    words = {(row[0], row[1]): (at, row[2]) for at, row in _numbered(by_hand)}
    unused = dict(words)
    for resource in KINDS:
        found = schemas.columns(crd(resource), resource.version) if resource.custom else _without_path(own, resource)
        for name, *rest in found:
            key = next((key for key in ((resource.kind, name), ("*", name)) if key in words), None)
            if key is None:
                raise Unread(f"{_shown(by_hand)}: no words for the column {name} of {resource.kind}; add a row")
            unused.pop(key, None)
            yield (resource.kind, name, *rest, words[key][1])
    for (kind, name), (at, _) in unused.items():
        raise Unread(f"{_shown(by_hand)}:{at}: {kind} has no column {name}; remove the row")


def _without_path(own: dict[str, list[Row]], resource: Resource) -> list[Row]:
    if resource.kind not in own:
        raise Unread(f"printers.go has no columns of {resource.kind}")
    return [(*row, "") for row in own[resource.kind]]


def word_rows(types: Iterable[schemas.Struct], by_hand: Path = FILES["api_words"]) -> list[Row]:
    """The rows of ``api_words.csv``, which are ours, in their order. Raises Unread for what there is no longer."""
    known = {struct.name: {field.name for field in struct.fields} for struct in types}
    known["*"] = set().union(*known.values())
    rows = _numbered(by_hand)
    for at, (kind, field, _) in rows:
        if kind not in known or (field and field not in known[kind]):
            raise Unread(f"{_shown(by_hand)}:{at}: {kind} has no field {field or 'of its own'}; remove the row")
    return sorted(row for _, row in rows)


if __name__ == "__main__":
    sys.exit(main())
