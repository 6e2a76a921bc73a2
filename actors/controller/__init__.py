"""Drivers of controller/: the controller, its standby, voters, and handles on them."""
