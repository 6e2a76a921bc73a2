"""Common check of the four APIs of delegation tokens: whether a client may use them."""

from __future__ import annotations

from ...protocol.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed
from ...protocol.principal import ANONYMOUS
from ..ports.context import RequestContext

WAIT_MS = 5_000


def token_key(context: RequestContext) -> bytes:
    """Secret key that tokens are signed with.

    Raises:
        DelegationTokenRequestNotAllowed: the client is anonymous, or authenticated by a token.
        DelegationTokenAuthDisabled: no key is configured, so there are no tokens.
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
