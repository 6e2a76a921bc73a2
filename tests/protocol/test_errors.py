"""What does an error of a wire code say?"""

from __future__ import annotations

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import InvalidConfig, KafkaError, error_for


def test_a_known_code_is_its_own_class_with_the_peers_message() -> None:
    error = error_for(ErrorCode.INVALID_CONFIG, "retention.ms must be at least -1, got -2")
    assert type(error) is InvalidConfig
    assert str(error) == "retention.ms must be at least -1, got -2"
    assert str(error_for(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"


def test_without_a_message_our_text_says_what_to_do() -> None:
    text = str(error_for(ErrorCode.GROUP_ID_NOT_FOUND))
    assert "`bradbury groups list`" in text and text.endswith(" (GROUP_ID_NOT_FOUND)")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (None, "error code 9999"),
        ("topic 't'", "error code 9999: topic 't'"),
        ("topic 't': error code 9999", "topic 't': error code 9999"),
    ],
)
def test_an_unknown_code_is_named_once(message: str | None, text: str) -> None:
    error = error_for(9999, message)
    assert type(error) is KafkaError
    assert str(error) == text
