"""Consumer groups of Ray actors: members that poll, workers that process, one handle for both.

group, members                the handle; its member actors, watched
member, member_config         one member: polls, has batches processed, commits
work, batch, group_progress   what was polled and is unfinished; what may be committed
processed_batches             results, until they are taken and acknowledged
dispatcher                    which worker gets which batch
member_workers                how many workers a member has, and what becomes of their batches
local_pool, actor_pool        the worker in a member itself; workers as actors
worker_actors                 clients as actors, whose handle any task can hold
function, results             the function a group runs; what it returned
status                        members, partitions and lag, as a table, too
"""
