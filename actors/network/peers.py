"""Connections of this node to other nodes, over the inter-broker listener.

A node authenticates as that listener requires: with the certificate of the listener's own key, or
with the user and password of its sasl.jaas.config. The files are read again when they have changed.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from typing import Final, Protocol

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage, NodeImage
from ...cluster.security.listener_config import InterBrokerConfig
from ...cluster.security.security_config import SecurityConfig
from ...protocol.errors import AuthenticationFailed, ConnectionFailed, InvalidConfig, error_for
from ...protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ...protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.sasl_client import NONCE_BYTES, SaslExchange
from ..security.secret_files import read_secret
from .peer_connection import PeerConnection
from .tls_contexts import client_context, file_versions

SASL_SECONDS: Final = 10.0
ROOM_FOR_HEADERS: Final = 16 * 1024**2
"""Bytes of an answer besides its records: enough for some 200,000 partitions."""
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2


class ConnectingNode(Protocol):
    """A node that connects to other nodes."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def peers(self) -> Peers: ...


async def connect_to(
    node_id: int, me: ConnectingNode, *, purpose: str, most_bytes: int
) -> PeerConnection:
    """Open a connection to another node, for fetches.

    Args:
        purpose: the first part of the client id.
        most_bytes: maximum bytes of records in an answer, except that one batch always fits.

    Raises ConnectionFailed; AuthenticationFailed, see Peers.connect.
    """
    node = me.image.nodes.get(node_id)
    if node is None:
        raise ConnectionFailed(f"the address of node {node_id} is not known")
    return await me.peers.connect(
        node,
        client_id=f"{purpose}-{me.node_id}",
        # A batch may be larger than all limits, but no larger than a request can be.
        max_answer_bytes=most_bytes + me.config.socket_request_max_bytes + ROOM_FOR_HEADERS,
    )


class Peers:
    """Connector to other nodes. Raises InvalidConfig, see SecurityConfig.inter_broker."""

    def __init__(self, config: SecurityConfig) -> None:
        self._inter_broker: InterBrokerConfig = config.inter_broker()
        self._tls: ssl.SSLContext | None = None
        self._files: tuple[object, ...] = ()

    def address_of(self, node: NodeImage) -> tuple[str, int]:
        """Host and port of a node's inter-broker listener. Raises ConnectionFailed without one."""
        endpoint = node.endpoint(self._inter_broker.listener.name)
        if endpoint is None:
            raise ConnectionFailed(
                f"node {node.node_id} has no listener {self._inter_broker.listener.name}"
            )
        return endpoint.host, endpoint.port

    async def connect(
        self, node: NodeImage, *, client_id: str, max_answer_bytes: int
    ) -> PeerConnection:
        """Open a connection. Raises ConnectionFailed; AuthenticationFailed if one side refuses."""
        host, port = self.address_of(node)
        try:
            tls = await self._context()
        except InvalidConfig as error:
            raise ConnectionFailed(str(error)) from None
        connection = await PeerConnection.open(
            host, port, client_id=client_id, max_answer_bytes=max_answer_bytes, tls=tls
        )
        if self._inter_broker.mechanism:
            try:
                await self._authenticate(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    async def _context(self) -> ssl.SSLContext | None:
        settings = self._inter_broker.listener.tls
        if not self._inter_broker.listener.protocol.is_tls:
            return None
        files = await asyncio.to_thread(file_versions, settings)
        if self._tls is None or files != self._files:
            self._tls = await asyncio.to_thread(client_context, settings)
            self._files = files
        return self._tls

    async def _authenticate(self, connection: PeerConnection) -> None:
        mechanism = self._inter_broker.mechanism
        try:
            options = parse_jaas(
                await asyncio.to_thread(read_secret, self._inter_broker.jaas)
            ).options
        except InvalidConfig as error:
            raise ConnectionFailed(str(error)) from None
        if "username" not in options or "password" not in options:
            raise ConnectionFailed(
                f"sasl.jaas.config of {mechanism} on listener {self._inter_broker.listener.name} "
                "has no username and password for inter-broker connections"
            )
        handshake = await connection.request(
            SaslHandshakeRequest(mechanism=mechanism),
            SaslHandshakeResponse,
            HANDSHAKE_VERSION,
            timeout_seconds=SASL_SECONDS,
        )
        if handshake.error_code:
            raise AuthenticationFailed(
                f"the node refused SASL mechanism {mechanism}: {error_for(handshake.error_code)}"
            )
        exchange = SaslExchange(
            mechanism,
            options["username"],
            options["password"],
            nonce=secrets.token_urlsafe(NONCE_BYTES),
        )
        token: bytes | None = exchange.first()
        while token is not None:
            answer = await connection.request(
                SaslAuthenticateRequest(auth_bytes=token),
                SaslAuthenticateResponse,
                AUTHENTICATE_VERSION,
                timeout_seconds=SASL_SECONDS,
            )
            if answer.error_code:
                raise AuthenticationFailed(
                    f"the node refused the credentials of user {options['username']!r}: "
                    f"{answer.error_message}"
                )
            # SCRAM hashes the password some thousand times here.
            token = await asyncio.to_thread(exchange.on_challenge, bytes(answer.auth_bytes))
