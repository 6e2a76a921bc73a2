"""Messages about errors in Avro schemas, from the exceptions of fastavro."""

from __future__ import annotations


def describe_error(error: Exception) -> str:
    """Reason in words. For a missing attribute fastavro raises its name alone (KeyError)."""
    if isinstance(error, KeyError):
        return f"it, or an object in it, has no {error}"
    if isinstance(error, TypeError):  # its text is about fastavro's code
        return "it, or a type in it, is neither a name, an object nor a list"
    if type(error).__name__ == "UnknownType":
        return f"there is no type {error}"
    return str(error) or type(error).__name__
