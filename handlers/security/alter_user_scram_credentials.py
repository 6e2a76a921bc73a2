"""AlterUserScramCredentials (API key 51): add, replace and remove users' credentials (KIP-554).

The client sends a salted password; this node derives from it the keys that are stored. A salted
password suffices to log in, so it is not passed on. The rules are in
cluster/control/access/scram_control.
"""

from __future__ import annotations

from ...cluster.control.access.scram_control import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from ...protocol.errors import KafkaError
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from ...protocol.security.scram import MECHANISM_TYPES, ScramCredential
from ..authorization.user_access import ALTER_USER_SCRAM_CREDENTIALS
from ..ports.api import api
from ..ports.context import RequestContext

TIMEOUT_MS = 5_000
"""Milliseconds to wait for nodes to apply the change; until then they use the old credentials."""


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    change = AlterUserScramCredentials(
        deletions=tuple(
            ScramDeletion(name=each.name, mechanism=each.mechanism) for each in request.deletions
        ),
        upsertions=tuple(
            ScramUpsertion(name=each.name, mechanism=each.mechanism, credential=_credential(each))
            for each in request.upsertions
        ),
    )
    try:
        outcomes = await context.node.controller.change(change, timeout_ms=TIMEOUT_MS)
    except KafkaError as error:
        names = [each.name for each in change.deletions]
        users = dict.fromkeys(names + [each.name for each in change.upsertions])
        return AlterUserScramCredentialsResponse(
            results=[_result(user, error.code, str(error)) for user in users]
        )
    return AlterUserScramCredentialsResponse(
        results=[_result(user, outcome.code, outcome.message) for user, outcome in outcomes.items()]
    )


def _credential(given: ScramCredentialUpsertion) -> ScramCredential | None:
    mechanism = MECHANISM_TYPES.get(given.mechanism)
    if mechanism is None or not given.salted_password:
        return None
    return ScramCredential.of_salted_password(
        mechanism,
        bytes(given.salted_password),
        salt=bytes(given.salt),
        iterations=given.iterations,
    )


def _result(user: str, code: int, message: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)


API = api(0, 0, AlterUserScramCredentialsRequest, handle, access=ALTER_USER_SCRAM_CREDENTIALS)
