"""Every page that shows commands or programs is followed word by word, with Ray's own defaults.

One home and one cluster for all pages of a run, in the order in which somebody would read them: a page
must work after those before it. Those whose programs are tried elsewhere are followed by
`make test-long` and `make test-deep`; in each run it is seen that their commands and names are there.
All of them, one after the other: `make pages`.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer

import bradbury
from bradbury.cli.main import app
from bradbury.discovery.ray_connection import RAY_TOO_SLOW
from bradbury.storage.disk.storage_failure import DirectoryUnusable
from bradbury.tests.docs.page_runner import SHELL, Block, blocks, run_page
from bradbury.tests.support.command_line import UP_TRIES
from bradbury.tests.support.schema_registry import registry_server

pytestmark = [pytest.mark.ray, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(bradbury.__file__).resolve().parent
DEEP = {
    "docs/serve.md": "a minute of Ray Serve's own start; tests/ray/test_serve_topic.py tries it",
    "docs/consumer-groups.md": "tests/ray/groups/test_consumer_group.py and the others like it",
    "docs/delivery-guarantees.md": "tests/ray/groups/test_consumer_group_faults.py and tests/ray/nodes/test_crash.py kill",
    "docs/exactly-once.md": "tests/ray/test_producer_actor_transactions.py and tests/crash/chains kill",
    "docs/tools.md": "a process for each of forty commands, all of which tests/cli tries",
    "docs/ray.md": "README.md reads and writes Datasets and has a queue; tests/ray tries the rest",
    "docs/spark.md": "README.md begins such a session; tests/pipelines tries what it does",
}
"""Followed by `make test-deep`, and why that is enough."""
LONG = {
    "docs/flows.md": "half a minute of Spark's start; tests/pipelines/flows runs such flows",
    "docs/quickstart.md": "README.md begins with its commands; tests/cli tries the others",
    "docs/clients.md": "README.md has one of each; tests/clients and tests/live try what they do",
    "docs/classic.md": "examples/classic_streams.py is run, and tests/clients/classic",
    "docs/pipelines.md": "tests/pipelines/loads and tests/cli/topics/test_load.py",
    "docs/schemas.md": "tests/ray/data/test_registry_topics.py and tests/pipelines/loads/test_registry_loads.py",
    "docs/mirroring.md": "tests/pipelines/mirrors and tests/cli/topics/test_mirror.py",
    "docs/migrating.md": "tests/pipelines/migrations",
    "docs/testing-with-bradbury.md": "its programs are what tests of tests/live do all day",
}
"""Followed by `make test-long`."""
PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/clients.md",
    "docs/ray.md",
    "docs/serve.md",
    "docs/consumer-groups.md",
    "docs/delivery-guarantees.md",
    "docs/exactly-once.md",
    "docs/classic.md",
    "docs/tools.md",
    "docs/metrics.md",
    "docs/pipelines.md",
    "docs/schemas.md",
    "docs/mirroring.md",
    "docs/flows.md",
    "docs/migrating.md",
    "docs/spark.md",
    "docs/testing-with-bradbury.md",
)


SECURITY = "docs/security.md"
RECOVERY = "docs/recovery.md"
REPLICATION = "docs/replication.md"
OF_THEIR_OWN = (SECURITY, RECOVERY, REPLICATION)
"""They have a cluster of their own, in another home."""
NOT_FOLLOWED = {
    "docs/install.md": "what it installs is downloaded; make wheel-test",
    "docs/reliability.md": "make crash takes as long as it is told",
    "docs/deploy/README.md": "several machines; make deploy-test has three",
}
"""No command of these can be followed on one machine in a few minutes, and where each is tried."""
REGISTRY_PORT = 8081
"""Of the registry that docs/schemas.md names."""


@contextmanager
def new_home() -> Iterator[dict[str, str]]:
    """A new home, and the path that an activated virtual environment gives."""
    folder = tempfile.mkdtemp(prefix="bp-", dir="/tmp")
    inherited = ("LANG", "LC_ALL", "JAVA_HOME", "LD_LIBRARY_PATH")
    variables = {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}",
        "HOME": folder,
        "RAY_TMPDIR": f"{folder}/ray",
        "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
    }
    yield variables
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def home_with_a_cluster() -> Iterator[dict[str, str]]:
    """One in which a cluster is brought up, which is ended."""
    with new_home() as variables:
        yield variables
        ended = subprocess.run(
            ["bradbury", "down"], env=variables, check=False, capture_output=True, text=True
        )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.long  # it comes first, while no other cluster has the ports that are the defaults
def test_the_page_about_security_works_as_printed() -> None:
    with home_with_a_cluster() as variables:
        assert run_page(ROOT / SECURITY, variables, Path(variables["HOME"])) > 0


def test_the_page_about_replication_works_as_printed(tmp_path: Path) -> None:
    """On three nodes, whose ids are those of the page."""
    with bradbury.local(str(tmp_path / "data"), nodes=3) as cluster, new_home() as variables:
        variables["BRADBURY_BOOTSTRAP"] = cluster.bootstrap_servers
        assert run_page(ROOT / REPLICATION, variables, tmp_path) == 2


def test_the_page_about_recovery_works_as_printed() -> None:
    """Where a node has refused to start, as its only copy of the metadata is damaged."""
    with new_home() as variables:
        data_dir = Path(variables["HOME"]) / ".local" / "share" / "bradbury"
        with bradbury.local(str(data_dir)) as cluster, cluster.admin() as admin:
            admin.create_topic("kept")
        [log] = (data_dir / "metadata" / "__cluster_metadata-0").glob("*.log")
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
        with pytest.raises(DirectoryUnusable, match="is damaged"), bradbury.local(str(data_dir)):
            pass
        assert run_page(ROOT / RECOVERY, variables, data_dir.parent) == 1
        with bradbury.local(str(data_dir)) as cluster, cluster.admin() as admin:
            assert admin.list_topics() == ["kept"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with home_with_a_cluster() as variables:
        for _ in range(UP_TRIES):
            begun = subprocess.run(
                ["bradbury", "up", "--detach"],
                env=variables,
                check=False,
                capture_output=True,
                text=True,
            )
            if RAY_TOO_SLOW not in begun.stderr:
                break
        assert begun.returncode == 0, begun.stderr
        yield variables


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(one, marks=pytest.mark.deep)
        if one in DEEP
        else pytest.param(one, marks=pytest.mark.long)
        if one in LONG
        else one
        for one in PAGES
    ],
)
def test_a_page_works_as_printed(page: str, environment: dict[str, str]) -> None:
    folder = Path(environment["HOME"])
    if page == "docs/metrics.md" and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    with registry_server(REGISTRY_PORT) if page == "docs/schemas.md" else nullcontext():
        assert run_page(ROOT / page, environment, folder) > 0


@cache
def command_line() -> Any:
    """Made from all its functions, which takes a third of a second."""
    return typer.main.get_command(app)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each of our commands in a block for a shell."""
    for line in block.source.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        for _, part in groupby(words, key=lambda word: word not in ("|", ">", "<", "&&", ";")):
            found = list(part)
            if found[0] == "bradbury":
                yield found[1:]


