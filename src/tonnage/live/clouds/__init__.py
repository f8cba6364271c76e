"""Node groups of a cloud: a port, and what implements it."""
