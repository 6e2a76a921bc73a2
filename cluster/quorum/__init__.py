"""Quorum of the metadata log: voters, leader, committed offset.

voter                         one copy of the log: which controller may write to it
metadata_quorum               a controller's side: epochs, replication, the committed offset
candidacy                     when a node stands for controller
voter_change, voter_history   adding and removing voters; who votes at which offset
metadata_snapshot             snapshots, which stand for the beginning of the log
"""
