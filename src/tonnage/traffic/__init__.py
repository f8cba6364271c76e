"""Request traffic: public traces, profiles fitted to them, and the arrivals of one service in one run."""
