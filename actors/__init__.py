"""Floor 3: Ray, sockets, clocks, tasks. Composes, decides nothing."""
