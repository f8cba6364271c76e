"""The embedded API server: enough of the Kubernetes API that kubectl works without a cluster."""
