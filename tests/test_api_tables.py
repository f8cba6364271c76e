"""scripts/api_tables.py: what it reads in OpenAPI, CRDs and Go sources, and how it says that something is wrong.

That the tables are those of a real API server is held in tests/live/differential."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scripts import api_tables
from scripts.api import go, schemas
from scripts.api.schemas import Unread
from tonnage.apiserver import discovery, openapi
from tonnage.hollow import statuses

Json = dict[str, Any]
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
CORE = "io.k8s.api.core.v1"


def ref(name: str) -> Json:
    return {"$ref": f"#/definitions/{name}"}


DEFINITIONS: Json = {
    f"{CORE}.Thing": {
        "properties": {
            "spec": ref(f"{CORE}.ThingSpec"),
            "status": ref(f"{CORE}.ThingStatus"),
            "metadata": ref(f"{META}.ObjectMeta"),
        },
        "required": ["spec"],
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Thing", "version": "v1"}],
    },
    f"{CORE}.ThingSpec": {
        "properties": {
            "count": {"type": "integer", "format": "int32"},
            "size": {"type": "integer", "format": "int64"},
            "share": {"type": "number", "format": "double"},
            "until": ref(f"{META}.Time"),
            "most": ref("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
            "key": {"type": "string", "format": "byte"},
            "limits": {
                "type": "object",
                "additionalProperties": ref("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            },
            "headers": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
            "parts": {
                "type": "array",
                "items": ref(f"{CORE}.Part"),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "x-kubernetes-patch-merge-key": "port",
                "x-kubernetes-patch-strategy": "merge,retainKeys",
            },
            "orders": {"type": "array", "items": ref(f"{CORE}.Part"), "x-kubernetes-list-type": "atomic"},
        }
    },
    f"{CORE}.ThingStatus": {"properties": {"phase": {"type": "string"}}},
    f"{CORE}.Part": {
        "properties": {
            "selector": ref(f"{META}.LabelSelector"),
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        }
    },
    f"{META}.ObjectMeta": {"properties": {"name": {"type": "string"}}},
    f"{META}.LabelSelector": {
        "properties": {"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}},
        "x-kubernetes-map-type": "atomic",
    },
}


def own(definitions: Json = DEFINITIONS, unread: dict[str, str] | None = None) -> dict[str, schemas.Struct]:
    return schemas.built_in(definitions, [f"{CORE}.Thing"], unread or {})


# ---- OpenAPI ----


def test_types_of_built_in_kinds_are_read_with_all_that_is_in_them() -> None:
    assert sorted(struct.row() for struct in own().values()) == [
        (CORE, "Part", "names:[]string selector:LabelSelector"),
        (CORE, "Thing", "metadata:ObjectMeta spec!:ThingSpec status:ThingStatus"),
        (
            CORE,
            "ThingSpec",
            "count:int32 headers:{}[]string key:bytes limits:{}quantity most:int-or-string orders:[]Part parts:[]Part"
            " share:double size:int64 until:time",
        ),
        (CORE, "ThingStatus", "phase:string"),
        (META, "LabelSelector", "matchLabels:{}string"),
        (META, "ObjectMeta", "name:string"),
    ]


def test_a_field_that_is_left_out_brings_no_types_with_it() -> None:
    found = own(unread={"Thing.status": "raw"})
    assert f"{CORE}.ThingStatus" not in found
    assert found[f"{CORE}.Thing"].row()[2].endswith("status:raw")


def test_lists_sets_and_atomic_structs_are_in_the_merge_table_with_what_leads_to_them() -> None:
    assert schemas.merging(DEFINITIONS, own()) == [
        ("Part", "names", "list", "", "set", "", "", ""),
        ("Part", "selector", "struct", "", "atomic", "", "", ""),
        ("Thing", "spec", "struct", "ThingSpec", "", "", "", ""),
        ("ThingSpec", "parts", "list", "Part", "map", "port+protocol", "port", "merge+retainKeys"),
    ]


def test_an_atomic_list_is_in_the_merge_table_only_when_patches_merge_it() -> None:
    changed = copy.deepcopy(DEFINITIONS)
    orders = changed[f"{CORE}.ThingSpec"]["properties"]["orders"]
    orders |= {"x-kubernetes-patch-merge-key": "port", "x-kubernetes-patch-strategy": "merge"}
    rows = schemas.merging(changed, own(changed))
    assert ("ThingSpec", "orders", "list", "Part", "", "", "port", "merge") in rows
    assert ("ThingSpec", "orders") not in {row[:2] for row in schemas.merging(DEFINITIONS, own())}


def test_a_kind_is_found_by_group_and_version() -> None:
    assert schemas.definition_of(DEFINITIONS, "", "v1", "Thing") == f"{CORE}.Thing"
    with pytest.raises(Unread, match="OpenAPI has no Thing of apps/v1"):
        schemas.definition_of(DEFINITIONS, "apps", "v1", "Thing")


def test_two_types_of_one_name_are_refused() -> None:
    other = "io.k8s.api.apps.v1.Part"
    changed = copy.deepcopy(DEFINITIONS) | {other: {"properties": {}}}
    changed[f"{CORE}.ThingStatus"]["properties"]["part"] = ref(other)
    with pytest.raises(Unread, match=r"two types have one name in the tables: .*\.Part and .*\.Part"):
        own(changed)


def test_a_field_of_a_form_that_is_not_known_is_refused_with_its_place() -> None:
    changed = copy.deepcopy(DEFINITIONS)
    changed[f"{CORE}.ThingStatus"]["properties"]["phase"] = {"type": "null"}
    with pytest.raises(Unread, match=r"ThingStatus\.phase: a field of type null"):
        own(changed)


# ---- CRDs ----


def crd(**spec: Json) -> Json:
    """A CRD of group g.example.org whose schema has these properties in ``spec``."""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": spec},
        },
    }
    printed = [
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Zone", "type": "string", "jsonPath": r".metadata.labels.example\.org/zone", "priority": 1},
    ]
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": printed}
    names = {"kind": "Pool", "plural": "pools"}
    return {
        "metadata": {"name": "pools.g.example.org"},
        "spec": {"group": "g.example.org", "names": names, "versions": [version]},
    }


def test_structs_of_a_custom_kind_are_named_by_place_and_equal_ones_by_the_shortest() -> None:
    secret = {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}}}
    found = schemas.custom([(crd(password=secret, user=secret, headers={"type": "array", "items": secret}), "v1")])
    assert [struct.row() for struct in found] == [
        ("org.example.g.v1", "Pool", "apiVersion:string metadata:ObjectMeta spec!:PoolSpec"),
        ("org.example.g.v1", "PoolSpec", "headers:[]PoolSpecUser password:PoolSpecUser user:PoolSpecUser"),
        ("org.example.g.v1", "PoolSpecUser", "key!:string"),
    ]


def test_structs_with_other_rules_are_not_equal() -> None:
    def of(most: int) -> Json:
        return {"type": "object", "properties": {"key": {"type": "string", "maxLength": most}}}

    names = [struct.name for struct in schemas.custom([(crd(a=of(1), b=of(2)), "v1")])]
    assert names == ["Pool", "PoolSpec", "PoolSpecA", "PoolSpecB"]


def test_rules_and_defaults_of_a_custom_kind_stand_at_their_place() -> None:
    found = schemas.custom(
        [
            (
                crd(
                    reasons={"type": "array", "maxItems": 5, "items": {"type": "string", "enum": ["Empty", "Drifted"]}},
                    limits={
                        "type": "object",
                        "additionalProperties": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"},
                    },
                    after={"type": "string", "default": "0s"},
                    budget={
                        "type": "object",
                        "default": {"nodes": "10%"},
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                ),
                "v1",
            )
        ]
    )
    (spec,) = (struct for struct in found if struct.name == "PoolSpec")
    assert spec.row()[2] == "after:string budget:raw limits:{}int-or-string reasons:[]string"
    assert spec.rules == (
        ("after", "default", "0s"),
        ("budget", "default", '{"nodes": "10%"}'),
        ("limits{}", "pattern", "^[0-9]+$"),
        ("reasons", "maxItems", "5"),
        ("reasons[]", "enum", '["Empty", "Drifted"]'),
    )


def test_columns_of_a_custom_kind_have_paths_with_the_condition_that_they_pick() -> None:
    assert list(schemas.columns(crd(), "v1")) == [
        ("Name", "string", "name", "0", ""),
        ("Ready", "string", "", "0", "status.conditions[Ready].status"),
        ("Zone", "string", "", "1", r"metadata.labels.example\.org/zone"),
    ]


def test_a_custom_kind_without_columns_prints_its_age() -> None:
    bare = crd()
    del bare["spec"]["versions"][0]["additionalPrinterColumns"]
    assert list(schemas.columns(bare, "v1"))[1:] == [("Age", "date", "", "0", "metadata.creationTimestamp")]


def test_a_version_that_a_crd_has_not_is_refused() -> None:
    with pytest.raises(Unread, match=r"the CRD pools\.g\.example\.org has no version v2"):
        schemas.custom([(crd(), "v2")])


def test_a_column_of_another_form_is_refused() -> None:
    odd = crd()
    odd["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"] = ".status.parts[?(@.size>1)].name"
    with pytest.raises(Unread, match="the column Ready"):
        list(schemas.columns(odd, "v1"))


# ---- Go ----

GO = {
    "k8s.io/api/core/v1": """
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ThingType is one of a few.
type ThingType string

