"""bradbury bench: what a cluster does, measured from here."""
