"""Consumer groups of Ray actors: members that poll, workers that process, one handle for both."""
