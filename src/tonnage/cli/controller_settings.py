"""What `tonnage controller` was asked for on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.control.choices import APPLY, AWS, CLUSTER_AUTOSCALER, CONTROLLERS, NODE_CLAIMS
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.control.policy import Policy

_OWN = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds its namespace."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What was asked for on the command line."""

    only: tuple[str, ...]
    mode: str
    listen: str
    prometheus: str
    prometheus_token_file: str
    leader_elect: bool | None
    namespace_of_lease: str
    nodes_backend: str
    aws_cluster: str
    aws_region: str
    kubeconfig: str
    context: str
    form: str | None
    once: bool
    prices: Path | None
    quiet: bool
    speed: float
    placement: str
    preemption: bool
    defragmentation: bool
    partitioning: str
    provisioning: str
    rebalance: bool
    spot_to_spot: bool
    gpu_operator_namespace: str

    @property
    def node_repair(self) -> bool:
        """On a real cluster Karpenter itself replaces nodes that stay unhealthy, where its gate says so."""
        return False

    @property
    def policy(self) -> Policy:
        """As the flags have it."""
        from tonnage.control.policy import Policy

        return Policy.of(self)

    @property
    def applies(self) -> bool:
        """Whether decisions are carried out."""
        return self.mode == APPLY

    @property
    def elects(self) -> bool:
        """A lease is a write: observe mode takes none."""
        return self.applies and self.leader_elect is not False

    @property
    def lease_namespace(self) -> str:
        """Where the leases are: as asked for, else the namespace of the pod that this runs in, else kube-system."""
        return self.namespace_of_lease or (_OWN.read_text(encoding="utf-8").strip() if _OWN.exists() else "kube-system")

    @property
    def output(self) -> str:
        """How decisions are printed: as asked for, else those of one look as a table."""
        return self.form or ("table" if self.once else "text")

    @property
    def controllers(self) -> tuple[str, ...]:
        """Which run."""
        return self.only or CONTROLLERS

    def check(self) -> None:
        """Raises :class:`InputError` for flags that do not go together."""
        if self.nodes_backend == AWS and not self.aws_cluster:
            raise InputError.at("--nodes-backend aws needs --aws-cluster", hint="the name of the EKS cluster")
        if self.aws_cluster and self.nodes_backend == NODE_CLAIMS:
            hint = "or --nodes-backend report, which only says what it would do"
            raise InputError.at("--aws-cluster needs --nodes-backend aws", hint=hint)
        if self.provisioning == CLUSTER_AUTOSCALER and not self.aws_cluster:
            hint = "the name of the EKS cluster whose node groups are sized"
            raise InputError.at("--provisioning cluster-autoscaler needs --aws-cluster", hint=hint)
        if self.speed <= 0:
            raise InputError.at(f"--speed {self.speed:g}", hint="expected above 0")
        if self.speed != 1 and not self.prometheus:
            raise InputError.at(
                "--speed needs --prometheus", hint="the address of a `tonnage up`, which tells the time"
            )
        if self.prometheus_token_file and not self.prometheus:
            raise InputError.at("--prometheus-token-file needs --prometheus", hint="give the URL that the token is for")
        if self.placement:
            from tonnage.scheduling.policies import POLICIES

            if self.placement not in POLICIES:
                raise InputError.at(f"--placement {self.placement}", hint=f"expected one of {', '.join(POLICIES)}")
        if self.form == "table" and not self.once:
            raise InputError.at("-o table is for --once", hint="decisions over time are printed one by one: -o text")
        if self.once and self.applies:
            raise InputError.at("--once only looks", hint="leave out --mode apply")
