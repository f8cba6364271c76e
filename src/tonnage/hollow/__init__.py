"""Simulated machines behind a Kubernetes API."""
