"""Manifests for the tests of this folder, and what reading them says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tonnage.errors import InputError, Problem
from tonnage.objects import load

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
    - name: main
      image: img
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
spec:
  selector:
    matchLabels: {app: d}
  template:
    metadata:
      labels: {app: d}
    spec:
      containers:
        - name: main
          image: img
"""

SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: s
spec:
  scaleTargetRef:
    name: d
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus:9090
        query: sum(x)
        threshold: "10"
"""

NODE_POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: pool
spec:
  template:
    spec:
      requirements:
        - key: karpenter.sh/capacity-type
          operator: In
          values: [spot]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}
"""

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: h
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}
  maxReplicas: 4
"""


def read(text: str, name: str = "x.yaml") -> load.Manifest:
    """The manifest of one file with this text; its places name the file ``x.yaml`` without a folder."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        try:
            return load.read([file])
        except InputError as error:
            raise InputError(*(_bare(problem, folder) for problem in error.problems)) from None


def refusals(text: str, name: str = "x.yaml") -> list[str]:
    """Every problem that keeps the text from being read, as the command line prints it; empty when it is read."""
    try:
        read(text, name)
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []


def warnings(text: str, name: str = "x.yaml") -> list[str]:
    """What is suspicious about a text that can be read: ``line:field: message (hint)``."""
    return [str(problem).partition(f"{name}:")[2] for problem in read(text, name).problems]


def _bare(problem: Problem, folder: str) -> Problem:
    where = problem.where
    bare = type(where)(where.file.replace(f"{folder}/", ""), where.line, where.field)
    return Problem(bare, problem.message.replace(f"{folder}/", ""), problem.hint)