type ResourceList map[ResourceName]resource.Quantity

type Thing struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Source `json:",inline" protobuf:"bytes,2,opt,name=source"`

	// Type says of what type it is.
	Type ThingType `json:"type" protobuf:"bytes,3,opt,name=type,casttype=ThingType"`
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,4,opt,name=replicas"`
	Service *string `json:"service" protobuf:"bytes,5,opt,name=service"`
	Limits ResourceList `json:"limits,omitempty" protobuf:"bytes,6,rep,name=limits"`
	Data map[string][]byte `json:"data,omitempty" protobuf:"bytes,7,rep,name=data"`
	Parts []Source `json:"parts" patchStrategy:"merge" protobuf:"bytes,8,rep,name=parts"`
	Since metav1.Time `json:"since,omitzero" protobuf:"bytes,9,opt,name=since"`
	Status Status `json:"status,omitempty" protobuf:"bytes,10,opt,name=status"`
}

type Source struct {
	Size int64 `json:"size,omitempty" protobuf:"varint,1,opt,name=size"`
}
""",
    "k8s.io/apimachinery/pkg/apis/meta/v1": """
type ObjectMeta struct {
	Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}
""",
}


def go_sources(package: str) -> Iterable[str]:
    return [GO[package]]


def test_field_numbers_are_read_from_struct_tags() -> None:
    rows = go.protobuf(go_sources, [("k8s.io/api/core/v1", "Thing")], ["Thing.status"])
    assert rows == [
        ("ObjectMeta", "name:1:string"),
        ("Source", "size:1:int"),
        (
            "Thing",
            "metadata:1:ObjectMeta -:2:Source type:3:!string replicas:4:*int service:5:!*string limits:6:{}quantity"
            " data:7:{}bytes parts:8:[]Source since:9:time",
        ),
    ]


def test_a_go_type_that_is_not_found_is_refused() -> None:
    with pytest.raises(Unread, match="no type Status is found"):
        go.protobuf(go_sources, [("k8s.io/api/core/v1", "Thing")], [])


PRINTERS = """
func AddHandlers(h printers.PrintHandler) {
	thingColumnDefinitions := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
		// what it weighs is not printed
		{Name: "Port(s)", Type: "integer", Priority: 1, Description: "Its ports, {Name: of each}."},
	}
	_ = h.TableHandler(thingColumnDefinitions, printThing)
	_ = h.TableHandler(thingColumnDefinitions, printThingList)
}
"""


def test_printed_columns_are_read_by_the_kind_of_their_printer() -> None:
    rows = [("Name", "string", "name", "0"), ("Port(s)", "integer", "", "1")]
    assert go.columns(PRINTERS) == {"Thing": rows, "ThingList": rows}


def test_a_column_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Unread, match=r"printers\.go: no column is read"):
        go.columns(PRINTERS.replace('Name: "Port(s)", ', ""))


# ---- the command ----


@pytest.mark.parametrize("table", api_tables.FILES)
def test_a_table_is_written_as_it_stands_there(table: str) -> None:
    file = api_tables.FILES[table]
    assert api_tables.text_of(table, api_tables.rows_of(file)) == file.read_text(encoding="utf-8")


def test_the_embedded_api_calls_itself_by_the_version_that_its_tables_are_of() -> None:
    described = json.loads(openapi.v2())["info"]["version"]
    assert [discovery.VERSION.partition("+")[0], described, statuses.KUBELET_VERSION] == [api_tables.KUBERNETES] * 3


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one table that there is, ``protobuf``, with another row than its source has."""
    file = tmp_path / "protobuf.csv"
    file.write_text(api_tables.text_of("protobuf", [("Pod", "spec:2:PodSpec")]), encoding="utf-8")
    text = api_tables.text_of("protobuf", [("Pod", "spec:3:PodSpec")])
    monkeypatch.setattr(api_tables, "FILES", {"protobuf": file})
    monkeypatch.setattr(api_tables, "make", lambda: {"protobuf": text})
    return file


