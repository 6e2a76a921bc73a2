"""Drivers of controller/: the controller, the stand-in, voters, and handles on them."""
