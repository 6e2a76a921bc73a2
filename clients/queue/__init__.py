"""bradbury.Queue: a queue of Ray's shape whose items are records of a topic.

queue              what applications call: Ray's methods, and deliveries that are acknowledged
received_item      an item that has to be acknowledged; Empty, Full
async_puts         items that coroutines put at the same moment, as few records
queue_actor        the Ray actor of a queue: one for all its processes
queue_server       the sockets of that actor, and what runs beside them
queue_processes    the processes that are connected, and what they are asked
queue_takes        takes: who waits for items, and who gets them
queue_puts         puts where there is a maxsize
queue_commits      commits of what is consumed, and dead letters
queue_brokers      where those are, and how clients show who they are there
queue_log          what the actor reads and writes in topics
queue_state        which item is where: ready, with whom, consumed (pure)
consumed_items     what is consumed beyond the first item that is not (pure)
queue_position     that, as the metadata of a committed offset
temporary_queues   queues without a name that a process has made, at its end
queue_connection   a process's connection to the actor, and the items that it holds
process/           parts of that: items ahead, reports of consumed ones, open requests
frames/            what they say to one another

An item goes from the process that puts it to the partition's broker, from there to the actor, and
on to the process that asks for it; no call of Ray is on that way.
"""
