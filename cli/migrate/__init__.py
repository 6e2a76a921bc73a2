"""`bradbury migrate`: from a Kafka cluster to here, and back."""
