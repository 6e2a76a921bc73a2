"""How the jobs give commands, and say what is not as it should be."""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import bradbury
from bradbury.cli.main import run as run_command


class Different(Exception):
    """A job's result is not what a batch over the same topic has. In words."""


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Different(f"{what}: {found}, not {wanted}")


def seen_by(jobs: Iterable[Callable[[], str]]) -> dict[str, str]:
    """What each job has seen, and its seconds, by its name. Raises Different, with the name."""
    seen = {}
    for job in jobs:
        began = time.monotonic()
        try:
            found = job()
        except Different as error:
            raise Different(f"{job.__name__}: {error}") from None
        seen[job.__name__] = f"{found}, {time.monotonic() - began:.0f} s"
        print(f"{job.__name__}: {seen[job.__name__]}", flush=True)
    return seen


def make_topics(servers: str, like: str, replicas: int, *names: str) -> None:
    """Topics with as many partitions as another one."""
    with bradbury.Admin(servers) as admin:
        partitions = len(admin.describe_topics([like])[0].partitions)
        for name in names:
            admin.create_topic(name, partitions, replicas)


def command(servers: str, *words: object) -> Any:
    """`bradbury` with these words and --json; the JSON that it prints.

    By its own entry point, in this process, whose session of Spark it takes.
    """
    line = [*map(str, words), "--json", "--bootstrap", servers]
    with captured(1) as out, captured(2) as errors:
        code = run_command(line)
    if code:
        ended = f"`bradbury {' '.join(line)}` ended with exit code {code}"
        raise Different(f"{ended}: {errors()}")
    return json_in(out())


@contextlib.contextmanager
def captured(descriptor: int) -> Iterator[Callable[[], str]]:
    """Call what is yielded for what was written to this descriptor of the process.

    Not on the terminal that `ray submit` makes, on which commands would draw their progress. And
    not by `contextlib.redirect_stdout`: twice another thread put sys.stdout back meanwhile.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        text = ""
        try:
            yield lambda: text
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept, descriptor)
            os.close(kept)
            file.seek(0)
            text = file.read().decode()


def json_in(output: str) -> Any:
    """The JSON in it, which is one piece; Ray prints what its workers print beside it."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line[:1] in ("{", "["))
    found, _ = json.JSONDecoder().raw_decode("\n".join(lines[start:]))
    return found
