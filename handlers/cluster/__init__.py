"""APIs about the cluster: ApiVersions, nodes, voters, reassignments, elections, log dirs."""
