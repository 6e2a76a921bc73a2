"""What a command says when it cannot do what it was asked: one line, the cause and the remedy.

Our own exceptions are written for users and shown as they are. What the operating system refuses
is shown with the file it is about. Anything else is a bug, and named as one.
"""

from __future__ import annotations

OWN_PACKAGES = ("bradbury.", "pyspark_bradbury.")


class CommandFailed(Exception):
    """An expected failure of a command. `str()` is the one line for users."""


class UsageError(CommandFailed):
    """The command line makes no sense, whatever the cluster is like: exit code 2."""


DONE_FAILED = 1
USAGE = 2
USAGE_CODES = ("INVALID_CONFIG", "INVALID_TOPIC_EXCEPTION")
"""Kafka's errors that no cluster would have answered otherwise: the words were wrong."""


def exit_code(error: BaseException) -> int:
    """2 if the command line makes no sense, 1 if it could not be done."""
    code = getattr(getattr(error, "code", None), "name", None)  # of a KafkaError
    return USAGE if isinstance(error, UsageError) or code in USAGE_CODES else DONE_FAILED


def is_unexpected(error: BaseException) -> bool:
    """It is neither ours nor the operating system's."""
    return not _is_of(error, OWN_PACKAGES) and not isinstance(error, OSError)


def explain(error: BaseException) -> str:
    """One line for `error`, whatever it is."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception) and _is_of(error, ("ray.exceptions",)):
        return explain(cause)  # an actor of ours raised it; Ray's text is a traceback
    if _is_of(error, OWN_PACKAGES):
        return _one_line(str(error))
    if isinstance(error, OSError) and error.strerror:
        about = f"{error.filename}: " if error.filename else ""
        return _one_line(f"{about}{error.strerror}")
    return _one_line(
        f"unexpected {type(error).__name__}: {error}; run it again with --debug to see where"
    )


def _is_of(error: BaseException, packages: tuple[str, ...]) -> bool:
    # By module, so that no floor (and with it Ray or pyarrow) is imported to ask.
    return any(kind.__module__.startswith(packages) for kind in type(error).__mro__)


def _one_line(text: str) -> str:
    return " ".join(text.split())
