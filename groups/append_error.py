"""Error code for a client of a group whose record could not be appended.

Source: apache/kafka coordinator-common/.../CoordinatorOperationExceptionHelper.java.
"""

from __future__ import annotations

from ..protocol.error_code import ErrorCode


def append_error(
    error: ErrorCode, *, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
) -> ErrorCode:
    """Error code for the client. `error`: error of the log."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return too_large
    return error
