"""Expected failures: one exception class for each of Kafka's error codes, in `code`.

A KafkaError is raised anywhere below the handlers and caught by a handler, once, for the smallest
part of the response that has an error code (a partition, a group, the request). Any other exception
that escapes is a bug: it is logged with its traceback, and the connection is closed.

The class name is the code in CamelCase, so one search finds both. The exceptions are passed between
Ray actors, so they pickle by their arguments and have exactly one: the text for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from .error_code import ErrorCode


class KafkaError(Exception):
    """An expected failure with a Kafka error code. `str()` is the text for users."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    by_code: ClassVar[dict[int, type[KafkaError]]] = {}
    record_errors: tuple[tuple[int, str], ...] = ()
    """Records of a batch that caused the error, with reasons (KIP-467)."""

    def __init_subclass__(cls) -> None:
        # setdefault, and no error for a second class: Ray derives one from each error it re-raises.
        if "code" in cls.__dict__:
            KafkaError.by_code.setdefault(cls.code, cls)

    def __str__(self) -> str:
        text = super().__str__()
        return text or self.code.name

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable


def error_for(code: int, message: str | None = None) -> KafkaError:
    """The exception for an error code other than NONE, with the peer's message if it sent one, else
    with our text for the code, or its name.
    """
    cls = KafkaError.by_code.get(code)
    if cls is not None:
        name = cls.code.name
        return cls(message or (f"{ERROR_TEXTS[code]} ({name})" if code in ERROR_TEXTS else name))
    try:
        name = ErrorCode._value2member_map_[code].name
    except KeyError:
        name = f"error code {code}"
    return KafkaError(f"{name}: {message}" if message and name not in message else message or name)


class ConnectionFailed(Exception):
    """A client could not connect to a broker, or lost the connection. Not an error code."""


class AuthenticationFailed(ConnectionFailed):
    """A broker refuses our credentials, or we refuse the broker. Retrying does not help.

    Source: AuthenticationException in apache/kafka.
    """


class MalformedRequest(Exception):
    """Bytes that are not a valid message. The peer does not speak Kafka, or is hostile: close the
    connection.
    """


