"""The commands of docs/tools.md do what they say, in their order, against one cluster."""

import re
import shlex
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.support.command_line import Command

DOCUMENT = Path(bradbury.__file__).resolve().parent / "docs" / "tools.md"


def commands() -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ bradbury ") for line in lines)
    return [shlex.split(line.removeprefix("$ bradbury ")) for line in lines]


@pytest.mark.slow
def test_every_command_of_the_document_works(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"key {number}:line\n" for number in range(100)))
    picture = tmp_path / "picture.png"
    offsets = tmp_path / "offsets.csv"
    offsets.write_text("flights,0,20\nflights,1,20\n")
    asked = commands()
    assert len(asked) > 15
    with bradbury.local(data_dir=str(tmp_path / "data")) as cluster:
        monkeypatch.setenv("BRADBURY_BOOTSTRAP", cluster.bootstrap_servers)
        names = {
            "LINES": str(lines),
            "OFFSETS": str(offsets),
            "PICTURE": str(picture),
            "DATA": cluster.data_dir,
        }
        for words in asked:
            filled = [
                re.sub("|".join(names), lambda found: names[found[0]], word) for word in words
            ]
            outcome = command(*filled)
            assert outcome.code == 0, (filled, outcome.err)
            silent = {
                "topics",
                "produce",
                "replay",
                "import",
                "delete-offsets",
                "delete",
                "replicas",
            }
            if not silent & set(words[:2]):
                assert outcome.out, filled
    assert picture.is_file()
