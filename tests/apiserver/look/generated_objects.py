"""Objects that are put to `tonnage check`, the embedded API and a real API server, and what each answers.

Recorded ones are those of the tables beside this module. Generated ones are good objects with up to three changes that
are harmless (``harmless.yaml``), and half of them with one more that kube-apiserver was recorded to refuse, somewhere
else in the object: what it then says is known, since a change says nothing of another that it does not touch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from look_checks import HERE, JsonObject, base, named, recorded, resource_of

import yaml_text
from tonnage.errors import InputError
from tonnage.kube.transport import JSON, Reply, Transport
from tonnage.objects import load

TEMPLATES = ("deployment", "replicaset", "daemonset", "job")
"""Kinds with a pod template."""
NOT_READ = ("event", "lease")
"""Kinds that `tonnage check` does not read, as nobody keeps them in a file."""
OWN_CRDS = ("ec2nodeclass", "scaledobject", "servicemonitor")
"""Kinds whose CRDs are made of our own table where a real API server serves them in tests: their rules beyond the
schema are not there."""
OF_OTHERS = "serviceAccountName"
"""A path at which a server's answer depends on another object than the one that is refused."""
EXCEPTIONS = {
    ("check", '{"spec.minReplicas": 0, "spec.metrics": [{"type": "External"'): "Kubernetes 1.37 takes it",
}
"""Who answers otherwise than kube-apiserver v1.36.3, to which changes, and why."""
MOST_EXCEPTIONS = 10
SEED, COUNT = 16, 400
"""Of the generated objects that all three are asked about."""


class Answer(NamedTuple):
    """``status``: 201 taken, 400 not to be decoded, 422 invalid. ``fields``: paths of
    what is invalid, in the object or to where it is in it."""

    status: int
    fields: tuple[str, ...] = ()


class Case(NamedTuple):
    """A base of ``bases.yaml`` with changes, and what kube-apiserver answers."""

    of: str
    changes: JsonObject
    answer: Answer

    @property
    def obj(self) -> JsonObject:
        """The object."""
        return base(self.of, self.changes)

    def __str__(self) -> str:
        return named({"of": self.of, "set": self.changes})


def recorded_cases() -> Iterator[Case]:
    """Every object of which kube-apiserver's answer was recorded."""
    for one in recorded("accepted.jsonl"):
        yield Case(one["of"], one["set"], Answer(201))
    for one in recorded("refusals.jsonl"):
        fields = (field for _, field, _ in one.get("causes", ()))
        yield Case(one["of"], one["set"], Answer(one["status"], places(fields)))


def depends(case: Case) -> bool:
    """Whether a server's answer depends on another object."""
    return any(OF_OTHERS in path for path in case.changes)


def excepted(who: str, case: Case) -> bool:
    """Whether this asker is known to answer otherwise."""
    return any(by == who and json.dumps(case.changes).startswith(part) for by, part in EXCEPTIONS)


# ---- generated ----


@cache
def harmless(kind: str) -> tuple[tuple[str, object], ...]:
    """(path, value) of each change that may be made to a kind."""
    written = yaml_text.load((HERE / "harmless.yaml").read_text(encoding="utf-8"))
    own = [*written["any"], *written.get(kind, [])]
    if kind in TEMPLATES:
        own += [{f"spec.template.{path}": value for path, value in one.items()} for one in written["pod"]]
    return tuple(item for one in own for item in one.items())


def apart(one: str, other: str) -> bool:
    """Whether neither path leads to the other."""
    return not f"{one}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{one}.")


def generated(seed: int, count: int) -> list[Case]:
    """This many different objects, every second one of them refused."""
    draw, found = Random(seed), dict[str, Case]()
    bad = [case for case in recorded_cases() if case.answer.status != 201]
    kinds = sorted({case.of for case in bad})
    while len(found) < count:
        wrong = draw.choice(bad) if len(found) % 2 else None
        kind = wrong.of if wrong else draw.choice(kinds)
        changes = dict(wrong.changes) if wrong else {}
        for path, value in draw.sample(harmless(kind), min(draw.randint(1, 3), len(harmless(kind)))):
            if all(apart(path, other) for other in changes):
                changes[path] = value
        case = Case(kind, changes, wrong.answer if wrong else Answer(201))
        if len(changes) > (len(wrong.changes) if wrong else 0):
            found.setdefault(str(case), case)
    return list(found.values())


# ---- who is asked ----


def tried(transport: Transport, obj: JsonObject) -> Reply:
    """An API server's reply to the creation of an object, which it only tries."""
    path = resource_of(obj).path(obj["metadata"].get("namespace") or "")
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return transport.request("POST", path, query=query, body=json.dumps(obj).encode(), content_type=JSON)


def served(transport: Transport, obj: JsonObject) -> Answer:
    """What an API server answers to that."""
    reply = tried(transport, obj)
    said = json.loads(reply.body)
    causes = (said.get("details") or {}).get("causes") or () if said["kind"] == "Status" else ()
    status = 201 if reply.status == 409 else reply.status  # it is valid, and there is one already
    return Answer(status, places(cause.get("field", "") for cause in causes) if status == 422 else ())


def checked(obj: JsonObject, folder: Path) -> Answer:
    """What `tonnage check` finds when it reads a file with the object; of its warnings, unknown fields count."""
    file = folder / "x.yaml"
    file.write_text(yaml_text.dump(obj))
    try:
        unknown = [one for one in load.read([file]).problems if one.message.startswith("unknown field")]
    except InputError as error:
        return Answer(422, tuple(problem.where.field for problem in error.problems))
    return Answer(400) if unknown else Answer(201)


# ---- whether they say the same ----

_OWN = {
    "^metadata.taints": "spec.taints",
    r"template\.(labels|annotations)": "template.metadata",
    r"spec\.template\.metadata\.labels": "spec",
    "overhead.limits": "overhead",
    "securityContext.shareProcessNamespace": "shareProcessNamespace",
    r"resources\.limits$": "resources",
    r"resources\.storage$": "resources.requests.storage",
    r"(tolerations\[\d+\])\.operator": r"\1",
}
"""What the API names otherwise than where it stands, or than where the reason stands."""


def places(fields: Iterable[str]) -> tuple[str, ...]:
    """Paths as an API server gives them, as far as they are in the object: keys of maps, sides and structs go."""
    found = dict[str, None]()
    for field in fields:
        plain = re.sub(r"\[([^\[\]]*[^\[\]\d][^\[\]]*)\]", r".\1", field).removeprefix(".")
        for said, own in _OWN.items():
            plain = re.sub(said, own, plain)
        found[plain] = None
    return tuple(found)


def differs(answer: Answer, expected: Answer) -> str:
    """What is not the same of two answers: the verdict, a field that is no part of one expected, or all of them."""
    if (answer.status == 201) != (expected.status == 201):
        return f"{answer.status} {answer.fields}, expected {expected.status} {expected.fields}"
    if expected.status != 422:
        return ""
    wanted, there = ([re.sub(r"\[\d+\]", "", field).lower() for field in of.fields] for of in (expected, answer))
    strangers = [one for one in there if not any(one.startswith(other) or other.startswith(one) for other in wanted)]
    return f"{strangers or 'no field'} beside {wanted}" if strangers or not there else ""
