"""The Common Expression Language as Kubernetes has it: what selects devices in claims and device classes."""
