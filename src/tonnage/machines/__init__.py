"""Machines that are not real, in virtual time: kubelets, a cloud, workload controllers, engines, and their API."""
