"""The coordinator of the groups of one partition of `__consumer_offsets`.

coordinator_runtime                          the partitions that one node leads
coordinator_context                          one of them: loading, active, closed
coordinator_loader, coordinator_state        its log is read; what the log says
coordinator_requests, coordinator            requests of members and operators; the groups
coordinator_log                              the log that a replica has now
coordinator_effects, coordinator_timer       what a driver is asked to do; session timers
"""
