"""Floor 3: Ray, sockets, clocks, threads, tasks. Drivers of the step objects below."""
