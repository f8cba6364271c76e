"""What everything costs, and who pays for it."""
