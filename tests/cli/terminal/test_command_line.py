"""What holds for every command: help, exit codes, one-line errors, --debug, completion."""

import json
import os
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayTaskError
from typer.main import get_command

import bradbury
from bradbury import LocalCluster
from bradbury.cli.main import app
from bradbury.cli.terminal.failure import CommandFailed, exit_code, explain
from bradbury.cli.topics import consume_command
from bradbury.discovery.extras import MODULES
from bradbury.discovery.state_file import ClusterState, write_state
from bradbury.protocol.errors import NotController, TopicAlreadyExists
from bradbury.tests.support.command_line import Command

COMMANDS = ("up", "down", "status", "topics", "produce", "consume", "demo", "log", "version")


def test_help_names_every_command(command: Command) -> None:
    outcome = command("--help")
    assert outcome.code == 0
    assert all(name in outcome.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(command: Command, name: str) -> None:
    outcome = command(name, "-h")
    assert outcome.code == 0
    assert "Usage: bradbury" in outcome.out


def test_a_command_that_takes_brokers_finds_them_by_a_namespace_too(
    command: Command, bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(
        ClusterState(
            namespace="two",
            ray_address="127.0.0.1:1",
            bootstrap=bradbury_cluster.bootstrap_servers,
            data_dir=bradbury_cluster.data_dir,
        )
    )
    assert command("topics", "create", "two-gates", "--namespace", "two").code == 0
    assert "two-gates" in command("topics", "list", "--namespace", "two").out
    assert "BRADBURY_NAMESPACE" not in os.environ  # for one command line only
    other = command("topics", "list", "--namespace", "three").error
    assert other.startswith("no cluster is up in namespace 'three', only in 'two'")
    assert "'a b'" in command("topics", "list", "--namespace", "a b").usage
    monkeypatch.setenv("BRADBURY_NAMESPACE", "three")
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", "127.0.0.1:1")
    assert "two-gates" in command("topics", "list", "--namespace", "two").out
    assert os.environ["BRADBURY_BOOTSTRAP"] == "127.0.0.1:1"


@pytest.mark.parametrize(
    "line",
    [
        "topics delete gates",
        "topics delete-records gates --before latest",
        "groups delete readers",
        "groups delete-offsets readers --topic gates",
        "users remove alice",
        "acls remove --topic gates",
    ],
)
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_said(
    process: Command, bradbury_cluster: LocalCluster, line: str
) -> None:
    servers = bradbury_cluster.bootstrap_servers
    with bradbury.Admin(servers) as admin:
        if "gates" not in admin.list_topics():
            admin.create_topic("gates")
        refused = process(*line.split(), "--bootstrap", servers).error
        assert refused.startswith("nothing was changed: there is no terminal to ask on (")
        assert refused.endswith("add --yes")
        assert "gates" in admin.list_topics()


def test_every_command_that_finds_a_cluster_takes_a_namespace() -> None:
    def check(group: Any) -> int:
        seen = 0
        for one in group.commands.values():
            if hasattr(one, "commands"):
                seen += check(one)
            if {"bootstrap", "address"} & {param.name for param in one.params}:
                assert "namespace" in {param.name for param in one.params}, one.name
                seen += 1
        return seen

    assert check(get_command(app)) > 50


def test_parsing_a_command_line_imports_nothing_heavy() -> None:
    program = (
        "import sys; from bradbury.cli.main import run; run(['--help']); "
        "heavy = {'ray', 'pyarrow', 'numpy', 'numba', 'pyspark', 'uvloop'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_version_knows_every_extra() -> None:
    project = tomllib.loads((Path(bradbury.__file__).parent / "pyproject.toml").read_text())
    extras = set(project["project"]["optional-dependencies"])
    assert set(MODULES) == extras - {"test"}


def test_version_names_what_matters_in_a_report(command: Command) -> None:
    outcome = command("version")
    assert outcome.code == 0
    assert {line.split()[0] for line in outcome.out.splitlines()} >= {"bradbury", "python", "ray"}
    found = json.loads(command("version", "--json").out)
    assert found["versions"].items() >= {"bradbury": bradbury.__version__}.items()


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("topics", "frobnicate"), "No such command 'frobnicate'"),
        (("stauts",), "Did you mean 'status'? see `bradbury --help`"),
        (("topics", "describe"), "Missing argument 'TOPIC'"),
        (("topics", "list", "--frobnicate"), "No such option"),
        (("up", "--port", "70000"), "--port"),
        (("consume", "t", "--max", "many"), "--max"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_one_line_and_exit_code_2(
    command: Command, arguments: tuple[str, ...], cause: str
) -> None:
    outcome = command(*arguments)
    assert outcome.code == 2
    assert cause in outcome.err
    assert "--help" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("topics create t --config segment.bytes", "use --config name=value"),
        ("topics create t --replication-factor 0", "--replication-factor"),
        ("topics create t --partitions 0", "--partitions"),
        ("topics alter t", "use --config name=value or --unset name"),
        ("topics alter t --append cleanup.policy", "use --append name=value"),
        ("topics add-partitions t 0", "TOTAL"),
        ("produce t --acks 2", "--acks"),
        ("produce t --compression rar", "--compression"),
        ("produce t absent.txt", "absent.txt: there is no such file"),
        ("produce t /", "/ is a directory; name the files in it"),
        ("produce t --compression rar", "'--compression': 'rar' is not one of"),
        ("consume t --offset 3", "--offset needs --partition"),
        ("consume t -p 0 --offset 3 --from-beginning", "--from-beginning and --offset"),
        ("consume t -p 0 -g g", "omit --partition or --group"),
        ("consume t --format %x", "%x"),
        ("offsets get t --time yesterday", "ISO 8601"),
        ("groups list --state Asleep", "use one of Empty"),
        ("groups describe --every 1", "need --watch"),
        ("groups reset-offsets g --topic t", "use one of --to-earliest"),
        ("groups reset-offsets g --to-latest", "use --topic TOPIC or --all-topics"),
        ("groups reset-offsets g -t t --by-duration soon", "is not a duration"),
        ("groups export g h --json", "one group at a time"),
        ("groups remove-members g", "use --instance ID"),
        ("replicas assign t 0 one", "are not node ids"),
        ("replicas elect --unclean", "give the TOPIC"),
        ("log dump absent.log", "there is no such file"),
        ("flow run absent.yaml", "absent.yaml: there is no such file"),
        ("log verify absent", "there is no such file"),
        ("log index-check absent", "there is no such file"),
        ("log replay t t", "into itself"),
        ("bench latency --size 3", "--size"),
        ("bench produce --acks many", "--acks"),
        ("demo --no-spark --require-spark", "contradict each other"),
        ("demo --plot absent/x.png", "its folder does not exist"),
        ("up --node-label zone", "use --node-label name=value"),
        ("up --config log.dirs", "use --config name=value"),
    ],
)
def test_invalid_values_are_refused_before_a_cluster_is_asked(
    command: Command, line: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", "127.0.0.1:1")
    assert cause in command(*line.split()).usage


def test_the_traceback_comes_with_debug_only_anywhere_on_the_line(command: Command) -> None:
    line = ("topics", "list", "--bootstrap", "nonsense:port")
    assert "Traceback" not in command(*line).err
    for arguments in (("--debug", *line), (*line, "--debug")):
        outcome = command(*arguments)
        assert outcome.code == 2
        assert "Traceback" in outcome.err
        assert outcome.err.splitlines()[-1].startswith("error: ")


def test_ctrl_c_is_that_also_where_python_makes_another_error_of_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(_: object) -> str:
        condition = threading.Condition()
        with condition:
            condition.release()  # as Condition.wait has when the signal comes
            raise KeyboardInterrupt

    monkeypatch.setattr(consume_command, "bootstrap_servers", wait)
    outcome = command("consume", "t")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")


def test_what_ctrl_c_leaves_undone_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: object) -> str:
        try:
            raise KeyboardInterrupt
        finally:
            raise CommandFailed("3 records were not delivered")

    monkeypatch.setattr(consume_command, "bootstrap_servers", end)
    outcome = command("consume", "t")
    assert (outcome.code, outcome.err) == (1, "error: 3 records were not delivered\n")


def test_a_malformed_address_is_one_line(command: Command) -> None:
    assert "--bootstrap host:port" in command("topics", "list", "-b", "nonsense:port").usage


@pytest.mark.parametrize("arguments", [("topics", "list"), ("consume", "t"), ("produce", "t")])
def test_where_nobody_listens_every_client_says_so_at_once(
    command: Command, arguments: tuple[str, ...]
) -> None:
    began = time.monotonic()
    error = command(*arguments, "--bootstrap", "127.0.0.1:1").error
    assert "no broker of 127.0.0.1:1 answers" in error
    assert "is the address right?" in error
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("words", "completed"), [("bradbury to", "topics"), ("bradbury topics des", "describe")]
)
def test_a_shell_completes_commands(
    process: Command, environment: dict[str, str], words: str, completed: str
) -> None:
    environment["_BRADBURY_COMPLETE"] = "complete_bash"
    environment["COMP_WORDS"] = words
    environment["COMP_CWORD"] = str(words.count(" "))
    outcome = process()
    assert (outcome.code, outcome.out.split()) == (0, [completed])


