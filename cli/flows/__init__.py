"""`bradbury flow`: flows of topics through steps into topics and tables."""
