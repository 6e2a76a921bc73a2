"""Between threads and coroutines of a client, and the thread that serves its sockets.

io_thread                         one loop for all connections of a process
call_thread                       blocking calls of users, in a separate thread
loop_waiter, observed_condition   a coroutine that waits for what a thread does
awaitable_future                  a future for both
"""
