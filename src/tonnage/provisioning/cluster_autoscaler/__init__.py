"""Node groups as the Kubernetes Cluster Autoscaler sizes them: ``plan`` for pending pods, ``unneeded`` for nodes."""
