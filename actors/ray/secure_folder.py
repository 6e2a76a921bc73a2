"""Files of `bradbury up --secure` in the data directory of every node; see launch/secure."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "tls"
NODE_FILE: Final = "node.pem"
"""File of the node's private key and certificate."""
AUTHORITY_FILE: Final = "ca.pem"
"""File of the certificate authority that the node trusts."""
CLIENT_FILE: Final = "client.properties"
"""File of security settings for clients that run on the node."""
