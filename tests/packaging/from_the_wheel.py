"""The wheel alone, in a new environment of each Python: is it enough for what it promises?

    make wheel-test                  # or: python -m bradbury.tests.packaging.from_the_wheel
    make wheel-test ARGS=--measure   # and how much each extra weighs (docs/install.md)

For every interpreter of 3.11, 3.12 and 3.13 that is found, or named with --python:
    the wheel is installed, with what it requires and nothing else
    `bradbury --version`; records through local() with our own Producer and Consumer
    a fresh home and Ray's defaults: `up --detach`, topics create, produce, consume, a Producer in a
    process of its own, status, down
    each extra that is missing: one line that names the command that installs it from this wheel
    all extras: nothing is missing; their modules are imported, and a small demo runs
Each step is shown with its seconds; the first that fails ends it with exit code 1.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bradbury
from bradbury.discovery.extras import MODULES
from bradbury.tests.packaging.interpreters import (
    Environment,
    Failed,
    build_wheel,
    environment_of,
    find_interpreters,
    names_installation,
)

ROOT = Path(bradbury.__file__).resolve().parent
RECORDS = 1000
DEMO_ROWS = 5000
ROUND_TRIP = f"""
import bradbury
with bradbury.local() as cluster:
    with cluster.admin() as admin:
        admin.create_topic("flights")
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range({RECORDS}):
            producer.send("flights", b"%d" % number)
    count = 0
    with bradbury.Consumer(
        "flights", bootstrap=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        while count < {RECORDS}:
            count += consumer.poll(1000).num_rows
    print(count)
"""
PRODUCE = """
import bradbury
with bradbury.Producer() as producer:
    print(producer.send("flights", b"from Python").result(60).topic)
"""
IMPORTS = {
    "bradbury": "import bradbury",
    "Producer and Consumer": "from bradbury import Consumer, Producer",
    "local()": "from bradbury import local",
    "the actors": "from bradbury import ConsumerActor",
}
EXTRA_IMPORTS = {
    "data": "import ray.data",
    "serve": "import ray.serve",
    "dashboard": "import ray.dashboard.dashboard",
    "spark": "import pyspark.sql, raydp",
    "demo": "import pandas, matplotlib.figure",
}


@contextmanager
def step(text: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"  {time.monotonic() - began:6.1f} s  {text}", flush=True)


def check(python: Path, wheel: Path) -> None:
    with environment_of(python) as environment:
        with step("the wheel and what it requires are installed"):
            environment.pip("install", str(wheel))
        said = environment.bradbury("--version").strip()
        if said != f"bradbury {bradbury.__version__}":
            raise Failed(f"bradbury --version: {said!r}")
        with step(f"{RECORDS} records through local()"):
            count = environment.python(ROUND_TRIP).strip()
            if count != str(RECORDS):
                raise Failed(f"{count} of {RECORDS} records came back")
        _cluster(environment)
        _missing_extras(environment, wheel)
        _all_extras(environment, wheel)


def _cluster(environment: Environment) -> None:
    with step("bradbury up --detach"):
        environment.bradbury("up", "--detach", "--port", "0")
    try:
        with step("topics create, produce, consume, Producer(), status"):
            environment.bradbury("topics", "create", "flights", "--partitions", "4")
            environment.bradbury("produce", "flights", stdin="hello\n")
            environment.python(PRODUCE)
            words = ("consume", "flights", "--from-beginning", "--max", "2")
            records = sorted(environment.bradbury(*words).splitlines())
            if records != ["from Python", "hello"]:
                raise Failed(f"{' '.join(words)}: {records}")
            status = json.loads(environment.bradbury("status", "--json"))
            if not status["healthy"]:
                raise Failed(f"status: {status['problems']}")
    finally:
        with step("bradbury down"):
            environment.bradbury("down")


def _missing_extras(environment: Environment, wheel: Path) -> None:
    with step("each missing extra is one line"):
        named = environment.bradbury("version").splitlines()
        for extra in MODULES:
            lines = [line for line in named if line.startswith(f"[{extra}] ")]
            if len(lines) != 1 or not names_installation(lines[0], wheel, extra):
                raise Failed(f"bradbury version says of {extra}: {lines}")
        for extra, words in (
            ("spark", ("python", "-c", "import bradbury; bradbury.spark()")),
            ("demo", ("bradbury", "demo")),
            ("spark", ("bradbury", "demo", "--require-spark")),
        ):
            line = environment.refused(*words)
            if not names_installation(line, wheel, extra):
                raise Failed(f"{' '.join(words)}: {line}")


def _all_extras(environment: Environment, wheel: Path) -> None:
    with step("all extras but PyTorch are installed, and their modules imported"):
        wanted = [extra for extra in MODULES if extra != "torch"]  # gigabytes of it
        environment.pip("install", f"{wheel}[{','.join(wanted)}]")
        said = environment.bradbury("version")
        if any(f"[{extra}] is not installed" in said for extra in wanted):
            raise Failed(f"bradbury version: {said}")
        environment.python("; ".join(EXTRA_IMPORTS.values()))
    with step(f"the demo with {DEMO_ROWS} rows, without Spark"):
        words = ("demo", "--rows", str(DEMO_ROWS), "--no-spark", "--json")
        summary = json.loads(environment.bradbury(*words))
        if summary["rows"] != DEMO_ROWS:
            raise Failed(f"the demo's summary: {summary}")


def measure(python: Path, wheel: Path) -> None:
    """A table of sizes and seconds; each extra in an environment of its own."""
    print("| installed | size, MB | import | seconds |\n|---|---|---|---|")
    with environment_of(python) as environment:
        environment.pip("install", str(wheel))
        alone = environment.size_megabytes()
        for number, (name, statement) in enumerate(IMPORTS.items()):
            what, size = ("the wheel alone", f"{alone:.0f}") if number == 0 else ("", "")
            seconds = environment.import_seconds(statement)
            print(f"| {what} | {size} | {name} | {seconds:.2f} |", flush=True)
    for extra, statement in EXTRA_IMPORTS.items():
        with environment_of(python) as environment:
            environment.pip("install", f"{wheel}[{extra}]")
            more = environment.size_megabytes() - alone
            seconds = environment.import_seconds(statement)
            modules = statement.removeprefix("import ")
            print(f"| `[{extra}]` | + {more:.0f} | {modules} | {seconds:.2f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, action="append", default=[], help="repeatable")
    parser.add_argument("--wheel", type=Path, help="by default one is built of this checkout")
    parser.add_argument("--measure", action="store_true", help="sizes and times of imports")
    arguments = parser.parse_args()
    try:
        interpreters = find_interpreters(arguments.python)
        if not interpreters:
            print("no python3.11, 3.12 or 3.13 is found; name one with --python", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory(prefix="bradbury-wheel-") as folder:
            wheel = arguments.wheel or build_wheel(ROOT, Path(folder))
            wheel = wheel.resolve()
            if arguments.measure:
                measure(next(iter(interpreters.values())), wheel)
                return 0
            for version, python in interpreters.items():
                print(f"Python {version} ({python}), {wheel.name}", flush=True)
                check(python, wheel)
    except Failed as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
