"""Commands about a cluster: up, down, status, rebalance, drain, replicas, voters, dirs."""
