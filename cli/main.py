"""The command line `bradbury`: parses arguments, and prints every failure as one line on stderr.

Exit codes: 0 done, 1 failed (or `status` is not healthy), 2 usage error, 130 Ctrl-C.

Invariants:
    Nothing heavy is imported to parse a command line: Ray, pyarrow and the clients come with the
    command that needs them, so that --help and completion answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ..discovery.state_file import (
    BOOTSTRAP_VARIABLE,
    CLIENT_CONFIG_VARIABLE,
    NAMESPACE_VARIABLE,
)
from .acls.acls_command import acls
from .bench.bench_command import bench
from .cluster.client_config_command import client_config
from .cluster.cluster_commands import down, up
from .cluster.dirs_command import dirs
from .cluster.quotas_command import quotas
from .cluster.rebalance_command import drain, rebalance
from .cluster.replicas_command import replicas
from .cluster.status_command import status
from .cluster.voters_command import voters
from .command_interrupt import DEBUG, INTERRUPTED, was_interrupted
from .demo.demo_command import demo
from .flows.flow_command import flow
from .groups.groups_command import groups
from .log.log_command import log
from .metadata.metadata_command import metadata
from .migrate.migrate_command import migrate
from .terminal.app import App
from .terminal.failure import USAGE, exit_code, explain, is_unexpected
from .terminal.options import AsJson
from .terminal.output import print_json
from .topics.consume_command import consume
from .topics.load_command import load
from .topics.mirror_command import mirror
from .topics.offsets_command import offsets
from .topics.produce_command import produce
from .topics.replay_command import replay
from .topics.topic_commands import topics
from .transactions.transactions_command import transactions
from .users.delegation_tokens_command import delegation_tokens
from .users.users_command import users

SET_BY_OPTIONS = (CLIENT_CONFIG_VARIABLE, NAMESPACE_VARIABLE, BOOTSTRAP_VARIABLE)
"""Environment variables that options of a command line set."""

app = App(
    name="bradbury",
    help="The Kafka-compatible, replicated log that lives inside a Ray cluster.",
    no_args_is_help=True,
)


def _show_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"bradbury {__version__}")
        raise typer.Exit


def _use_client_config(file: Path | None) -> None:
    if file is not None:
        os.environ[CLIENT_CONFIG_VARIABLE] = str(file)


@app.callback()
def root(
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version; `bradbury version` shows versions of libraries, too.",
        ),
    ] = False,
    client_config: Annotated[
        Path | None,
        typer.Option(
            "--client-config",
            metavar="FILE",
            callback=_use_client_config,
            help="File with security.protocol, ssl.* and sasl.* settings for the brokers.",
            show_default=False,
        ),
    ] = None,
) -> None:
    pass  # --debug may be anywhere on the line: see run


def version(as_json: AsJson = False) -> None:
    """Show the versions of Bradbury, Python and libraries, and the extras that are missing."""
    from importlib.metadata import PackageNotFoundError, version as version_of

    from .. import __version__
    from ..discovery.extras import MODULES, install_command, missing_modules

    versions = {"bradbury": __version__, "python": sys.version.split()[0]}
    for name in ("ray", "pyarrow", "numba", "pyspark", "raydp"):
        with suppress(PackageNotFoundError):  # of an extra
            versions[name] = version_of(name)
    missing = {extra: install_command(extra) for extra in MODULES if missing_modules(extra)}
    if as_json:
        print_json({"versions": versions, "missing_extras": missing})
        return
    for name, version in versions.items():
        typer.echo(f"{name} {version}")
    for extra, remedy in missing.items():
        typer.echo(f"[{extra}] is not installed: {remedy}")


app.command()(up)
app.command()(down)
app.command()(status)
app.command("client-config")(client_config)
app.add_typer(topics, name="topics")
app.command()(produce)
app.command()(consume)
app.command()(load)
app.command()(replay)
app.command()(mirror)
app.add_typer(migrate, name="migrate")
app.add_typer(flow, name="flow")
app.add_typer(offsets, name="offsets")
app.add_typer(groups, name="groups")
app.add_typer(transactions, name="transactions")
app.add_typer(users, name="users")
app.add_typer(delegation_tokens, name="delegation-tokens")
app.add_typer(acls, name="acls")
app.command()(rebalance)
app.command()(drain)
app.add_typer(replicas, name="replicas")
app.add_typer(voters, name="voters")
app.add_typer(quotas, name="quotas")
app.command()(dirs)
app.command()(demo)
app.add_typer(log, name="log")
app.add_typer(metadata, name="metadata")
app.add_typer(bench, name="bench")
app.command()(version)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code. Raises nothing."""
    arguments = list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug = DEBUG in arguments[:end]
    arguments = [word for word in arguments[:end] if word != DEBUG] + arguments[end:]
    former = {name: os.environ.get(name) for name in SET_BY_OPTIONS}
    try:
        return _run(arguments, debug=debug)
    finally:  # --client-config and --namespace apply to this command line only
        for name, value in former.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _run(arguments: list[str], *, debug: bool) -> int:
    try:
        result = app(args=arguments, prog_name="bradbury", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has closed the pipe. Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as error:  # raised by shell completion
        return error.code if isinstance(error.code, int) else 0
    except Exception as error:  # noqa: BLE001 -- the top loop: every failure becomes one line
        if is_unexpected(error) and was_interrupted(error):
            return INTERRUPTED
        return _report(error, debug=debug)


def _report(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    usage = getattr(error, "format_message", None)  # the parser's own errors have one
    if usage is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "bradbury"
        message = " ".join(usage().split()).replace("Value error, ", "").rstrip(".")
        if message:  # empty: no arguments were given, and help has been shown
            separator = "" if message.endswith("?") else ";"
            typer.echo(f"error: {message}{separator} see `{command} --help`", err=True)
        return USAGE
    typer.echo(f"error: {explain(error)}", err=True)
    return exit_code(error)


def main() -> None:
    """Run the command line of this process, and exit: see entry_point."""
    # Ray prints to every driver's stdout that a worker was killed; `down` does that on purpose.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
    code = run(sys.argv[1:])
    sys.exit(code)
