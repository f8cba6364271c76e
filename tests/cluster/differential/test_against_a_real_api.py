"""Against a real kube-apiserver with its controller manager: the list of kubectl commands, beside the embedded API; the
recorded tables of tests/cluster/look; and the table of fields.

All in one file: the control plane is started once, and ends with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from differential_checks import Side, play, scenarios

from tonnage.cluster.client.transport import JSON
from tonnage.cluster.resources import ALL
from tonnage.cluster.server.openapi import schema_name
from tonnage.objects.api.fields import structs

sys.path.insert(0, str(Path(__file__).parent.parent / "look"))
from look_checks import base, named, recorded, resource_of

pytestmark = [pytest.mark.peer, pytest.mark.e2e]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"])
def test_kubectl_sees_no_difference(scenario: dict[str, Any], embedded: Side, real: Side) -> None:
    differences = list(play(scenario, embedded, real))
    assert not differences, f"{len(differences)} of {len(scenario['commands'])} commands differ:\n\n" + "\n\n".join(
        differences
    )


# ---- what was recorded ----

_NOT_HERE = ("serviceAccount", "metadata.namespace")
"""What depends on other objects than the one that is refused."""
_GENERATED = {"ec2nodeclass", "scaledobject", "servicemonitor"}
"""Kinds whose CRDs are made from our own table in this test: what their rules beyond the schema say is not there."""


def dry_run(side: Side, obj: dict[str, Any]) -> dict[str, Any]:
    """What the server answers to the creation of an object, which it only tries."""
    path = resource_of(obj).path(obj["metadata"].get("namespace") or "")
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    reply = side.client.transport.request("POST", path, query=query, body=json.dumps(obj).encode(), content_type=JSON)
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_bad_objects_are_refused_as_they_were_when_the_table_was_recorded(real: Side) -> None:
    wrong = []
    for case in recorded("refusals.jsonl"):
        if case["of"] in _GENERATED or any(part in key for key in case["set"] for part in _NOT_HERE):
            continue
        answer = dry_run(real, base(case["of"], case["set"]))
        if case["status"] == 400:
            same = answer.get("message") == case["message"]
        else:
            found = [[c["reason"], c["field"], c["message"]] for c in answer.get("details", {}).get("causes", ())]
            same = sorted(found) == sorted(case["causes"])
        if not same:
            wrong.append(f"{named(case)}: {answer.get('message')}")
    assert not wrong, "\n".join(wrong)


def test_built_in_kinds_have_the_fields_that_the_api_server_describes(real: Side) -> None:
    wrong = []
    for root in sorted({resource.root for resource in ALL if not resource.custom}):
        reply = real.client.transport.request("GET", f"/openapi/v3{root}")
        schemas = json.loads(reply.body)["components"]["schemas"]
        for struct, fields in structs().items():
            described = schemas.get(schema_name(struct))
            if described is None:
                continue
            theirs, ours = set(described.get("properties", ())), set(fields)
            if theirs != ours:
                wrong.append(f"{struct}: {sorted(theirs ^ ours)}")
            required = {name for name, known in fields.items() if known.required}
            if required != set(described.get("required", ())):
                wrong.append(f"{struct}: required {sorted(required ^ set(described.get('required', ())))}")
    assert not wrong, "\n".join(wrong)
