"""Dynamic resource allocation: which devices a claim gets on a node."""
