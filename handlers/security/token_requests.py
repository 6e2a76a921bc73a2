"""What the four APIs of delegation tokens have in common: who may ask at all."""

from __future__ import annotations

from ...protocol.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from ...protocol.principal import ANONYMOUS
from ..ports.context import RequestContext

WAIT_MS = 5_000


def token_key(context: RequestContext) -> bytes:
    """The secret key of tokens.

    Raises:
        DelegationTokenRequestNotAllowed: it is not known who asks, or by a token alone.
        DelegationTokenAuthDisabled: there is no key, so there are no tokens.
    """
    session = context.session
    is_anonymous = session.protocol == "SSL" and session.principal == ANONYMOUS
    if session.protocol == "PLAINTEXT" or is_anonymous or session.is_token:
        raise DelegationTokenRequestNotAllowed(
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
            "delegation token authenticated channels."
        )
    key = context.node.delegation_token_key
    if key is None:
        raise DelegationTokenAuthDisabled("Delegation Token feature is not enabled.")
    return key
