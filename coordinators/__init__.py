"""Common parts of group and transaction coordinators. Step objects.

coordinator_rules     what a kind of coordinator brings: its rules, its records, its settings
rules_effects         what rules ask for: answers, timers, records to be written
coordinator_context   one partition's coordinator in one leader epoch: load, append, apply, answer
coordinator_loader    its start: the log is read, applied, and must be committed
coordinator_runtime   the contexts of one node, by leader epoch
coordinator_timer     timers that are nearly always moved on before they fire
coordinator_effects   what a context asks its driver to do
coordinator_log       a partition's log, as its coordinator looks at it
"""
