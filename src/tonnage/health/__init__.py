"""What will not run, and why: one verdict on a set of objects, for every command and both worlds."""
