"""Rules of access, as the wire has them."""
