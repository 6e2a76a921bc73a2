"""The command `bradbury metadata recover`: rebuilds a damaged or lost metadata log offline.

It prints what was found and the metadata made of it; with --dry-run nothing is changed. Exit
code 0: done, or there was nothing to do; 1: failed, and the error line has the reason; 2: there is
no such directory.

Not here: reading and writing files (controller/voter_files/metadata_rebuild), the recovery itself
(cluster/metadata/metadata_recovery).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.app import App
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import AsJson
from ..terminal.output import note, print_json, print_table

if TYPE_CHECKING:
    from ...controller.voter_files.metadata_rebuild import RecoveryPlan

metadata = App(help="Recover the metadata log, without a broker.", no_args_is_help=True)


@metadata.callback()
def _commands() -> None:
    """Keep `recover` a subcommand although it is the only one."""


@metadata.command()
def recover(
    data_dirs: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA_DIR",
            help="Data directory of a node, which has `metadata` and `partitions-0` in it; give "
            "those of all nodes that can be reached. The first gets the rebuilt metadata.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be recovered; change nothing.")
    ] = False,
    other_voters_are_lost: Annotated[
        bool,
        typer.Option(
            "--other-voters-are-lost",
            help="Confirm that voters in none of these directories are lost forever. Do not use it "
            "if one may come back: there would be two clusters.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a damaged or lost metadata log from its readable part and the partitions'
    directories. Brokers must be stopped. The old log is kept next to it.
    """
    import time
    import uuid

    missing = [path for path in data_dirs if not Path(path).is_dir()]
    if missing:
        raise UsageError(f"{', '.join(missing)}: there is no such directory")
    from ...controller.voter_files.metadata_rebuild import MetadataRebuild
    from ...storage.disk.file_system import OsFileSystem

    rebuild = MetadataRebuild(
        data_dirs,
        OsFileSystem(),
        new_id=lambda: str(uuid.uuid4()),  # noqa: TID251 -- a command is where ids come from
        internal_configs=_internal_configs,
        now_ms=time.time_ns() // 1_000_000,
    )
    with rebuild.locked(makes_files=not dry_run):
        if rebuild.is_interrupted:
            if dry_run:
                raise CommandFailed(
                    "an earlier recovery was interrupted; without --dry-run it is finished"
                )
            rebuild.finish()
            note("an earlier recovery was interrupted; it is finished now")
        plan = rebuild.plan(others_are_lost=other_voters_are_lost)
        aside = [] if dry_run else rebuild.carry_out(plan)
    if as_json:
        print_json(_described(plan, dry_run=dry_run, aside=aside))
    else:
        _show(plan, dry_run=dry_run, aside=aside)


def _internal_configs(name: str) -> Mapping[str, str] | None:
    """Configs of a coordinator's topic that its records depend on."""
    from ...handlers.topics.internal_topic import CONFIGS
    from ...protocol.topic_name import INTERNAL_TOPICS

    return CONFIGS if name in INTERNAL_TOPICS else None


def _described(plan: RecoveryPlan, *, dry_run: bool, aside: list[str]) -> dict[str, Any]:
    image = None if plan.recovered is None else plan.recovered.image
    return {
        "is_whole": image is None,
        "flaws": plan.metadata.flaws,
        "unfit_voters": list(plan.unfit),
        "identities": {path: each.node_id for path, each in plan.identities.items()},
        "cluster_id": None if image is None else image.cluster_id,
        "nodes": [] if image is None else sorted(image.nodes),
        "topics": [] if image is None else [
            {
                "name": topic.name,
                "topic_id": str(topic.topic_id),
                "partitions": [
                    {
                        "partition": index,
                        "replicas": list(each.replicas),
                        "isr": list(each.isr),
                        "leader_epoch": each.leader_epoch,
                    }
                    for index, each in enumerate(topic.partitions)
                ],
                "configs": dict(topic.configs),
            }
            for topic in image.topics.values()
        ],
        "notes": [] if plan.recovered is None else plan.recovered.notes,
        "is_written": not dry_run and bool(image is not None or plan.identities),
        "set_aside": aside,
    }  # fmt: skip


def _show(plan: RecoveryPlan, *, dry_run: bool, aside: list[str]) -> None:
    for flaw in plan.metadata.flaws:
        note(flaw)
    for path, identity in plan.identities.items():
        verb = "would be" if dry_run else "is"
        typer.echo(f"{path}/meta.properties {verb} rewritten: node {identity.node_id}")
    if plan.recovered is None and plan.unfit:
        typer.echo(
            f"nothing to do: a majority of the {len(plan.metadata.voting)} voters has the "
            f"metadata; start the nodes, and {', '.join(plan.unfit)} takes it from them"
        )
        return
    if plan.recovered is None:
        typer.echo("nothing to do: the metadata log is complete and matches the partitions")
        return
    image = plan.recovered.image
    rows = [
        [
            topic.name,
            len(topic.partitions),
            " ".join(map(str, sorted({node for p in topic.partitions for node in p.replicas}))),
            " ".join(f"{key}={value}" for key, value in topic.configs.items()) or "-",
        ]
        for topic in image.topics.values()
    ]
    print_table(["topic", "partitions", "nodes", "settings"], rows)
    for sentence in plan.recovered.notes:
        note(sentence)
    if dry_run:
        typer.echo("nothing was changed; run it without --dry-run to write this metadata")
        return
    kept = f"; the old one is {', '.join(aside)}" if aside else ""
    typer.echo(f"the metadata of cluster {image.cluster_id} is rebuilt{kept}")
    typer.echo("its only voter is this node; use `bradbury voters add` for the others")
