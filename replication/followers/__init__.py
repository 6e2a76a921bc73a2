"""Followers: fetch, truncate, append; one fetcher for each leader that is followed.

replica_fetcher           one leader's partitions, question after question
replica_fetcher_manager   which fetchers there are
following_node            what a fetcher knows of the node that it runs on
"""
