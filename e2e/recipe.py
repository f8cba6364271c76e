"""What is built: the programs of each Go module, and the files of their releases that are needed at run time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

MODULES = Path(__file__).resolve().parent / "modules"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
"""The names under which ``kubebin`` is started: it is all of them in one program."""


@dataclass(frozen=True, slots=True)
class Program:
    """``name`` is made of ``package``. ``stamps``: variables set to the version of the module ``versioned``. ``tags``:
    build tags."""

    name: str
    package: str
    versioned: str = ""
    stamps: tuple[str, ...] = ()
    tags: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Module:
    """A folder of ``modules/``. ``links``: (name, program). ``files``: (Go module, glob in it, folder to copy to)."""

    name: str
    programs: tuple[Program, ...]
    links: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return MODULES / self.name

    def version(self, path: str) -> str:
        """The version of a Go module that go.mod asks for. Raises ValueError when it asks for none."""
        found = re.search(rf"^(?:require )?\t?{re.escape(path)} (v\S+)", (self.folder / "go.mod").read_text(), re.M)
        if found is None:
            raise ValueError(f"{self.folder}/go.mod does not require {path}")
        return found[1]

    def linker_flags(self, program: Program) -> str:
        """``-X`` for each stamp: a program built as a dependency has no version stamp of its own."""
        if not program.versioned:
            return ""
        version = self.version(program.versioned)
        major, minor, patch = version[1:].split(".", 2)
        values = {"version": version, "major": major, "minor": minor, "patch": patch}
        if major == "0" and len(minor) == 3:  # Prometheus 3.16.0 is the module version v0.316.0
            values["release"] = f"{minor[0]}.{int(minor[1:])}.{patch}"
        return " ".join(f"-X {stamp.format(**values)}" for stamp in program.stamps)


_KUBE_STAMPS = tuple(
    f"{package}.{variable}={value}"
    for package in ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    for variable, value in (
        ("gitVersion", "{version}"),
        ("gitMajor", "{major}"),
        ("gitMinor", "{minor}"),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
    )
)
KARPENTER_AWS = "github.com/aws/karpenter-provider-aws@v1.14.3"
READ = (KARPENTER_AWS,)
"""Go modules of which tests read files: they are downloaded while there is a network, which tests have not."""
PROMETHEUS = "github.com/prometheus/prometheus"
_CONTAINERD = "github.com/containerd/containerd/v2"

RECIPE = (
    Module(
        "kube",
        (
            Program("etcd", "./cmd/etcd"),
            Program("kubebin", "./cmd/kubebin", "k8s.io/kubernetes", _KUBE_STAMPS),
            Program("fakedeviceplugin", "./cmd/fakedeviceplugin"),
        ),
        links=tuple((name, "kubebin") for name in COMPONENTS),
    ),
    Module(
        "containerd",
        tuple(
            Program(name, f"./cmd/{name}", _CONTAINERD, (f"{_CONTAINERD}/version.Version={{version}}",))
            for name in ("containerd", "ctr", "containerd-shim-runc-v2")
        ),
    ),
    Module("tiny", (Program("tiny", "."),)),
    Module("calculator", (Program("replica-calculator", "."),)),
    Module("dra", (Program("dra-oracle", "."),)),
    Module(
        "kwok",
        (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        files=tuple(
            ("sigs.k8s.io/kwok", f"kustomize/stage/{part}/*.yaml", "stages")
            for part in ("node/fast", "node/heartbeat-with-lease", "pod/fast")
        ),
    ),
    Module(
        "karpenter",
        (Program("karpenter-kwok", "sigs.k8s.io/karpenter/kwok"),),
        files=tuple(("sigs.k8s.io/karpenter", f"{part}/apis/crds/*.yaml", "crds") for part in ("pkg", "kwok")),
    ),
    Module("karpenter_plan", (Program("karpenter-plan", "."),)),
    Module(
        "prometheus",
        (
            Program(
                "prometheus",
                f"{PROMETHEUS}/cmd/prometheus",
                PROMETHEUS,
                ("github.com/prometheus/common/version.Version={release}",),
                tags="remove_all_sd",
            ),
        ),
    ),
)
