"""What the API server's admission makes of pods, and which it refuses: accounts, classes, limit ranges, quotas."""
