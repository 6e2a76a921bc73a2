"""SASL mechanisms that a broker supports, and the server for an exchange with one of them."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import UnsupportedSaslMechanism
from ....protocol.security.scram import HASHES
from .credentials import Credentials
from .json_web_token import TokenValidator
from .oauth_bearer import OauthBearerServer
from .plain import PlainServer
from .sasl_server import SaslServer
from .scram_server import ScramServer

MECHANISMS: Final = ("PLAIN", *HASHES, "OAUTHBEARER")


def make_server(
    mechanism: str,
    *,
    credentials: Credentials,
    nonce: str,
    is_repeated: bool = False,
    oauth: TokenValidator | None = None,
) -> SaslServer:
    """Make the server for one exchange.

    Args:
        nonce: random printable text without commas, at least 128 bits, new for each exchange.
        is_repeated: the connection was authenticated before (KIP-368); only error texts differ.
        oauth: validator of a listener with OAUTHBEARER; None: the mechanism is not supported.

    Raises:
        UnsupportedSaslMechanism: there is no such mechanism.
    """
    if mechanism == PlainServer.mechanism:
        return PlainServer(credentials, is_repeated=is_repeated)
    if mechanism in HASHES:
        return ScramServer(mechanism, credentials, nonce=nonce, is_repeated=is_repeated)
    if mechanism == OauthBearerServer.mechanism and oauth is not None:
        return OauthBearerServer(oauth, is_repeated=is_repeated)
    raise UnsupportedSaslMechanism(
        f"there is no SASL mechanism {mechanism!r}; there are {', '.join(MECHANISMS)}"
    )
