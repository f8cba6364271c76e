"""Manifests of batch and training workloads, and of groups of pods, for tests."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tonnage.objects import load
from tonnage.objects.base import KubeObject


def objects(*texts: str) -> tuple[KubeObject, ...]:
    """The objects of these texts, read as one file ``w.yaml``."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "w.yaml"
        file.write_text("---\n".join(texts), encoding="utf-8")
        manifest = load.read([file])
    assert manifest.problems == ()
    return manifest.objects


def one(text: str) -> KubeObject:
    """The only object of a text."""
    [obj] = objects(text)
    return obj


def template(restart: str = "", annotations: str = "{}", labels: str = "{}", extra: str = "") -> str:
    """A pod template as a flow mapping: one container ``main`` with one GPU."""
    policy = f"restartPolicy: {restart}, " if restart else ""
    container = "{name: main, image: img, resources: {limits: {nvidia.com/gpu: 1}}}"
    meta = f"metadata: {{annotations: {annotations}, labels: {labels}}}"
    return f"{{{meta}, spec: {{{policy}{extra}containers: [{container}]}}}}"


def job(spec: str = "", restart: str = "Never", name: str = "j", meta: str = "", **made: str) -> str:
    return f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: ml{meta}}}
spec:
  parallelism: 4
  completions: 4
  completionMode: Indexed
{spec}  template: {template(restart, **made)}
"""


def part(
    name: str, replicas: int, pods: int, backoff: int = 0, restart: str = "Never", extra: str = "", **made: str
) -> str:
    """A replicated job as a flow mapping."""
    spec = f"parallelism: {pods}, completions: {pods}, completionMode: Indexed, backoffLimit: {backoff}"
    return (
        f"{{name: {name}, replicas: {replicas}{extra}, template: "
        f"{{spec: {{{spec}, template: {template(restart, **made)}}}}}}}"
    )


def job_set(spec: str = "", parts: tuple[str, ...] = (), meta: str = "") -> str:
    lines = "".join(f"    - {one_part}\n" for one_part in parts or (part("leader", 1, 1), part("worker", 2, 3)))
    return f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js, namespace: ml{meta}}}
spec:
{spec}  replicatedJobs:
{lines}"""


def leader_worker_set(more: str = "", meta: str = "", spec: str = "", **made: str) -> str:
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: lws, namespace: ml{meta}}}
spec:
  replicas: 2
{spec}  leaderWorkerTemplate:
    size: 5
{more}    workerTemplate: {template(**made)}
"""


SPECS = {
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master", "Worker")),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", ("PS", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker")),
}


def training_job(kind: str, spec: str = "", restart: str = "", workers: int = 3, meta: str = "", **made: str) -> str:
    """A kubeflow.org job: one pod of every other role, and its workers. ``restart`` is the policy of all roles."""
    field, roles = SPECS[kind]
    policy = f"restartPolicy: {restart}, " if restart else ""
    lines = "".join(
        f"    {role}: {{replicas: {workers if role == 'Worker' else 1}, {policy}template: {template(**made)}}}\n"
        for role in roles
    )
    version = "v2beta1" if kind == "MPIJob" else "v1"
    return f"""\
apiVersion: kubeflow.org/{version}
kind: {kind}
metadata: {{name: t, namespace: ml{meta}}}
spec:
{spec}  {field}:
{lines}"""


def ray_spec(indent: str, more: str = "", restart: str = "", workers: str = "replicas: 3") -> str:
    head, worker = template(restart), template(restart)
    text = f"""\
{more}headGroupSpec: {{rayStartParams: {{}}, template: {head}}}
workerGroupSpecs:
  - {{groupName: gpu, {workers}, rayStartParams: {{}}, template: {worker}}}
"""
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def ray_cluster(more: str = "", restart: str = "", workers: str = "replicas: 3", meta: str = "") -> str:
    return f"""\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: rc, namespace: ml{meta}}}
spec:
{ray_spec("  ", more, restart, workers)}"""


def ray_job(spec: str = "", restart: str = "") -> str:
    return f"""\
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: rj, namespace: ml}}
spec:
  entrypoint: python train.py
{spec}  submitterPodTemplate: {template("Never")}
  rayClusterSpec:
{ray_spec("    ", "", restart)}"""


def volcano_job(spec: str = "", restart: str = "Never", policies: str = "[]") -> str:
    return f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: v, namespace: ml}}
spec:
{spec}  tasks:
    - {{name: ps, replicas: 1, template: {template(restart)}}}
    - {{name: worker, replicas: 3, policies: {policies}, template: {template(restart)}}}
"""


def pod(name: str = "p", restart: str = "Always", labels: str = "{}", annotations: str = "{}", extra: str = "") -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ml, labels: {labels}, annotations: {annotations}}}
spec: {{{extra}restartPolicy: {restart}, containers: [{{name: main, image: img}}]}}
"""


def group(version: str, spec: str, name: str = "g", kind: str = "PodGroup", namespace: str = "ml") -> str:
    place = f", namespace: {namespace}" if namespace else ""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}{place}}}\nspec:\n{spec}"


KAI = "scheduling.run.ai/v2alpha2"
VOLCANO = "scheduling.volcano.sh/v1beta1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
