"""What pyproject.toml cannot say. The project itself is described there.

An editable install warns of folders that are called like the package, since they would be found
first where Python is started in the same folder. This checkout has none: its root is the package.
"""

import warnings

from setuptools import setup

warnings.filterwarnings("ignore", message="Editable installation")
setup(script_name="setup.py")  # by which the wheel leaves it out
