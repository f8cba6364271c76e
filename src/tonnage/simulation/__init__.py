"""World 1: the simulated cluster. Virtual time, traffic, nodes, engines; the same decisions as on a real cluster."""
