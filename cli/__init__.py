"""The command line: composes brokers, clients and pipelines for users."""
