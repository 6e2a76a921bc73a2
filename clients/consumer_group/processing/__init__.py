"""A member's batches between poll and commit: who processes them, what has come of it.

work, batch, group_progress      what was polled and is unfinished; what may be committed
dispatcher, member_workers       which worker gets which batch; how many workers there are
local_pool, actor_pool           the worker in a member itself; workers as actors
function, member_config          the function a group runs; settings of a member
processed_batches, uncommitted   results, until they are acknowledged; or written in a transaction
"""
