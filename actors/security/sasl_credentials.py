"""Users of one listener: those of PLAIN from its settings, those of SCRAM from the metadata."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.security.listener_config import ListenerConfig
from ...cluster.security.sasl.credentials import TokenCredential
from ...cluster.security.sasl.delegation_token import token_credential
from ...cluster.security.sasl.json_web_token import TokenValidator
from ...cluster.security.sasl.mechanisms import make_server
from ...cluster.security.sasl.sasl_server import SaslServer
from ...handlers.ports.client_session import ClientSession
from ...handlers.security.sasl_authentication import SaslAuthentication
from ...protocol.errors import InvalidConfig
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.scram import ScramCredential
from .jwks_reader import JwksReader
from .secret_files import read_secret

PLAIN: Final = "PLAIN"
NONCE_BYTES: Final = 24
_NONE: Final[Mapping[str, ScramCredential]] = MappingProxyType({})


class ListenerCredentials:
    """The users of one listener. Implements sasl.credentials.Credentials.

    Raises:
        InvalidConfig: a sasl.jaas.config that cannot be read, or PLAIN without any user.
    """

    def __init__(
        self,
        config: ListenerConfig,
        image: Callable[[], MetadataImage],
        token_key: bytes | None = None,
    ) -> None:
        self._config = config
        self._token_key = token_key
        self._image = image
        self._users: dict[str, str] = {}
        for mechanism, text in config.jaas.items():
            if not text:
                continue
            try:
                entry = parse_jaas(read_secret(text))
            except InvalidConfig as error:
                raise InvalidConfig(
                    f"listener.name.{config.name.lower()}.{mechanism.lower()}.{error}"
                ) from None
            if mechanism == PLAIN:
                self._users = entry.users
        self._keys: JwksReader | None = None
        self._tokens: TokenValidator | None = None
        if config.oauth is not None:
            self._keys = JwksReader(
                config.oauth.jwks_url,
                refresh_ms=config.oauth.refresh_ms,
                retry_backoff_ms=config.oauth.retry_backoff_ms,
                retry_backoff_max_ms=config.oauth.retry_backoff_max_ms,
            )
            self._tokens = TokenValidator(config.oauth.rules, self._keys.keys, self._keys.expedite)
        if PLAIN in config.mechanisms and not self._users:
            raise InvalidConfig(
                f"listener {config.name} enables SASL PLAIN, but no user is defined: set "
                f"listener.name.{config.name.lower()}.plain.sasl.jaas.config to "
                '`org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="..."'
                ";`"
            )

    async def open(self) -> None:
        """Read the keys of the OAuth issuer, if one is configured. Raises InvalidConfig."""
        if self._keys is not None:
            await self._keys.open()

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()

    def plain_password(self, user: str) -> str | None:
        """Password of a user of PLAIN, or None; see Credentials."""
        return self._users.get(user)

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """SCRAM credential of a user, or None; see Credentials."""
        return self._image().scram_credentials.get(user, _NONE).get(mechanism)

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None:
        """Credential of a delegation token, or None; see Credentials."""
        if self._token_key is None:
            return None
        return token_credential(self._image(), self._token_key, token_id, mechanism)

    def authentication(self, session: ClientSession) -> SaslAuthentication:
        """Make the SASL authentication of a new connection."""

        def server(mechanism: str, is_repeated: bool) -> SaslServer:
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            return make_server(
                mechanism,
                credentials=self,
                nonce=nonce,
                is_repeated=is_repeated,
                oauth=self._tokens,
            )

        return SaslAuthentication(
            session,
            self._config.mechanisms,
            server,
            max_reauth_ms=self._config.max_reauth_ms,
            max_receive_bytes=self._config.max_receive_bytes,
        )
