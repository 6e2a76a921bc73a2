"""Entry point of `python -m bradbury.cli`, for when the script is not on the PATH."""

from .entry_point import main

main()
