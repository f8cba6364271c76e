"""Speaking with a Kubernetes API: transports, verbs, informers, leases, events."""
