"""A member's batches between poll and commit: processing and results.

work, batch, group_progress      polled batches; offsets that may be committed
dispatcher, member_workers       assignment of batches to workers; the workers
local_pool, actor_pool           the worker in a member itself; workers as actors
function, member_config          the function a group runs; settings of a member
processed_batches, uncommitted   results until they are acknowledged, or written in a transaction
"""
