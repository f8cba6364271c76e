"""World 1: scenarios on simulated machines. From files to a run, its findings, its result and its report."""
