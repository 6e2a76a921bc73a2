"""What does the help of every command look like on a terminal of 80 columns?"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

import bradbury
from bradbury.cli.main import app
from bradbury.tests.support.command_line import Command

COLUMNS = 80


def commands(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *words, name)


EVERY_COMMAND = list(commands(get_command(app)))


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_it_fits_and_names_what_options_want_by_no_programmers_word(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    outcome = command(*words, "--help")
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= COLUMNS
    assert not re.search(r"<(bool|str|int|float|list|path|.* range)", outcome.out), outcome.out
    assert not re.search(r"\b(BOOLEAN|INTEGER|FLOAT)\b", outcome.out), outcome.out
    assert "......" not in outcome.out
    assert "{" not in outcome.out


def test_a_flag_has_no_type_and_an_option_says_what_it_wants(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert re.search(r"--detach +-d +\S", command("up", "--help").out)
    create = command("topics", "create", "--help").out
    assert "Usage: bradbury topics create [OPTIONS] TOPIC " in create
    assert re.search(r"--config +-c +NAME=VALUE ", create)
    assert re.search(r"--partitions +-p +N \[x>=1\]", create)
    delete = command("topics", "delete", "--help").out
    assert "Usage: bradbury topics delete [OPTIONS] TOPIC... " in delete
    assert "Usage: bradbury produce [OPTIONS] TOPIC [FILE]... " in command("produce", "-h").out


def test_the_version_is_one_line(command: Command) -> None:
    outcome = command("--version")
    assert (outcome.code, outcome.out) == (0, f"bradbury {bradbury.__version__}\n")
