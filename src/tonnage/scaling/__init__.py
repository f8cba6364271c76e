"""Set replicas: the HPA and KEDA exactly as they behave, what a trigger can ever do, and the SLO planner."""