@pytest.mark.parametrize("page", [*DEEP, SECURITY])
def test_what_a_page_that_is_not_always_followed_says_makes_sense(page: str) -> None:
    """Its commands with their options, and the names of ours that its programs use."""
    seen = 0
    for block in blocks(ROOT / page):
        if block.is_left_out:
            continue
        if block.language in SHELL:
            for words in commands(block):
                command = command_line()
                while subcommands := getattr(command, "commands", None):
                    while words[0].startswith("--"):  # an option of all commands, and its value
                        assert any(words[0] in each.opts for each in command.params)
                        del words[:2]
                    command = subcommands[words.pop(0)]
                command.make_context("bradbury", words)  # exits where there is no such option
                seen += 1
        elif block.language == "python":
            for node in ast.walk(ast.parse(block.source)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "bradbury":
                    assert hasattr(bradbury, node.attr)
                    seen += 1
    assert seen > 0


CREATES = re.compile(r"bradbury topics create (?P<command>\S+)|create_topic\(\"(?P<call>[^\"]+)\"")


def test_pages_share_a_cluster_so_that_none_makes_the_topic_of_another() -> None:
    """Nor uses it: records of another page would be among those that it shows."""
    makers: dict[str, set[str]] = {}
    for page in PAGES:
        for block in blocks(ROOT / page):
            for made in CREATES.finditer("" if block.is_left_out else block.source):
                makers.setdefault(made["command"] or made["call"], set()).add(page)
    assert len(makers) > 10
    assert {topic: pages for topic, pages in makers.items() if len(pages) > 1} == {}


def test_no_page_with_programs_is_forgotten() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    with_programs = {
        str(page.relative_to(ROOT))
        for page in pages
        if any(block.language in ("sh", "console", "python") for block in blocks(page))
    }
    assert with_programs == {*PAGES, *OF_THEIR_OWN, *NOT_FOLLOWED}
    for page in NOT_FOLLOWED:
        assert all(block.is_left_out for block in blocks(ROOT / page) if block.language in SHELL)


FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^\n {4}(?P<line>(?:bradbury|make|pip|python3?|ray|curl) .*)$", re.MULTILINE)
READ_BY_THE_LAB = ("make wheel                  # in the checkout", "ray exec cluster.yaml ")
"""What tests/deploy/ray_up.py takes out of docs/deploy/README.md as it stands there."""


def test_no_command_is_in_an_indented_block_which_nobody_follows() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {
        f"{page.relative_to(ROOT)}: {one['line']}"
        for page in pages
        for one in INDENTED.finditer(FENCED.sub("", page.read_text()))
        if not one["line"].startswith(READ_BY_THE_LAB)
    }
    assert found == set()
