"""The HTML report of one or several simulation results: a single file that works without a network."""

from tonnage.simulation.report.page import render

__all__ = ["render"]
