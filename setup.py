"""Build steps that pyproject.toml cannot express. The project itself is described there.

An editable install warns of folders that are called like the package, since they would be found
first where Python is started in the same folder. This checkout has none: its root is the package.

With BRADBURY_COMPILED=1 a wheel is built whose hottest modules (compiled-modules.txt) are machine
code, made by mypyc from the same source; see docs/install.md. It needs a C compiler, and mypy and
what the project imports in the environment that builds: `make wheel`.
"""

import os
import tempfile
import warnings
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
# Their types are not needed, and reading them takes most of the time.
MYPY = """\
[mypy]
mypy_path = .path
explicit_package_bases = True
ignore_missing_imports = True
[mypy-ray.*,pyarrow.*,cryptography.*,pyspark.*,rich.*,typer.*,click.*,prometheus_client.*,psutil.*]
follow_imports = skip
[mypy-bradbury.clients.*,bradbury.pipelines.*,bradbury.cli.*,bradbury.launch.*]
follow_imports = skip
"""


def compiled() -> list[Extension]:
    """The extensions of the modules in compiled-modules.txt."""
    from mypyc.build import mypycify

    modules = [
        f".path/bradbury/{line}"
        for line in (ROOT / "compiled-modules.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mypy.ini"
        config.write_text(MYPY)
        extensions: list[Extension] = mypycify(["--config-file", str(config), *modules])
    return extensions


warnings.filterwarnings("ignore", message="Editable installation")
setup(  # by which name the wheel leaves it out
    script_name="setup.py",
    ext_modules=compiled() if os.environ.get("BRADBURY_COMPILED") == "1" else [],
)
