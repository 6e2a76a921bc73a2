"""What `bradbury up --secure` keeps in the data directory of every node; see launch/secure."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "tls"
NODE_FILE: Final = "node.pem"
"""The node's private key and certificate."""
AUTHORITY_FILE: Final = "ca.pem"
"""Whom the node trusts."""
CLIENT_FILE: Final = "client.properties"
"""Security settings for clients that run there."""
