"""The main job, end to end: what `bradbury demo` runs. run.py has the six steps in order."""
