"""The cheapest set of nodes for pending pods: a configuration program over patterns of pods, with a proved gap.

:func:`plan.plan` takes what :func:`tonnage.provisioning.karpenter.plan` takes and answers with the same kind of plan,
which never costs more. Equal pods are one class. A *pattern* says how many pods of each class one node holds; patterns
are generated where they pay (:mod:`solve`), and HiGHS chooses whole numbers of them. The bound of the linear program,
tightened over all patterns that a better plan could use, says how much cheaper any plan could be.

Everything here is pure and deterministic: effort is counted in steps of search, never in seconds.
"""
