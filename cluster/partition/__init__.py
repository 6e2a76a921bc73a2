"""One partition: its replicas as leader and followers see them, and as the controller places them.

leader_state        high watermark and in-sync replicas, as the leader counts them
follower_state      fetch, truncate, append: what a leader's answer makes a follower do
partition_change    leader and in-sync replicas from who is there
replica_placement   which nodes get the replicas
replication_quota   how fast replicas that catch up are copied
"""
