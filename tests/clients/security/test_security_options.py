"""Which security settings a client takes, and which it refuses with the remedy."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.clients.security.client_config_file import read_client_config
from bradbury.clients.security.security_options import ClientSecurity, secrets_in_clear
from bradbury.protocol.errors import InvalidConfig
from bradbury.tests.support.certificates import CertificateAuthority

SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
ALICE = {"sasl_username": "alice", "sasl_password": "secret"}
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="al\\"ice" password="se;cret";'
)


def test_without_any_there_is_no_security() -> None:
    security = ClientSecurity.from_options({})
    assert not security.is_tls
    assert not security.is_sasl
    assert security.tls_context() is None


def test_kafkas_names_in_either_case_of_the_protocol() -> None:
    security = ClientSecurity.from_options({**SCRAM, **ALICE, "security_protocol": "sasl_ssl"})
    assert (security.is_tls, security.is_sasl, security.mechanism) == (True, True, "SCRAM-SHA-512")


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(ClientSecurity.from_options({**SCRAM, **ALICE}))


def test_jaas_is_read_as_kafka_writes_it() -> None:
    ClientSecurity.from_options({**SCRAM, "sasl_jaas_config": JAAS})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"security_protocol": "TLS"}, "use one of PLAINTEXT, SSL"),
        ({"ssl_truststore_location": "a"}, "no effect with security_protocol=PLAINTEXT"),
        ({"security_protocol": "SSL", **ALICE}, "no effect with security_protocol=SSL"),
        ({"security_protocol": "SSL", "ssl_keystore_type": "JKS"}, "use PEM"),
        ({"security_protocol": "SSL", "ssl_keystore_key": "k"}, "give both"),
        (
            {
                "security_protocol": "SSL",
                "ssl_truststore_location": "a",
                "ssl_truststore_certificates": "b",
            },
            "give one",
        ),
        (
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": "ldaps"},
            'use "https" or ""',
        ),
        ({**SCRAM, **ALICE, "sasl_mechanism": "OTHER"}, "use one of PLAIN, SCRAM-SHA-256"),
        ({**SCRAM, **ALICE, "sasl_mechanism": "GSSAPI"}, "sasl_mechanism: GSSAPI .* is not there"),
        ({**SCRAM, "sasl_kerberos_service_name": "kafka"}, "GSSAPI .* is not there; SCRAM-SHA-512"),
        ({"security_protocol": "SASL_SSL", **ALICE}, "use one of PLAIN"),
        (SCRAM, "needs sasl_username and sasl_password"),
        ({**SCRAM, **ALICE, "sasl_jaas_config": JAAS}, "give one"),
        ({**SCRAM, "sasl_jaas_config": "com.example.Login required;"}, "ScramLoginModule"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        ClientSecurity.from_options(options)


def test_a_name_that_is_none_is_refused_as_an_argument() -> None:
    with pytest.raises(TypeError, match="'ssl_cafile'"):
        ClientSecurity.from_options({"ssl_cafile": "a"})  # kafka-python's


@pytest.mark.parametrize("name", ["ssl_truststore_location", "ssl_keystore_location"])
def test_a_file_that_is_no_pem_is_named(name: str, tmp_path: Path) -> None:
    for path in (tmp_path / "absent.pem", tmp_path / "empty.pem"):
        security = ClientSecurity.from_options({"security_protocol": "SSL", name: str(path)})
        with pytest.raises(InvalidConfig, match=f"{name}: .*{path.name}"):
            security.tls_context()
        (tmp_path / "empty.pem").touch()


def test_a_file_of_settings_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# comment\n! comment\n\nsecurity.protocol = SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=a=\\\n  b\\\\c\n"
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    security = read_client_config(path)
    assert security.protocol == "SASL_SSL"
    assert dict(security.options)["sasl_password"] == "a=b\\c"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("sasl.kerberos.service.name=kafka\n", "GSSAPI .* is not there"),
        ("bootstrap.servers=a:1\n", "bootstrap.servers is not a security setting"),
        ("security.protocol\n", "not `name=value`"),
        ("security.protocol=TLS\n", "client.properties: security_protocol"),
        (
            "sasl.login.callback.handler.class=com.example.Handler\n",
            "com.example.Handler is not available here; use .*OAuthBearerLoginCallbackHandler",
        ),
        ("config.providers=file,vault\n", "file,vault is not available here; use file or dir"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    content: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(content)
    with pytest.raises(InvalidConfig, match=text):
        read_client_config(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="absent"):
        read_client_config(tmp_path / "absent")


def test_a_line_that_may_be_a_part_of_a_password_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=a\n\nhunter2\n")
    with pytest.raises(InvalidConfig, match="line 3") as caught:
        read_client_config(path)
    assert "hunter2" not in str(caught.value)


REFERENCES = {"sasl_username": "${env:KAFKA_USER}", "sasl_password": "${env:KAFKA_PASSWORD}"}


def said(security: ClientSecurity) -> bytes:
    """What it says with PLAIN."""
    return security.exchange().first()


def test_a_secret_may_stand_elsewhere_and_is_looked_up_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    security = pickle.loads(pickle.dumps(ClientSecurity.from_options({**plain, **REFERENCES})))
    with pytest.raises(InvalidConfig, match="KAFKA_USER"):
        security.exchange()
    monkeypatch.setenv("KAFKA_USER", "alice")
    monkeypatch.setenv("KAFKA_PASSWORD", 'se"cret')
    assert said(security) == b'\0alice\0se"cret'
    monkeypatch.setenv("KAFKA_PASSWORD", "another")
    assert said(security) == b"\0alice\0another", "each time anew: it may have been changed"
    assert "KAFKA_PASSWORD" in dict(security.options)["sasl_password"]

    secrets = tmp_path / "kafka"
    secrets.write_text(f"password=a'b;\nname=bob\njaas={JAAS}\n")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    for jaas, expected in (
        (
            f'{module} username="${{file:{secrets}:name}}" password="${{file:{secrets}:password}}";',
            b"\0bob\0a'b;",
        ),
        (f"${{file:{secrets}:jaas}}", b'\0al"ice\0se;cret'),
    ):
        assert said(ClientSecurity.from_options({**plain, "sasl_jaas_config": jaas})) == expected


def test_certificates_and_keys_may_stand_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = CertificateAuthority(tmp_path)
    monkeypatch.setenv("KAFKA_CA", Path(authority.certificate).read_text())
    monkeypatch.setenv("CERTIFICATES", str(tmp_path))
    own = Path(authority.sign("alice")).name
    security = ClientSecurity.from_options(
        {
            "security_protocol": "SSL",
            "ssl_truststore_certificates": "${env:KAFKA_CA}",
            "ssl_keystore_location": f"${{env:CERTIFICATES}}/{own}",
        }
    )
    context = security.tls_context()
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_a_file_of_settings_may_hold_references_and_is_no_secret_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=${env:KAFKA_PASSWORD}\n"
    )
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    assert said(read_client_config(path)) == b"\0alice\0secret"


def test_a_client_is_not_made_where_a_reference_leads_nowhere() -> None:
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **REFERENCES}
    with pytest.raises(InvalidConfig, match="there is no such environment variable"):
        bradbury.Producer("localhost:1", **options)  # type: ignore[arg-type]


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
OAUTH_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="etl" clientSecret="s3cret";'
)


def a_token() -> str:
    return "token"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs sasl_oauth_token_provider or"),
        (
            {
                "sasl_oauth_token_provider": a_token,
                "sasl_oauthbearer_token_endpoint_url": "file:/t",
            },
            "one of them",
        ),
        ({"sasl_oauth_token_provider": "a.b"}, "use a function that gives a token"),
        ({"sasl_oauth_token_provider": a_token, "sasl_username": "a"}, "has no effect"),
        ({"sasl_oauth_token_provider": a_token, "sasl_oauthbearer_scope": "a"}, "has no effect"),
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://a"}, "use a file:, http: or https: URL"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://a"}, "needs .*client_id and its secret"),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://a", "sasl_jaas_config": JAAS},
            "OAuthBearerLoginModule required",
        ),
    ],
)
def test_settings_of_tokens_that_make_no_sense_are_refused(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        ClientSecurity.from_options(OAUTH | given)


def test_settings_of_tokens_are_of_that_mechanism() -> None:
    with pytest.raises(InvalidConfig, match="use OAUTHBEARER"):
        ClientSecurity.from_options(SCRAM | ALICE | {"sasl_oauth_token_provider": a_token})


def test_a_function_goes_with_the_settings_and_no_secret_is_shown() -> None:
    security = ClientSecurity.from_options(OAUTH | {"sasl_oauth_token_provider": a_token})
    assert pickle.loads(pickle.dumps(security)) == security
    assert ClientSecurity.from_options(security.as_options()) == security
    endpoint = {
        "sasl_oauthbearer_token_endpoint_url": "https://a",
        "sasl_jaas_config": OAUTH_JAAS,
    }
    asked = ClientSecurity.from_options(OAUTH | endpoint)
    oauth = asked.oauth()
    assert oauth is not None
    assert (oauth.client_id, oauth.client_secret) == ("etl", "s3cret")
    assert "s3cret" not in repr(oauth) + repr(asked)
    assert secrets_in_clear(endpoint) == ["sasl_jaas_config"]


@pytest.mark.parametrize(
    ("client", "name", "hint"),
    [
        (bradbury.Producer, "bootstrap_servers", "did you mean 'bootstrap'?"),
        (bradbury.Producer, "linger", "did you mean 'linger_ms'?"),
        (bradbury.Producer, "sasl_user_name", "did you mean 'sasl_username'?"),
        (bradbury.Consumer, "group_id", "did you mean 'group'?"),
        (bradbury.Consumer, "topics", "give topics by position"),
        (bradbury.AsyncConsumer, "group_id", "did you mean 'group'?"),
        (bradbury.Admin, "bootstrap_servers", "did you mean 'bootstrap'?"),
    ],
)
def test_a_misspelt_argument_of_a_client_is_refused_with_the_name_that_was_meant(
    client: Any, name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        client(**{name: "given"})


def test_an_argument_like_no_other_is_refused_without_a_hint() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzzz'$"):
        bradbury.Producer(zzzz=1)  # type: ignore[call-arg]
