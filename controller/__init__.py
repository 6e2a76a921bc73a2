"""Metadata log and its controller as step objects; see docs/design/steps.md.

voter_requests, controller_calls    what a voter and the controller can be asked, each once
controller_effects, quorum_times    what the steps ask of their drivers, and how long they wait
metadata_voter                      one voter: its vote and its copy of the log
voter_files/                        its files
active/                             the active controller, and how it changes the metadata
controller_election, voter_survey   how it becomes that
metadata_snapshots                  when it takes a snapshot, and what becomes of it
metadata_leader, candidate_state    the log that it leads; before it does: votes, and that log
log_replication                     how it is brought to each voter
majority_deadlines                  by when a majority has to have its entry, and to confirm it
metadata_publisher                  who waits for news, and for others to have them
node/                               a node's side: its life, its departure, its producer ids
standby_controller                  when a broker starts a standby for a silent controller
"""