class UnknownServerError(KafkaError):
    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(KafkaError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(KafkaError):
    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartition(KafkaError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailable(KafkaError):
    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(KafkaError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOut(KafkaError):
    code = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailable(KafkaError):
    code = ErrorCode.BROKER_NOT_AVAILABLE


class MessageTooLarge(KafkaError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class StaleControllerEpoch(KafkaError):
    code = ErrorCode.STALE_CONTROLLER_EPOCH


class OffsetMetadataTooLarge(KafkaError):
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class NetworkException(KafkaError):
    code = ErrorCode.NETWORK_EXCEPTION


class CoordinatorLoadInProgress(KafkaError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(KafkaError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(KafkaError):
    code = ErrorCode.NOT_COORDINATOR


class InvalidTopicException(KafkaError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLarge(KafkaError):
    code = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicas(KafkaError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcks(KafkaError):
    code = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGeneration(KafkaError):
    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocol(KafkaError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupId(KafkaError):
    code = ErrorCode.INVALID_GROUP_ID


class UnknownMemberId(KafkaError):
    code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeout(KafkaError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgress(KafkaError):
    code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSize(KafkaError):
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class TopicAuthorizationFailed(KafkaError):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(KafkaError):
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(KafkaError):
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestamp(KafkaError):
    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedVersion(KafkaError):
    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExists(KafkaError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(KafkaError):
    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(KafkaError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(KafkaError):
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(KafkaError):
    code = ErrorCode.INVALID_CONFIG


class NotController(KafkaError):
    code = ErrorCode.NOT_CONTROLLER


class InvalidRequest(KafkaError):
    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormat(KafkaError):
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolation(KafkaError):
    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumber(KafkaError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumber(KafkaError):
    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(KafkaError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(KafkaError):
    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(KafkaError):
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class InvalidProducerIdMapping(KafkaError):
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(KafkaError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(KafkaError):
    code = ErrorCode.CONCURRENT_TRANSACTIONS


class OperationNotAttempted(KafkaError):
    code = ErrorCode.OPERATION_NOT_ATTEMPTED


class KafkaStorageError(KafkaError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


class ReplicaNotAvailable(KafkaError):
    code = ErrorCode.REPLICA_NOT_AVAILABLE


class LogDirNotFound(KafkaError):
    code = ErrorCode.LOG_DIR_NOT_FOUND


class UnknownProducerId(KafkaError):
    code = ErrorCode.UNKNOWN_PRODUCER_ID


class ReassignmentInProgress(KafkaError):
    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class NonEmptyGroup(KafkaError):
    code = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(KafkaError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFound(KafkaError):
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(KafkaError):
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFound(KafkaError):
    code = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabled(KafkaError):
    code = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpoch(KafkaError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionType(KafkaError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class StaleBrokerEpoch(KafkaError):
    code = ErrorCode.STALE_BROKER_EPOCH


class OffsetNotAvailable(KafkaError):
    code = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequired(KafkaError):
    code = ErrorCode.MEMBER_ID_REQUIRED


class PreferredLeaderNotAvailable(KafkaError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReached(KafkaError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceId(KafkaError):
    code = ErrorCode.FENCED_INSTANCE_ID


class EligibleLeadersNotAvailable(KafkaError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(KafkaError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgress(KafkaError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class GroupSubscribedToTopic(KafkaError):
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class InvalidRecord(KafkaError):
    code = ErrorCode.INVALID_RECORD


class UnstableOffsetCommit(KafkaError):
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class InconsistentClusterId(KafkaError):
    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class UnknownTopicId(KafkaError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(KafkaError):
    code = ErrorCode.INCONSISTENT_TOPIC_ID


class FetchSessionTopicIdError(KafkaError):
    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class DuplicateBrokerRegistration(KafkaError):
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class BrokerIdNotRegistered(KafkaError):
    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class FencedMemberEpoch(KafkaError):
    code = ErrorCode.FENCED_MEMBER_EPOCH


class ApplicationRecoverable(KafkaError):
    """A producer must be replaced by a new one (KIP-1050). Not an error code."""


class ProducerFenced(ApplicationRecoverable):
    code = ErrorCode.PRODUCER_FENCED


class DuplicateResource(KafkaError):
    code = ErrorCode.DUPLICATE_RESOURCE


class InvalidUpdateVersion(KafkaError):
    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplica(KafkaError):
    code = ErrorCode.INELIGIBLE_REPLICA


class NewLeaderElected(KafkaError):
    code = ErrorCode.NEW_LEADER_ELECTED


class UnknownControllerId(KafkaError):
    code = ErrorCode.UNKNOWN_CONTROLLER_ID


class TransactionalIdAuthorizationFailed(KafkaError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class SecurityDisabled(KafkaError):
    code = ErrorCode.SECURITY_DISABLED


class TransactionalIdNotFound(KafkaError):
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionAbortable(KafkaError):
    """A transaction can only be aborted; its producer continues with the next (KIP-1050)."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class DuplicateVoter(KafkaError):
    code = ErrorCode.DUPLICATE_VOTER


class VoterNotFound(KafkaError):
    code = ErrorCode.VOTER_NOT_FOUND


class UnsupportedSaslMechanism(KafkaError):
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslState(KafkaError):
    code = ErrorCode.ILLEGAL_SASL_STATE


class SaslAuthenticationFailed(KafkaError):
    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class ResourceNotFound(KafkaError):
    code = ErrorCode.RESOURCE_NOT_FOUND


class UnacceptableCredential(KafkaError):
    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class ThrottlingQuotaExceeded(KafkaError):
    """Topic changes beyond the client's quota (KIP-599); the response has the throttle time."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class DelegationTokenAuthDisabled(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFound(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatch(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowed(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthorizationFailed(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenExpired(KafkaError):
    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalType(KafkaError):
    code = ErrorCode.INVALID_PRINCIPAL_TYPE


ERROR_TEXTS: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed unexpectedly; its log says why",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not, or no longer, in the log; ask for the "
    "partition's earliest and latest offset, and read from there",
    ErrorCode.CORRUPT_MESSAGE: "records there are damaged; `bradbury status` shows which, and "
    "docs/recovery.md says what to do",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; `bradbury topics "
    "list` shows those that there are",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes; make "
    "records smaller, or raise it",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than the topic's segment.bytes; send "
    "smaller batches, or raise it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker refuses a topic of this name",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas; "
    "`bradbury status` shows which brokers are missing",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced since; poll again to join it",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members have no assignment strategy in "
    "common with this one; give all the same partition_assignment_strategy",
    ErrorCode.INVALID_GROUP_ID: "the group id must not be empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member, or has removed it; `bradbury "
    "groups members` shows those it has",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms; change the one or the others",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; poll again to take part",
    ErrorCode.UNSUPPORTED_VERSION: "the broker has not this version of the request; it is older "
    "than the client needs",
    ErrorCode.POLICY_VIOLATION: "a policy of the brokers forbids it",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot use the disk with the partition; `bradbury "
    "dirs` and the broker's log say why",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group; `bradbury groups list` shows those that "
    "there are",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers' "
    "group.max.size allows",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a live member of the group reads the topic; stop it "
    "first",
    ErrorCode.INVALID_RECORD: "the broker refuses a record: it is damaged, its time is outside of "
    "the topic's bounds, or a compacted topic needs a key",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "a quota is used up; wait, or raise it with `bradbury "
    "quotas`",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id; `bradbury "
    "transactions list` shows those that there are",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the other side cannot read this codec",
}
"""Error texts for users where the broker sent none: the cause, and the remedy. Codes that only make
a client retry have none, nor those of authorization (cli authorization_failure).
"""
