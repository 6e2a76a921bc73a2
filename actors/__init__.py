"""Floor 3: Ray, sockets, clocks, tasks. Drives the steps, decides nothing."""
