"""`python -m bradbury.cli`, for where the script is not on the path."""

from .main import main

main()
