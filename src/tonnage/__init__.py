"""Dynamic GPU resource management for Kubernetes, in a simulated and in a real cluster."""

__version__ = "0.1.0"
