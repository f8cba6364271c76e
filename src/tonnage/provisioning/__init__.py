"""Launching and terminating nodes: requirement algebra, Karpenter's planning order and launch choice, return of
empty nodes.

Everything here is pure: the same pods, nodes, NodePools, catalogue and settings give the same plan.
"""
