"""Requests on their way in the simulated cluster: Services, load balancing, and engines behind them."""
