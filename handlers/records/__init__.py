"""APIs about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""
