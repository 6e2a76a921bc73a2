"""SaslAuthenticate (API key 36): a token of the mechanism chosen in SaslHandshake.

A failure is answered after connection.failed.authentication.delay.ms, and then the connection is
closed: this slows down attempts to guess passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, SaslAuthenticationFailed
from ...protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext
from .sasl_authentication import SaslAuthentication


def handle(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    authentication = context.session.sasl
    if not isinstance(authentication, SaslAuthentication):
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message=f"listener {context.session.listener} is "
            f"{context.session.protocol}; connect without SASL",
        )
    try:
        reply, lifetime_ms = authentication.on_token(
            bytes(request.auth_bytes), now_ms=context.node.now_ms()
        )
    except SaslAuthenticationFailed as error:
        return _refuse(error, context)
    except KafkaError as error:
        return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=reply, session_lifetime_ms=lifetime_ms
    )


async def _refuse(
    error: SaslAuthenticationFailed, context: RequestContext
) -> SaslAuthenticateResponse:
    delay_ms = context.node.server_config.security.connection_failed_authentication_delay_ms
    await asyncio.sleep(delay_ms / 1000)
    return SaslAuthenticateResponse(error_code=error.code, error_message=str(error))


API = api(0, 2, SaslAuthenticateRequest, handle, access=EVERYBODY)
