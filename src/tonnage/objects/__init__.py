"""Kubernetes objects that we read or write: typed, validated, and aware of the file and line that they come from."""
