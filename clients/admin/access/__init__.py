"""What Admin has of rules of access, and how brokers are asked for it."""
