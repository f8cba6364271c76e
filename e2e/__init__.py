"""A real Kubernetes cluster for tests and benchmarks: built from Go modules, started on loopback in seconds."""
