"""Common parts of drivers: the event loop of a node, its threads, its counters.

step_driver       carries out the effects of steps, and calls their ticks
storage_threads   threads in which what waits for the disk is done
carry_through     work that runs to its end even if its caller is cancelled
awaited_end       a condition of procedures: a coroutine has ended
line_limit        log lines about peers: at most so many
node_metrics      what one node counts
process_services  a node's heap, probe of its loop, and thread for long computations
heap              Python's garbage collector beside very many objects
"""
