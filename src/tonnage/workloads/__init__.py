"""What workload controllers ask for: gangs, priorities, and what restarts when one of their pods fails."""
