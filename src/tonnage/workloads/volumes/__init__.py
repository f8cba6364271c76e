"""Volumes that pods claim: which claims are bound to what, and which nodes that leaves a pod."""
