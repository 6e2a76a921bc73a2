"""The command `bradbury acls`: list, add and remove the ACLs of a cluster with an authorizer.

Options are those of kafka-acls.sh, and it works with any Kafka cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.confirmation import confirm
from ..terminal.failure import UsageError
from ..terminal.options import AsJson, Bootstrap
from ..terminal.output import note, print_json, print_table
from .acl_options import (
    AclResources,
    AllowHosts,
    AllowPrincipals,
    DenyHosts,
    DenyPrincipals,
    ForConsumer,
    ForProducer,
    Groups,
    Idempotent,
    OnCluster,
    Operations,
    Pattern,
    Topics,
    TransactionalIds,
    Who,
    bindings,
    exact,
    filter_of,
)

if TYPE_CHECKING:
    from ...protocol.security.acl_binding import AclBinding

acls = App(help="List, add and remove ACLs.", no_args_is_help=True)

COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


@acls.command("list")
def list_acls(
    topic: Topics = [],  # noqa: B006 -- typer reads the default and never changes it
    group: Groups = [],  # noqa: B006 -- as above
    transactional_id: TransactionalIds = [],  # noqa: B006 -- as above
    cluster: OnCluster = False,
    principal: Annotated[
        list[str],
        typer.Option(metavar="User:NAME", help="Only ACLs of this principal; repeatable."),
    ] = [],  # noqa: B006 -- as above
    pattern: Annotated[
        Literal["match", "any", "literal", "prefixed"],
        typer.Option(
            "--resource-pattern-type",
            metavar="match|any|literal|prefixed",
            help="match: every ACL that applies to the name, by prefix or * too.",
        ),
    ] = "match",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List ACLs: all, or those of some resources or principals."""
    from ...clients.admin.admin import Admin
    from ...protocol.security.acl_binding import AclFilter

    resources = AclResources(topic, group, transactional_id, cluster).named()
    wanted = [filter_of(each, pattern) for each in resources] or [AclFilter()]
    principals: list[str | None] = [*principal] or [None]
    found: set[AclBinding] = set()
    with Admin(bootstrap_servers(bootstrap)) as admin:
        for each in wanted:
            for one in principals:
                found.update(admin.describe_acls(each._replace(principal=one)))
    _show(sorted(found), as_json=as_json, nothing="no ACL matches")


@acls.command()
def add(
    allow_principal: AllowPrincipals = [],  # noqa: B006 -- as above
    deny_principal: DenyPrincipals = [],  # noqa: B006 -- as above
    allow_host: AllowHosts = [],  # noqa: B006 -- as above
    deny_host: DenyHosts = [],  # noqa: B006 -- as above
    operation: Operations = [],  # noqa: B006 -- as above
    topic: Topics = [],  # noqa: B006 -- as above
    group: Groups = [],  # noqa: B006 -- as above
    transactional_id: TransactionalIds = [],  # noqa: B006 -- as above
    cluster: OnCluster = False,
    pattern: Pattern = "literal",
    producer: ForProducer = False,
    consumer: ForConsumer = False,
    idempotent: Idempotent = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Add ACLs, effective at once."""
    from ...clients.admin.admin import Admin

    resources = AclResources(topic, group, transactional_id, cluster).meant(
        producer=producer, consumer=consumer, idempotent=idempotent
    )
    who = Who(allow_principal, allow_host, deny_principal, deny_host)
    wanted = bindings(resources, who, operation, pattern)
    if not wanted:
        raise UsageError("no principal: use --allow-principal or --deny-principal")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        admin.create_acls(wanted)
    _show(wanted, as_json=as_json, nothing="")


@acls.command()
def remove(
    allow_principal: AllowPrincipals = [],  # noqa: B006 -- as above
    deny_principal: DenyPrincipals = [],  # noqa: B006 -- as above
    allow_host: AllowHosts = [],  # noqa: B006 -- as above
    deny_host: DenyHosts = [],  # noqa: B006 -- as above
    operation: Operations = [],  # noqa: B006 -- as above
    topic: Topics = [],  # noqa: B006 -- as above
    group: Groups = [],  # noqa: B006 -- as above
    transactional_id: TransactionalIds = [],  # noqa: B006 -- as above
    cluster: OnCluster = False,
    pattern: Pattern = "literal",
    producer: ForProducer = False,
    consumer: ForConsumer = False,
    idempotent: Idempotent = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove these ACLs or, without a principal, all ACLs of the resources."""
    from ...clients.admin.admin import Admin

    resources = AclResources(topic, group, transactional_id, cluster).meant(
        producer=producer, consumer=consumer, idempotent=idempotent
    )
    who = Who(allow_principal, allow_host, deny_principal, deny_host)
    if who.entries():
        filters = [exact(each) for each in bindings(resources, who, operation, pattern)]
    elif operation or producer or consumer:
        raise UsageError("no principal: use --allow-principal or --deny-principal")
    else:
        filters = [
            filter_of(each, "any" if cluster and each.name == "kafka-cluster" else pattern)
            for each in resources
        ]
        names = ", ".join(each.name or "" for each in filters)
        if not yes:
            confirm(f"Remove every ACL of {names}?")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        removed = admin.delete_acls(filters)
    _show(removed, as_json=as_json, nothing="no ACL matched")


def _show(rules: list[AclBinding], *, as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(
            [
                {
                    "resource_type": rule.resource_type.name,
                    "name": rule.name,
                    "pattern_type": rule.pattern.name,
                    "principal": rule.principal,
                    "host": rule.host,
                    "operation": rule.operation.name,
                    "permission": rule.permission.name,
                }
                for rule in rules
            ]
        )
    elif not rules:
        note(nothing)
    else:
        print_table(
            COLUMNS,
            [
                (
                    rule.resource_type.name.lower().replace("_", " "),
                    rule.name,
                    rule.pattern.name.lower(),
                    rule.principal,
                    rule.host,
                    rule.operation.name,
                    rule.permission.name.lower(),
                )
                for rule in rules
            ],
            optional=("pattern", "host"),
        )
