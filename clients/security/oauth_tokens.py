"""Tokens of OAUTHBEARER: from a function, a file, or an endpoint with client credentials.

Invariants:
    No token, secret or answer of an endpoint is in a message.
    `get` waits, so it is not called on the thread of the sockets, and gets one token at a time.
    Functions are called and files read every time; a token of an endpoint is cached for
    REFRESH_PART of its lifetime.

Source: FileJwtRetriever, ClientCredentialsJwtRetriever (RFC 6749, 4.4) in apache/kafka.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlencode, urlsplit

from ...protocol.errors import ConnectionFailed, InvalidConfig

SCHEMES: Final = ("file", "http", "https")
TIMEOUT_SECONDS: Final = 10.0
MOST_BYTES: Final = 1024 * 1024
REFRESH_PART: Final = 0.8
"""Share of a token's lifetime for which it is reused (sasl.login.refresh.window.factor)."""


class _HasToken(Protocol):
    """kafka-python's AbstractTokenProvider."""

    def token(self) -> str: ...


TokenProvider = Callable[[], str] | _HasToken


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Source of tokens: a function, or a URL; the other fields are for http: and https: URLs."""

    provider: TokenProvider | None
    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


class OauthTokens:
    """Tokens of one client, for all of its connections."""

    def __init__(self, settings: TokenSource) -> None:
        self._settings = settings
        self._asking = threading.Lock()
        self._kept = ""
        self._kept_until = 0.0

    def check(self) -> None:
        """Check a token file. Raises InvalidConfig: it cannot be read, or is empty."""
        if urlsplit(self._settings.url).scheme == "file":
            self._of_file()

    def get(self) -> str:
        """A token to log in with now.

        Raises:
            InvalidConfig: there is none, and a retry does not help.
            ConnectionFailed: the endpoint cannot be reached, or answers with a server error.
            Exception: any exception of the function.
        """
        settings = self._settings
        with self._asking:
            if settings.provider is not None:
                ask: Any = getattr(settings.provider, "token", settings.provider)
                token = ask()
                if not isinstance(token, str):
                    raise InvalidConfig(
                        f"sasl_oauth_token_provider returned {type(token).__name__}, not a str"
                    )
                return token
            if urlsplit(settings.url).scheme == "file":
                return self._of_file()
            if not self._kept or time.monotonic() > self._kept_until:
                self._kept, life_s = self._of_endpoint()
                self._kept_until = time.monotonic() + life_s * REFRESH_PART
            return self._kept

    def _of_file(self) -> str:
        path = Path(unquote(urlsplit(self._settings.url).path))
        try:
            token = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(
                f"sasl_oauthbearer_token_endpoint_url: {path} cannot be read ({error})"
            ) from None
        if not token:
            raise InvalidConfig(f"sasl_oauthbearer_token_endpoint_url: {path} is empty")
        return token

    def _of_endpoint(self) -> tuple[str, float]:
        """Request (token, lifetime in seconds; 0 if the endpoint does not return it)."""
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.scope:
            form["scope"] = settings.scope
        who = base64.b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 -- checked with the settings
            settings.url,
            urlencode(form).encode(),
            {"Accept": "application/json", "Authorization": f"Basic {who}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
                content = response.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            error.close()
            text = f"the token endpoint {settings.url} answers {error.code}"
            if error.code < 500:
                raise InvalidConfig(f"{text}; does it know the client id and secret?") from None
            raise ConnectionFailed(text) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise ConnectionFailed(
                f"the token endpoint {settings.url} cannot be asked: {reason}"
            ) from None
        return _parsed(content, settings.url)


def _parsed(content: bytes, url: str) -> tuple[str, float]:
    try:
        answer: Any = json.loads(content)
        token, life = answer["access_token"], answer.get("expires_in", 0)
        if not isinstance(token, str):
            raise TypeError
        return token.strip(), float(life)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidConfig(f"what the token endpoint {url} answers has no access_token") from None
