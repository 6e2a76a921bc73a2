"""Rights to see and change users' credentials. Source: KafkaApis.scala, ControllerApis.scala."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ...protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from ...protocol.security.acl_binding import AclOperation
from .guarding import MESSAGES, on_cluster, with_message


def _refuse_change(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    names = [each.name for each in request.deletions]
    names += [each.name for each in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name, error_code=code, error_message=MESSAGES[code]
            )
            for name in dict.fromkeys(names)
        ]
    )


DESCRIBE_USER_SCRAM_CREDENTIALS = on_cluster(
    AclOperation.DESCRIBE, with_message(DescribeUserScramCredentialsResponse)
)
ALTER_USER_SCRAM_CREDENTIALS = on_cluster(AclOperation.ALTER, _refuse_change)
