"""DescribeUserScramCredentials (API key 50): the users' credentials (KIP-554).

Mechanisms and iterations only, no secrets. Source: ScramImage.describe in apache/kafka.
"""

from __future__ import annotations

from collections import Counter

from ...protocol.error_code import ErrorCode
from ...protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...protocol.security.scram import MECHANISM_TYPES
from ..authorization.user_access import DESCRIBE_USER_SCRAM_CREDENTIALS
from ..ports.api import api
from ..ports.context import RequestContext

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_NOBODY = "Attempt to describe a user credential that does not exist: "


def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    users = context.node.image.scram_credentials
    # Null and an empty list mean all users.
    wanted = Counter(each.name for each in request.users or ()) or dict.fromkeys(users, 1)
    results = []
    for user, times in wanted.items():
        result = DescribeUserScramCredentialsResult(user=user, error_message=None)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = _TWICE + user
        elif user not in users:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = _NOBODY + user
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=number, iterations=users[user][mechanism].iterations)
                for number, mechanism in MECHANISM_TYPES.items()
                if mechanism in users[user]
            ]
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


API = api(0, 0, DescribeUserScramCredentialsRequest, handle, access=DESCRIBE_USER_SCRAM_CREDENTIALS)
