"""What every Ray of the tests is started with: it meets no other Ray on the machine, nor slows it.

Nothing here touches Ray's token authentication: it is as it comes.
"""

HEAD = "tests-head"
"""A resource of the node that a process of a test run starts, and of none of those that join it."""
RAY_ENVIRONMENT = {
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# For those who kill: Ray need not tell of each death.
QUIET_DEATHS = {"RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed|has been marked dead"}
# A killed or stopped node is noticed after some 10 s instead of 14 and 65: a busy machine can stand
# still for longer than 5.
QUICK_DEATHS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 10,
}
