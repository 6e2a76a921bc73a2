"""Does a client of a schema registry get what is there, once, and say in a sentence what is not?"""

import pickle
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.clients.schemas.registered_schema import RegisteredSchema
from bradbury.clients.schemas.registry_request import NotInRegistry, RegistryFailed
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def test_schemas_are_found_by_id_and_by_subject(server: RegistryServer) -> None:
    first = server.add("flights-value", FLIGHT)
    second = server.add("flights-value", '"string"')
    registry = bradbury.SchemaRegistry(server.url)
    assert registry.schema(first).schema_type == "AVRO"
    assert registry.latest("flights-value") == RegisteredSchema(second, "AVRO", '"string"')


def test_an_id_is_asked_for_once_in_a_process_and_the_latest_each_time(
    server: RegistryServer,
) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    for _ in range(3):
        bradbury.SchemaRegistry(server.url).schema(schema_id)
    assert server.requests == [f"GET /schemas/ids/{schema_id}"]
    server.requests.clear()
    for _ in range(2):
        bradbury.SchemaRegistry(server.url).latest("flights-value")
    assert server.requests == ["GET /subjects/flights-value/versions/latest"] * 2


def test_references_come_with_a_schema(server: RegistryServer) -> None:
    gate = server.add("gate", {"type": "record", "name": "Gate", "fields": []})
    leg_reference = {"name": "Gate", "subject": "gate", "version": 1}
    leg = server.add("leg", '"Gate"', references=[leg_reference])
    top = server.add(
        "flights-value",
        '"Leg"',
        references=[{"name": "Leg", "subject": "leg", "version": 1}, leg_reference],
    )
    found = bradbury.SchemaRegistry(server.url).schema(top)
    assert [(name, one.schema_id) for name, one in found.all_references()] == [
        ("Gate", gate),
        ("Leg", leg),
    ]
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_schema_is_registered_or_must_be_there(server: RegistryServer) -> None:
    registry = bradbury.SchemaRegistry(server.url)
    with pytest.raises(NotInRegistry, match="this schema of subject 'a/b value' is not in"):
        registry.find("a/b value", '"long"', "AVRO")
    schema_id = registry.register("a/b value", '"long"', "AVRO")
    assert registry.register("a/b value", '"long"', "AVRO") == schema_id
    assert registry.find("a/b value", '"long"', "AVRO") == (schema_id, 1)
    assert server.requests[0] == "POST /subjects/a%2Fb%20value"
    server.refuses = (409, "Schema being registered is incompatible")
    with pytest.raises(RegistryFailed, match=r"refuses this schema of subject 'x' \(HTTP 409, 409"):
        registry.register("x", '"int"', "AVRO")


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_asked_again(server: RegistryServer, status: int) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    server.answers += [(status, '{"error_code": 50003, "message": "Error while forwarding"}')] * 2
    assert bradbury.SchemaRegistry(server.url).schema(schema_id).schema_id == schema_id
    assert len(server.requests) == 3


def test_what_does_not_pass_is_said_with_the_registrys_words(server: RegistryServer) -> None:
    server.answers += [(503, '{"error_code": 50004, "message": "No\\nleader"}')] * 4
    with pytest.raises(RegistryFailed) as error:
        bradbury.SchemaRegistry(server.url).schema(7)
    assert str(error.value) == (
        f"the schema registry {server.url}, asked for schema id 7, answers HTTP 503, 50004: "
        "No leader; its log says why"
    )
    assert len(server.requests) == 4


def test_what_is_not_there_is_asked_for_once(server: RegistryServer) -> None:
    registry = bradbury.SchemaRegistry(server.url)
    with pytest.raises(NotInRegistry) as error:
        registry.schema(7)
    assert str(error.value) == (
        f"schema id 7 is not in the schema registry {server.url} "
        "(HTTP 404, 40403: Schema 7 not found)"
    )
    with pytest.raises(NotInRegistry, match="subject 'x-value' is not in the schema registry"):
        registry.latest("x-value")
    assert len(server.requests) == 2


def test_users_and_passwords_are_in_the_address_and_in_no_message(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    server.user = "ann:p@ss/word"
    with pytest.raises(
        RegistryFailed, match="asks for a user and a password: use http://USER:PASS"
    ):
        bradbury.SchemaRegistry(server.url).schema(schema_id)
    for password, is_right in (("p%40ss%2Fword", True), ("secret", False)):
        url = server.url.replace("://", f"://ann:{password}@")
        registry = bradbury.SchemaRegistry(url)
        assert repr(registry) == f"SchemaRegistry({server.url!r})"
        if is_right:
            assert registry.schema(schema_id).schema_id == schema_id
            continue
        with pytest.raises(RegistryFailed, match="refuses the user and password") as error:
            registry.schema(schema_id)
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="schema_registry is 'http://...@:x'") as wrong:
        bradbury.SchemaRegistry("http://ann:secret@:x")
    assert "secret" not in str(wrong.value)


def test_a_redirect_gets_no_password(server: RegistryServer) -> None:
    schema_id = server.add("flights-value", FLIGHT)
    server.user = "ann:secret"
    server.answers.append((302, f"{server.url}/schemas/ids/{schema_id}"))
    with pytest.raises(RegistryFailed, match="HTTP 401"):
        bradbury.SchemaRegistry(server.url.replace("://", "://ann:secret@")).schema(schema_id)


def test_a_registry_that_is_not_there_is_named_with_the_remedy() -> None:
    url = f"http://127.0.0.1:{free_ports(1)}"
    with pytest.raises(RegistryFailed) as error:
        bradbury.SchemaRegistry(url).schema(1)
    assert str(error.value) == (
        f"the schema registry {url} cannot be reached: Connection refused; is it running, and is "
        "schema_registry its address?"
    )


def test_a_registry_that_does_not_answer_is_waited_for_so_long(server: RegistryServer) -> None:
    server.latency_s = 1.0
    with pytest.raises(RegistryFailed, match=r"does not answer within 0\.1 s"):
        bradbury.SchemaRegistry(server.url, timeout_s=0.1).schema(1)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "answer", [(200, "<html>"), (200, "[]"), (200, '{"schema": 7, "references": [1]}'), (404, "no")]
)
def test_what_is_no_registry_is_said_to_be_none(
    server: RegistryServer, answer: tuple[int, str]
) -> None:
    server.answers.append(answer)
    with pytest.raises(RegistryFailed, match=f"at {server.url} is no schema registry"):
        bradbury.SchemaRegistry(server.url).schema(1)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8081", "ftp://a", "http://", "http://a:x", "http://a?b=c", "http://a,b:1,c"],
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="use http://HOST:PORT"):
        bradbury.SchemaRegistry(url)


def test_a_registry_may_be_below_a_path(server: RegistryServer) -> None:
    with pytest.raises(RegistryFailed, match="is no schema registry"):
        bradbury.SchemaRegistry(f"{server.url}/apis/ccompat/v7/").schema(3)
    assert server.requests == ["GET /apis/ccompat/v7/schemas/ids/3"]
