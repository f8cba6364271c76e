"""NodePools, NodeOverlays and EC2NodeClasses drawn at random: a real API server with the CRDs of Karpenter's AWS provider
and `tonnage check` refuse the same ones."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sampling

from e2e.api import ApiError
from e2e.control_plane import UNTOUCHED, ControlPlane
from e2e.recipe import KARPENTER_AWS as MODULE
from objects.karpenter_objects import DIFFERENCES, KINDS, Json, objects
from tonnage.errors import InputError
from tonnage.objects import load

COUNT, SAMPLED = 900, 330
PATHS = {
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeOverlay": "/apis/karpenter.sh/v1alpha1/nodeoverlays",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
}


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    """An API server that knows Karpenter's kinds."""
    done = subprocess.run(["go", "mod", "download", "-json", MODULE], capture_output=True, text=True, check=False)
    told: Json = json.loads(done.stdout or "{}")
    if "Zip" not in told:  # it is there even where the module wants a newer Go
        pytest.skip(f"needs the Go module {MODULE}: {told.get('Error', done.stderr)}")
    found: ControlPlane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED)
    with zipfile.ZipFile(told["Zip"]) as module:
        for name in ("karpenter.sh_nodepools", "karpenter.sh_nodeoverlays", "karpenter.k8s.aws_ec2nodeclasses"):
            crd = module.read(f"{MODULE}/pkg/apis/crds/{name}.yaml")
            found.kubectl("apply", "--server-side", "-f", "-", stdin=crd)
    found.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return found


def theirs(plane: ControlPlane, one: Json) -> str:
    """What the API server refuses of it; empty where it takes it."""
    try:
        plane.api().call("POST", PATHS[one["kind"]], one, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def ours(one: Json, folder: Path) -> str:
    """What `tonnage check` does."""
    file = folder / "one.json"
    file.write_text(json.dumps(one))
    try:
        load.read([file])
    except InputError as error:
        return str(error)
    return ""


def test_the_api_server_and_check_refuse_the_same_objects(plane: ControlPlane, tmp_path: Path) -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    wrong = []
    for one in sampling.some("objects of Karpenter", objects(COUNT), SAMPLED):
        said, found = theirs(plane, one), ours(one, tmp_path)
        seen[one["kind"], bool(said)] += 1
        listed = not said and all(
            any(re.search(one, line) for one in DIFFERENCES.values()) for line in found.splitlines()
        )
        if bool(said) != bool(found) and not listed:
            wrong.append(f"{json.dumps(one['spec'])}\n  server: {said or 'takes it'}\n  check:  {found or 'takes it'}")
    assert not wrong, f"{len(wrong)} of {sum(seen.values())}:\n" + "\n".join(wrong)
    assert sum(seen.values()) >= 300
    assert all(seen[kind, refused] >= 25 for kind in KINDS for refused in (True, False)), seen
