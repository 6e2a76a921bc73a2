"""Authorization on a node: rules taken over from the metadata, decisions written down."""
