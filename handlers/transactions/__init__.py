"""APIs about transactions: InitProducerId, AddPartitionsToTxn, EndTxn and their kin."""
