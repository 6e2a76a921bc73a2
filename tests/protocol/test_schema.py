"""Are messages what `dataclass` would make of the same fields, though nothing is made early?"""

import copy
import dataclasses
import pickle
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from bradbury.protocol import messages
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bradbury.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from bradbury.protocol.schema import Struct

MODULES = [
    import_module(f"{messages.__name__}.{one.name}") for one in iter_modules(messages.__path__)
]
CLASSES = [
    one
    for module in MODULES
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Struct) and one.__module__ == module.__name__
]


def dataclass_of(cls: type[Struct]) -> Any:
    """What `dataclass` itself makes of the fields, with their defaults."""
    made = [
        (
            one.name,
            Any,
            dataclasses.field(default_factory=one.default_factory, repr=one.repr)
            if one.default_factory is not dataclasses.MISSING
            else dataclasses.field(default=one.default, repr=one.repr),
        )
        for one in dataclasses.fields(cls)
    ]
    return dataclasses.make_dataclass(cls.__name__, made)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_is_made_shown_compared_and_copied_as_a_dataclass(cls: type[Struct]) -> None:
    names = [one.name for one in dataclasses.fields(cls)]
    values = [f"value {number}" for number in range(len(names))]
    for given, named in (
        ([], {}),
        (values, {}),
        (values[:1], dict(zip(names[1:], values[1:], strict=True))),
        ([], dict(zip(names[-1:], values[-1:], strict=True))),
    ):
        message, expected = cls(*given, **named), dataclass_of(cls)(*given, **named)
        assert repr(message) == repr(expected)
        assert [getattr(message, name) for name in names] == [
            getattr(expected, name) for name in names
        ]
        assert message == cls(*given, **named)
        assert message == copy.copy(message) == pickle.loads(pickle.dumps(message))
        assert message != expected
        if names:
            assert message != dataclasses.replace(message, **{names[0]: "another"})
    with pytest.raises(TypeError, match="unexpected keyword"):
        cls(no_such_field=1)
    with pytest.raises(TypeError, match="positional"):
        cls(*values, 1)
    with pytest.raises(AttributeError):
        cls().no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(cls())


def test_no_two_have_one_list() -> None:
    first, second = MetadataRequest(), MetadataRequest()
    assert first.topics is not None
    first.topics.append(MetadataRequestTopic(name="t"))
    assert second.topics == []


def test_a_secret_is_not_shown() -> None:
    request = SaslAuthenticateRequest(b"a password")
    assert "password" not in repr(request)
    assert request != SaslAuthenticateRequest(b"another")
