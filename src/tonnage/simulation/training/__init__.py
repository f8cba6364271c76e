"""Training work in the simulated cluster: gangs that run only whole, checkpoints, failures and restarts."""
