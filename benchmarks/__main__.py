"""`python -m benchmarks NAME [--quick] [--data DIR] [--json]`; `all` runs every one. Exit code 1 when a bar fails."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks.common import Options, data_folder

NAMES = {
    "main": "the simulator: the Azure hour on ten replicas, 20,000 pods on 2,000 nodes, parsing, --help",
    "kube": "on a real API server: scheduling beside kube-scheduler, simulated nodes beside kwok",
    "inference": "the engine model beside dynamo's replay, routing policies, the KV index, KV tiers",
    "estimator": "serving estimates beside aiconfigurator's on measured points; --test FILE scores a file",
    "surge": "the slo policy over seeds, beside the best of 200 KEDA settings and an oracle",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog="; ".join(f"{k}: {v}" for k, v in NAMES.items())
    )
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--quick", action="store_true", help="the same measurements on less input")
    parser.add_argument("--data", help="folder with traces/ (default: TONNAGE_DATA, then ../shared/data)")
    parser.add_argument("--test", help="estimator only: score this CSV file of measured points, fitting nothing")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    given = parser.parse_args()
    if given.test and given.name != "estimator":
        parser.error("--test goes with estimator")
    options = Options(given.quick, data_folder(given.data), (given.test,) if given.test else ())
    failed = False
    for name in NAMES if given.name == "all" else [given.name]:
        report = importlib.import_module(f"benchmarks.{name}").run(options)
        report.print(given.json)
        failed = failed or any(not bar.holds for bar in report.bars)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
