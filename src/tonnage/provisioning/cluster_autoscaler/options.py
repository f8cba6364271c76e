"""What the flags of the Cluster Autoscaler say, with its defaults.

Source: kubernetes/autoscaler cluster-autoscaler config/flags/flags.go and FAQ.md, 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.units import NS_PER_S

RANDOM, MOST_PODS, LEAST_WASTE = "random", "most-pods", "least-waste"
PRICE, PRIORITY, LEAST_NODES = "price", "priority", "least-nodes"
EXPANDERS = (LEAST_NODES, LEAST_WASTE, MOST_PODS, PRICE, PRIORITY, RANDOM)
"""Expanders by name, those that ask another program (grpc) aside."""
SCAN_NS = 10 * NS_PER_S
"""How often the autoscaler looks (--scan-interval)."""
_MINUTE = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class AutoscalingOptions:
    """One attribute a flag; times in nanoseconds.

    ``expanders``: asked in turn until one option is left. ``priorities``: of the priority expander, each with regular
    expressions for names of groups; a higher number goes first. ``max_nodes_total``: 0 for no limit.
    ``utilization_threshold``: nodes on which less than this share of CPU and of memory is requested may go,
    ``gpu_utilization_threshold`` the same of GPUs on nodes that have some. ``max_scale_down_parallelism``: nodes that
    go at once, ``max_empty_bulk_delete`` of those without pods, ``max_drain_parallelism`` of the others. ``release``:
    its version, None where it is not known and the newest is meant.
    """

    expanders: tuple[str, ...] = (LEAST_WASTE,)
    priorities: tuple[tuple[int, tuple[str, ...]], ...] = ()
    max_nodes_total: int = 0
    max_nodes_per_scaleup: int = 1000
    balance_similar_node_groups: bool = False
    scale_down_enabled: bool = True
    unneeded_ns: int = 10 * _MINUTE
    unready_ns: int = 20 * _MINUTE
    delay_after_add_ns: int = 10 * _MINUTE
    delay_after_delete_ns: int = 0
    delay_after_failure_ns: int = 3 * _MINUTE
    utilization_threshold: float = 0.5
    gpu_utilization_threshold: float = 0.5
    ignore_daemonsets_utilization: bool = False
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    max_scale_down_parallelism: int = 10
    max_empty_bulk_delete: int = 10
    max_drain_parallelism: int = 1
    max_graceful_termination_ns: int = 600 * NS_PER_S
    release: tuple[int, int] | None = None


DEFAULTS = AutoscalingOptions()
