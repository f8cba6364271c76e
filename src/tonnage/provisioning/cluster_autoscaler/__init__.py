"""Node groups as the Kubernetes Cluster Autoscaler sizes them: ``plan`` for pods that wait, ``unneeded`` for nodes."""
