"""The cluster at one instant: columnar tables of nodes, devices and pods, changed incrementally, undone cheaply."""
