"""SaslAuthenticate (API key 36): ILLEGAL_SASL_STATE, as on every listener in plain text."""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ..ports.access import EVERYBODY
from ..ports.api import api
from ..ports.context import RequestContext


def handle(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener is in plain text; connect without SASL",
    )


API = api(0, 2, SaslAuthenticateRequest, handle, access=EVERYBODY)
