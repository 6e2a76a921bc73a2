"""Error output of commands: one line, with cause and remedy.

Bradbury's exceptions are written for users and shown as they are. Errors of the operating system
are shown with their file name. Any other exception is a bug, and shown as unexpected.
"""

from __future__ import annotations

from .authorization_failure import with_remedy

OWN_PACKAGES = ("bradbury.", "pyspark_bradbury.")


class CommandFailed(Exception):
    """An expected failure of a command. `str()` is the one line for users."""


class UsageError(CommandFailed):
    """Error in the command line, whatever the state of the cluster: exit code 2."""


DONE_FAILED = 1
USAGE = 2
USAGE_CODES = ("INVALID_CONFIG", "INVALID_TOPIC_EXCEPTION")
"""Names of Kafka's errors that are caused by the command line, not by the cluster's state."""


def exit_code(error: BaseException) -> int:
    """Exit code for an error: 2 for a usage error, 1 for any other."""
    is_usage = isinstance(error, UsageError) or _code_of(error) in USAGE_CODES
    return USAGE if is_usage else DONE_FAILED


def is_unexpected(error: BaseException) -> bool:
    """Whether the error is neither Bradbury's nor the operating system's."""
    return not _is_of(error, OWN_PACKAGES) and not isinstance(error, OSError)


def explain(error: BaseException) -> str:
    """Describe any error in one line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception) and _is_of(error, ("ray.exceptions",)):
        return explain(cause)  # raised in one of Bradbury's actors; Ray's own text is a traceback
    if _is_of(error, OWN_PACKAGES):
        return with_remedy(_code_of(error), _one_line(str(error)))
    if isinstance(error, OSError) and error.strerror:
        about = f"{error.filename}: " if error.filename else ""
        return _one_line(f"{about}{error.strerror}")
    return _one_line(
        f"unexpected {type(error).__name__}: {error}; run it again with --debug to see where"
    )


def _code_of(error: BaseException) -> str | None:
    """Name of the error code of a KafkaError; None for other errors."""
    return getattr(getattr(error, "code", None), "name", None)


def _is_of(error: BaseException, packages: tuple[str, ...]) -> bool:
    # By module name, so that no other package (and with it Ray or pyarrow) is imported.
    return any(kind.__module__.startswith(packages) for kind in type(error).__mro__)


def _one_line(text: str) -> str:
    return " ".join(text.split())
