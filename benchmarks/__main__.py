"""`python -m benchmarks NAME [--quick] [--data DIR] [--json]`; `all` runs every one. Exit code 1 when a bar fails.

With ``--quick`` bars of results alone can fail; one that crashes fails, and the others run.
`python -m benchmarks beside COMMIT NAME…` runs those of another commit and of this one in turn."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback

from benchmarks import beside
from benchmarks.common import Options, Report, data_folder

NAMES = {
    "main": "the simulator: the Azure hour on ten replicas, 20,000 pods on 2,000 nodes, parsing, --help",
    "kube": "on a real API server: scheduling beside kube-scheduler, simulated nodes beside kwok",
    "inference": "the engine model beside dynamo's replay, routing policies, the KV index, KV tiers",
    "logs": "a log of 100,000 prompts into a trace without text, and its blocks beside vLLM's",
    "openb": "the openb GPU trace under every policy, beside the published results",
    "placement": "gangs of 1,000 pods on 5,000 nodes; gangs that block each other, beside placing pod by pod",
    "partitioning": "MIG: fit decisions a second; plans of 1,000 cards, beside an integer program over every placement",
    "provisioning": "node plans: the optimal policy beside Karpenter's order and an exact optimum",
    "estimator": "serving estimates beside aiconfigurator's on measured points; --test FILE scores a file",
    "dra": "one CEL selector over the 8,000 devices of a cluster, beside Google's evaluator",
    "scaling": "replicas for a surge, a day and steady traffic: slo beside KEDA, a GPU_UTIL rule and an oracle",
    "surge": "the slo policy over seeds, beside the best of 200 KEDA settings and an oracle",
}

OWN = {
    "test": ("estimator",),
    "trace": ("scaling",),
    "variant": ("openb",),
    "seeds": ("openb", "provisioning"),
    "like": ("openb",),
}
"""Options that some benchmarks have, and which."""


def main() -> int:
    if sys.argv[1:2] == ["beside"]:
        return beside.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog="; ".join(f"{k}: {v}" for k, v in NAMES.items())
    )
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--quick", action="store_true", help="the same measurements on less input")
    parser.add_argument("--data", help="folder with traces/ (default: TONNAGE_DATA, then ../shared/data)")
    parser.add_argument("--test", help="estimator only: score this CSV file of measured points, fitting nothing")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--variant", help="openb: the pod list to run (default: default)")
    parser.add_argument("--seeds", help="openb, provisioning: a range of seeds (default: 42-51, 7-7)")
    parser.add_argument("--like", help="openb: a stand-in for another pod list, made from the default one")
    parser.add_argument("--trace", help="scaling: the request log (default: the Azure 2023 conversation trace)")
    given = parser.parse_args()
    for name, owners in OWN.items():
        if getattr(given, name) and given.name not in owners:
            parser.error(f"--{name} goes with {' or '.join(owners)}")
    own = {name: value for name in OWN if (value := getattr(given, name))}
    options = Options(given.quick, data_folder(given.data), own)
    names = list(NAMES) if given.name == "all" else [given.name]
    failed, spent = [], {}
    for name in names:
        before = _cpu_seconds()
        if not _holds(name, options, given.json):
            failed.append(name)
        spent[name] = _cpu_seconds() - before
    if len(names) > 1:
        most = ", ".join(f"{name} {seconds:.0f}" for name, seconds in sorted(spent.items(), key=lambda one: -one[1]))
        print(f"{_cpu_seconds():.0f} CPU seconds ({most}); failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _holds(name: str, options: Options, as_json: bool) -> bool:
    """Whether the benchmark ran to its end and no bar that decides was missed. It prints its report."""
    try:
        report: Report = importlib.import_module(f"benchmarks.{name}").run(options)
    except Exception:
        traceback.print_exc()
        print(f"{name}\n  FAILS  it did not run to its end")
        return False
    report.print(as_json, options.quick)
    return not report.missed(options.quick)


if __name__ == "__main__":
    sys.exit(main())
