"""What runs gave when they were last recorded, as hashes: a change of results is seen, and where it begins."""
