"""Training work on simulated machines: gangs that run only whole, checkpoints, failures and restarts."""
