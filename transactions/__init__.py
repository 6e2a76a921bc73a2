"""Floor 1: transactions. Pure rules: requests and time in, effects out.

transaction_state          the states of a transactional id and the ways between them
transaction_metadata       what is known of a transactional id; each transition of it
transaction_records        the records of `__transaction_state`
transaction_coordinator    the rules: requests, time, the log
transaction_effects        what the rules ask for
transaction_coordinators   how coordinators/ runs them
transaction_requests       what producers ask
waiting_requests           AddPartitionsToTxn that waits for a transition to end
end_decision               what EndTxn comes to
transaction_markers        how markers reach the leaders of the partitions
add_partitions_manager     what leaders ask transaction coordinators (KIP-890)
transaction_config         the settings
"""
