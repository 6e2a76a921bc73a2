"""Do SCRAM clients that others have written, and ours, come to the same as our server?"""

from collections.abc import Callable

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given, settings, strategies as st
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

from bradbury.cluster.control.access.scram_control import AlterUserScramCredentials, ScramUpsertion
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.security.sasl.credentials import TokenCredential
from bradbury.cluster.security.sasl.mechanisms import make_server
from bradbury.protocol.errors import SaslAuthenticationFailed
from bradbury.protocol.security.scram import MECHANISM_TYPES, ScramCredential
from bradbury.protocol.security.scram_client import ScramClient
from tests.support.metadata import applied, cluster, decide

Answer = Callable[[bytes], bytes]
Client = Callable[[str, str, str], tuple[bytes, Answer, Callable[[bytes], None]]]
"""Mechanism, user, password -> the first message, what answers the challenge, what checks the end."""


def kafka_python(mechanism: str, user: str, password: str):
    client = KafkaPythonClient(user, password, mechanism)

    def answer(challenge: bytes) -> bytes:
        client.process_server_first_message(challenge)
        return client.final_message()

    return client.first_message(), answer, client.process_server_final_message


def aiokafka(mechanism: str, user: str, password: str):
    client = ScramAuthenticator(
        loop=None,
        sasl_plain_password=password,
        sasl_plain_username=user,
        sasl_mechanism=mechanism,
    )

    def answer(challenge: bytes) -> bytes:
        client.process_server_first_message(challenge.decode())
        return client.final_message().encode()

    def check(outcome: bytes) -> None:
        client.process_server_final_message(outcome.decode())

    return client.first_message().encode(), answer, check


def ours(mechanism: str, user: str, password: str):
    client = ScramClient(mechanism, user, password, nonce="abc")
    return client.first(), client.final, client.check


CLIENTS = (kafka_python, aiokafka, ours)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
names = st.text(st.sampled_from("abcXYZ09.-_@ "), min_size=1, max_size=30)


class Users:
    """Those of the metadata."""

    def __init__(self, image: MetadataImage) -> None:
        self._users = image.scram_credentials

    def plain_password(self, user: str) -> str | None:
        return None

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._users.get(user, {}).get(mechanism)

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None:
        return None


def with_user(name: str, number: int, password: str, salt: bytes, iterations: int) -> MetadataImage:
    value = ScramCredential.of_password(
        MECHANISM_TYPES[number], password, salt=salt, iterations=iterations
    )
    upsertion = ScramUpsertion(name=name, mechanism=number, credential=value)
    request = AlterUserScramCredentials(deletions=(), upsertions=(upsertion,))
    records, _ = decide(cluster(), request)
    return applied(cluster(), records)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
@settings(deadline=None, max_examples=20)
@given(
    number=st.sampled_from(sorted(MECHANISM_TYPES)),
    name=names,
    password=texts,
    other=texts,
    salt=st.binary(min_size=1, max_size=64),
    iterations=st.integers(4096, 5000),
)
def test_who_has_the_password_is_let_in_and_nobody_else(
    client: Client,
    number: int,
    name: str,
    password: str,
    other: str,
    salt: bytes,
    iterations: int,
) -> None:
    image = with_user(name, number, password, salt, iterations)
    mechanism = MECHANISM_TYPES[number]
    credentials = Users(image)
    server = make_server(mechanism, credentials=credentials, nonce="server")
    first, answer, check = client(mechanism, name, password)
    step = server.respond(answer(server.respond(first, now_ms=0).reply), now_ms=0)
    assert step.principal_name == name
    check(step.reply)
    if other != password:
        server = make_server(mechanism, credentials=credentials, nonce="server")
        first, answer, _ = client(mechanism, name, other)
        challenge = server.respond(first, now_ms=0).reply
        with pytest.raises(SaslAuthenticationFailed):
            server.respond(answer(challenge), now_ms=0)
