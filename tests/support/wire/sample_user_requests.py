"""Sample requests of the APIs about users: what sample_requests has of the others."""

from collections.abc import Callable
from typing import Any

from bradbury.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from bradbury.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from bradbury.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from bradbury.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from bradbury.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from bradbury.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from bradbury.protocol.schema import Message

USER_REQUESTS: dict[int, Callable[[Any, int], Message]] = {
    38: lambda s, v: CreateDelegationTokenRequest(),
    39: lambda s, v: RenewDelegationTokenRequest(hmac=b"none"),
    40: lambda s, v: ExpireDelegationTokenRequest(hmac=b"none"),
    41: lambda s, v: DescribeDelegationTokenRequest(owners=None),
    50: lambda s, v: DescribeUserScramCredentialsRequest(users=None),
    51: lambda s, v: AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name="few", mechanism=2, iterations=1, salt=b"salt", salted_password=b"password"
            )
        ],
    ),
}
