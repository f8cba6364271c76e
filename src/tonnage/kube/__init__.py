"""Speaking with a Kubernetes API: kubeconfig, transports, verbs, informers, leases, events, resources."""
