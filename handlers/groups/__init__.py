"""APIs about consumer groups: FindCoordinator, JoinGroup, OffsetCommit and their kin."""
