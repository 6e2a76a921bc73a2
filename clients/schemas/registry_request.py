"""One HTTP request to a schema registry, with its retries.

Invariants:
    The password in an address is in no message, and goes to no other host by a redirect.
    A registry that cannot be reached, or answers 408, 429 or 5xx, is asked up to TRIES times.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

TRIES: Final = 4
FIRST_PAUSE_S: Final = 0.2
"""Pause before the second try, in seconds; doubled before each further one."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Size limit of an answer, in bytes."""
_RETRIED: Final = (408, 429, 500, 502, 503, 504)
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPTED: Final = f"{_CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json"


class RegistryFailed(Exception):
    """A failed request to a schema registry. The text has its address, the reason and a remedy."""


class NotInRegistry(RegistryFailed):
    """A schema, subject or version that the registry does not have."""


class RegistryAddress:
    """URL of a registry: http:// or https://, USER:PASSWORD@ if needed, host, port, path."""

    def __init__(self, url: str) -> None:
        """Parse a URL. Raises ValueError: it is no such address."""
        try:
            parts = urlsplit(url.strip() if isinstance(url, str) else "")
            is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of the port
            is_one = False
        if not is_one or parts.query or parts.fragment:
            raise ValueError(
                f"schema_registry is {_without_user(url)!r}; use http://HOST:PORT or "
                "https://USER:PASSWORD@HOST:PORT"
            )
        self.url: str = url.strip()
        self.shown: str = _shown(parts)
        """The URL without user and password, for messages."""
        self.authorization: str | None = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"


def ask(
    address: RegistryAddress,
    path: str,
    what: str,
    body: dict[str, Any] | None = None,
    *,
    timeout_s: float,
) -> Any:
    """Send a GET, or with a body a POST, and return the JSON of the answer.

    what: the thing that is asked for or sent, for messages: "schema id 7".

    Raises:
        NotInRegistry: 404.
        RegistryFailed: any other failure; after retries the last one.
    """
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 -- the scheme was checked
        f"{address.shown}{path}", data=content, headers={"Accept": _ACCEPTED}
    )
    if content is not None:
        request.add_header("Content-Type", _CONTENT_TYPE)
    if address.authorization is not None:
        request.add_unredirected_header("Authorization", address.authorization)
    for number in range(TRIES):
        if number:
            time.sleep(FIRST_PAUSE_S * 2 ** (number - 1))
        try:
            return _answer(address, request, timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                failure = _refusal(address, what, error)
            if error.code not in _RETRIED:
                raise failure from None
        except (OSError, http.client.HTTPException) as error:
            failure = _unreachable(address, error, timeout_s)
            if _is_final(error):
                raise failure from None
    raise failure from None


def _answer(address: RegistryAddress, request: urllib.request.Request, timeout_s: float) -> Any:
    with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310 -- as above
        content = response.read(MOST_BYTES + 1)
    try:
        if len(content) > MOST_BYTES:
            raise ValueError
        return json.loads(content)
    except ValueError:
        raise _no_registry(address) from None


def _refusal(address: RegistryAddress, what: str, error: urllib.error.HTTPError) -> RegistryFailed:
    said = _said(error)
    match error.code:
        case 401 | 403:
            remedy = (
                "it refuses the user and password of its address"
                if address.authorization is not None
                else "it asks for a user and a password: use "
                f"{address.shown.replace('://', '://USER:PASSWORD@', 1)}"
            )
            return RegistryFailed(
                f"the schema registry {address.shown}: {remedy} (HTTP {error.code}{said})"
            )
        case 404 if said:
            return NotInRegistry(
                f"{what} is not in the schema registry {address.shown} (HTTP 404{said})"
            )
        case 404:
            return _no_registry(address)
        case 409 | 422:
            return RegistryFailed(
                f"the schema registry {address.shown} refuses {what} (HTTP {error.code}{said})"
            )
    return RegistryFailed(
        f"the schema registry {address.shown}, asked for {what}, answers HTTP {error.code}{said}; "
        "its log says why"
    )


def _said(error: urllib.error.HTTPError) -> str:
    """`, code: message` if the body is an error of a registry, else the empty string."""
    try:
        content = json.loads(error.read(MOST_BYTES))
        return f", {content['error_code']}: {' '.join(str(content['message']).split())[:300]}"
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return ""


def _no_registry(address: RegistryAddress) -> RegistryFailed:
    return RegistryFailed(
        f"what answers at {address.shown} is no schema registry; give the address, with its path, "
        "of one that has Confluent's API"
    )


def _unreachable(address: RegistryAddress, error: Exception, timeout_s: float) -> RegistryFailed:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        why = f"does not answer within {timeout_s:g} s"
    else:
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        why = f"cannot be reached: {said}"
    return RegistryFailed(
        f"the schema registry {address.shown} {why}; is it running, and is schema_registry its "
        "address?"
    )


def _is_final(error: Exception) -> bool:
    """Whether another try would fail in the same way: a certificate that is refused."""
    import ssl

    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(reason, ssl.SSLCertVerificationError)


def _shown(parts: SplitResult) -> str:
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _without_user(url: object) -> object:
    if not isinstance(url, str) or "@" not in url:
        return url
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}...@{rest.rpartition('@')[2]}"
