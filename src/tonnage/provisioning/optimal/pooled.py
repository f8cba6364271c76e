"""A bound that takes one small linear program: what pods cost at prices of resources by which no node is worth more
than it costs.

All nodes that take the same classes of pods are one pool here, and a pod may stand on several of them. So it is below
what patterns prove, and there at once, however many pods and kinds of nodes there are.
"""

from __future__ import annotations

import highspy

from tonnage.highs import Solver
from tonnage.provisioning.optimal.program import INF, Program


def bound(program: Program) -> float:
    """What no plan costs less than, USD per hour, with the price of pods that it leaves out."""
    classes, dimensions = len(program.demand), len(program.weights[0])
    unit = [max(1, *(weights[d] for weights in program.weights)) for d in range(dimensions)]
    pools = {admits: at for at, admits in enumerate(dict.fromkeys(one.admits for one in program.bins))}
    solver = Solver()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for demand in program.demand:
        solver.addCol(float(demand), 0.0, program.missing, 0, [], [])
    for _ in range(len(pools) * dimensions):
        solver.addCol(0.0, 0.0, INF, 0, [], [])
    first = classes + len(pools) * dimensions
    for limit in program.limits:
        solver.addCol(-limit, 0.0, INF, 0, [], [])
    scarce = {at: first + len(program.limits) + n for n, at in enumerate(_counted(program))}
    for at in scarce:
        solver.addCol(-float(program.bins[at].supply or 0), 0.0, INF, 0, [], [])
    for admits, pool in pools.items():
        start = classes + pool * dimensions
        for c in admits:  # a pod is worth what it takes, and what moving it costs
            row = {c: 1.0, **{start + d: -w / unit[d] for d, w in enumerate(program.weights[c]) if w}}
            solver.addRow(-INF, program.fare(c), len(row), list(row), list(row.values()))
    for at, one in enumerate(program.bins):  # a node is worth what it costs at most, what holds it back added
        start = classes + pools[one.admits] * dimensions
        row = {start + d: room / unit[d] for d, room in enumerate(one.room) if room}
        row |= {c: float(n) for c, n in enumerate(one.holds) if n}
        row |= {first + limit: -amount for limit, amount in one.charges}
        if at in scarce:
            row[scarce[at]] = -1.0
        solver.addRow(-INF, one.price, len(row), list(row), list(row.values()))
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return 0.0
    return max(0.0, float(solver.getInfo().objective_function_value))


def _counted(program: Program) -> list[int]:
    return [at for at, one in enumerate(program.bins) if one.supply is not None]