def test_a_shell_completes_the_topics_of_the_cluster(
    process: Command,
    environment: dict[str, str],
    bradbury_cluster: LocalCluster,
    bradbury_topic: str,
) -> None:
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic)
    environment["_BRADBURY_COMPLETE"] = "complete_bash"
    environment["COMP_WORDS"] = f"bradbury consume {bradbury_topic[:20]}"
    environment["COMP_CWORD"] = "2"
    environment["BRADBURY_BOOTSTRAP"] = bradbury_cluster.bootstrap_servers
    assert process().out.split() == [bradbury_topic]
    environment["BRADBURY_BOOTSTRAP"] = "127.0.0.1:1"
    assert process().out.split() == []


def test_our_errors_are_shown_as_they_are_and_bugs_are_named_as_such() -> None:
    assert explain(CommandFailed("cause; remedy")) == "cause; remedy"
    assert explain(TopicAlreadyExists("it is\nthere")) == "it is there"
    assert explain(FileNotFoundError(2, "No such file", "x.txt")) == "x.txt: No such file"
    raised = RayTaskError("status", "a traceback\nof many lines", NotController("it waits"))
    assert explain(raised.as_instanceof_cause()) == "it waits"
    assert exit_code(raised.as_instanceof_cause()) == 1
    assert explain(KeyError("x")) == (
        "unexpected KeyError: 'x'; run it again with --debug to see where"
    )


def test_an_extra_comes_from_where_this_was_installed_also_in_a_checkout(tmp_path: Path) -> None:
    """Python finds there the egg-info first that a build has left, which does not say it."""
    here, installed = tmp_path / "checkout", tmp_path / "site-packages"
    described = json.dumps({"url": here.as_uri(), "dir_info": {}})
    for folder, direct_url in (
        (here / "bradbury.egg-info", None),
        (installed / "bradbury-0.1.0.dist-info", described),
    ):
        folder.mkdir(parents=True)
        name = "PKG-INFO" if direct_url is None else "METADATA"
        (folder / name).write_text("Metadata-Version: 2.1\nName: bradbury\nVersion: 0.1.0\n")
        if direct_url is not None:
            (folder / "direct_url.json").write_text(direct_url)
    program = (
        "import sys; from bradbury.discovery.extras import install_command; "
        f"sys.path[:0] = [{str(here)!r}, {str(installed)!r}]; print(install_command('data'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith(f"install '{here}[data]'"), done.stdout
