"""World 2: a Kubernetes cluster. Client, informers, the world over them, and the embedded API server."""
