"""Floor 2: one Kafka API per file: request + ports -> response."""
