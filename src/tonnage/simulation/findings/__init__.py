"""What a scenario cannot mean, what a run leaves out, and what does not run at its end, with file and line."""