def test_what_differs_is_said_and_nothing_is_written(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = changed.read_bytes()
    assert api_tables.main([]) == 1
    said = capsys.readouterr().out
    assert "-Pod,spec:2:PodSpec" in said and "+Pod,spec:3:PodSpec" in said and "--write" in said
    assert changed.read_bytes() == before


def test_written_tables_differ_no_more(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert api_tables.main(["--write"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert "spec:3:PodSpec" in changed.read_text(encoding="utf-8")
    assert api_tables.main([]) == 0
    assert capsys.readouterr().out == ""


def test_a_source_that_is_not_to_be_had_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    api_tables.module.cache_clear()
    assert api_tables.main([]) == 2
    assert capsys.readouterr().err.startswith("api_tables: k8s.io/kubernetes v1.")


def test_words_for_a_field_that_is_gone_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "words.csv"
    file.write_text('# ours\ntype,field,words\nThing,,A thing.\nThing,size,"How big, in bytes."\n', encoding="utf-8")
    with pytest.raises(Unread, match=r"words\.csv:4: Thing has no field size; remove the row"):
        api_tables.word_rows(own().values(), file)


def test_words_are_brought_into_order(tmp_path: Path) -> None:
    file = tmp_path / "words.csv"
    file.write_text('type,field,words\nThing,spec,What is asked for.\n*,name,"Its name, unique."\n', encoding="utf-8")
    assert api_tables.word_rows(own().values(), file) == [
        ("*", "name", "Its name, unique."),
        ("Thing", "spec", "What is asked for."),
    ]


def test_a_row_with_too_few_cells_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "words.csv"
    file.write_text("type,field,words\nThing,spec\n", encoding="utf-8")
    with pytest.raises(Unread, match=r"words\.csv:2: 2 cells, expected 3: type,field,words"):
        api_tables.rows_of(file)
