"""Users' credentials: which changes are allowed, what is kept of them, and what is shown."""

from bradbury.cluster.control.access.scram_control import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from bradbury.cluster.control.controller_request import DONE, RequestOutcome
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    decode_metadata_record,
    encode_metadata_record,
)
from bradbury.cluster.metadata.user_records import without_keys
from bradbury.cluster.quorum.metadata_snapshot import decode_snapshot, encode_snapshot
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.security.scram import ScramCredential
from tests.support.metadata import applied, cluster, decide

SHA_256, SHA_512 = 1, 2


def credential(password: str = "secret", *, iterations: int = 4096) -> ScramCredential:
    return ScramCredential.of_password(
        "SCRAM-SHA-256", password, salt=b"salt of alice", iterations=iterations
    )


def upsert(
    name: str, mechanism: int = SHA_256, value: ScramCredential | None = None
) -> ScramUpsertion:
    return ScramUpsertion(name=name, mechanism=mechanism, credential=value or credential())


def delete(name: str, mechanism: int = SHA_256) -> ScramDeletion:
    return ScramDeletion(name=name, mechanism=mechanism)


def alter(
    image: MetadataImage, *changes: ScramDeletion | ScramUpsertion, is_repeated: bool = False
) -> tuple[MetadataImage, dict[str, RequestOutcome]]:
    request = AlterUserScramCredentials(
        deletions=tuple(each for each in changes if isinstance(each, ScramDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramUpsertion)),
        is_repeated=is_repeated,
    )
    records, outcomes = decide(image, request)
    return applied(image, records), outcomes


def test_a_credential_is_added_replaced_and_removed() -> None:
    image, outcomes = alter(cluster(), upsert("alice"), upsert("bob", SHA_512))
    assert outcomes == {"alice": DONE, "bob": DONE}
    assert image.scram_credentials["alice"] == {"SCRAM-SHA-256": credential()}
    image, _ = alter(image, upsert("alice", SHA_512, credential("other")))
    image, _ = alter(image, upsert("alice", SHA_256, credential("new")))
    assert image.scram_credentials["alice"] == {
        "SCRAM-SHA-256": credential("new"),
        "SCRAM-SHA-512": credential("other"),
    }
    image, outcomes = alter(image, delete("alice"), delete("bob", SHA_512))
    assert outcomes == {"alice": DONE, "bob": DONE}
    assert {user: list(known) for user, known in image.scram_credentials.items()} == {
        "alice": ["SCRAM-SHA-512"]
    }


def test_what_is_refused_is_refused_in_kafkas_words_and_the_others_are_done() -> None:
    image, outcomes = alter(
        cluster(),
        delete("nobody"),
        upsert(""),
        upsert("bad-mechanism", 3),
        upsert("few", SHA_256, credential(iterations=4095)),
        upsert("many", SHA_256, credential(iterations=16385)),
        upsert("twice"),
        upsert("twice", SHA_512),
        upsert("thrice"),
        upsert("thrice"),
        upsert("thrice"),
        ScramUpsertion(name="empty", mechanism=SHA_256, credential=None),
        upsert("most", SHA_256, credential(iterations=16384)),
    )
    twice = (
        ErrorCode.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    assert outcomes == {
        "nobody": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "bad-mechanism": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "twice": twice,
        "thrice": twice,
        "empty": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"),
        "most": DONE,
    }
    assert set(image.scram_credentials) == {"most"}


def test_a_user_that_is_removed_and_added_at_once_stays_as_it_was() -> None:
    image, _ = alter(cluster(), upsert("alice"))
    after, outcomes = alter(image, delete("alice"), upsert("alice", SHA_512))
    assert outcomes["alice"].code == ErrorCode.DUPLICATE_RESOURCE
    assert after.scram_credentials == image.scram_credentials


def test_a_removal_whose_answer_was_lost_may_be_asked_for_again() -> None:
    _, outcomes = alter(cluster(), delete("alice"), is_repeated=True)
    assert outcomes == {"alice": DONE}


def test_credentials_are_in_a_snapshot() -> None:
    image, _ = alter(cluster(), upsert("alice"), upsert("bob", SHA_512))
    assert decode_snapshot(encode_snapshot(image, now_ms=0)) == image


def test_nothing_that_is_shown_has_keys_or_a_password() -> None:
    request = AlterUserScramCredentials(deletions=(), upsertions=(upsert("alice"),))
    (record,), _ = decide(cluster(), request)
    secrets = [record.salt, record.stored_key, record.server_key, "secret", "salt of alice"]
    value = encode_metadata_record(record)
    shown = f"{request!r} {record!r} {applied(cluster(), [record])!r} {without_keys(value)!r}"
    assert "alice" in shown
    assert [each for each in secrets if each in shown] == []
    for broken in (value[:-1], value.replace(b"iterations", b"times"), value + b"\xff"):
        try:
            decode_metadata_record(broken)
        except CorruptMessage as error:
            assert [each for each in secrets if each in f"{error!r}"] == []
        else:
            raise AssertionError(broken)


def test_what_is_no_credential_is_shown_as_it_is() -> None:
    for value in (None, b"", b'{"type":"TopicRecord"}', b"\xff"):
        assert without_keys(value) == value
    assert without_keys(b'{"type":"UserScramCredentialRecord",') == b"[hidden]"
