"""A transaction coordinator with a log in memory: each effect is carried out when it is told to."""

from dataclasses import dataclass, field

from bradbury.protocol.error_code import ErrorCode
from bradbury.transactions.transaction_config import TransactionConfig
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_effects import (
    Append,
    CancelTimer,
    Effect,
    InitializedProducer,
    Respond,
    SendMarkers,
    StartTimer,
    TransactionTimer,
)
from bradbury.transactions.transaction_metadata import TransactionMetadata
from bradbury.transactions.transaction_records import (
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)

TIMEOUT_MS = 60_000


@dataclass
class World:
    version: int = 2
    config: TransactionConfig = field(default_factory=TransactionConfig)
    now_ms: int = 1_000_000
    producer_ids: int = 0
    has_producer_ids: bool = True

    def __post_init__(self) -> None:
        self.log: list[TransactionRecord] = []
        self.appends: list[Append] = []
        self.markers: list[SendMarkers] = []
        self.answers: dict[int, InitializedProducer | ErrorCode] = {}
        self.timers: dict[TransactionTimer, int] = {}
        self.requests = 0
        self.begin()

    def take_producer_id(self) -> int | None:
        if not self.has_producer_ids:
            return None
        self.producer_ids += 1
        return self.producer_ids

    def begin(self) -> None:
        """A new coordinator loads the log; whoever waited for the former one hears nothing."""
        self.appends, self.markers, self.timers = [], [], {}
        self.coordinator = TransactionCoordinator(self.config, self.take_producer_id, self.version)
        for record in self.log:
            key, value = encode_transaction_record(record, transaction_version=self.version)
            decoded = decode_transaction_record(key, value)
            assert decoded is not None
            self.coordinator.apply(decoded)
        self.perform(self.coordinator.on_loaded(now_ms=self.now_ms))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(request_id, answer):
                    assert request_id not in self.answers, "answered twice"
                    self.answers[request_id] = answer
                case Append():
                    self.appends.append(effect)
                case SendMarkers():
                    self.markers.append(effect)
                case StartTimer(key, after_ms):
                    self.timers[key] = self.now_ms + after_ms
                case CancelTimer(key):
                    del self.timers[key]

    # --- what becomes of effects -----------------------------------------------------------------

    def commit(self) -> None:
        """The oldest append is in the log for good."""
        append = self.appends.pop(0)
        self.log += append.records
        self.perform(self.coordinator.on_committed(append, now_ms=self.now_ms))

    def refuse(self, error: ErrorCode) -> None:
        """Nothing of the oldest append was appended."""
        append = self.appends.pop(0)
        self.perform(self.coordinator.on_failed(append, error, now_ms=self.now_ms))

    def write_markers(self) -> SendMarkers:
        markers = self.markers.pop(0)
        self.perform(self.coordinator.on_markers_written(markers, now_ms=self.now_ms))
        return markers

    def settle(self) -> None:
        while self.appends or self.markers:
            if self.appends:
                self.commit()
            else:
                self.write_markers()

    def pass_time(self, ms: int) -> None:
        """Timers that are due fire, the earliest first."""
        end = self.now_ms + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end]:
            at, key = min(due)
            del self.timers[key]
            self.now_ms = max(self.now_ms, at)
            self.perform(self.coordinator.on_timer(key, now_ms=self.now_ms))
        self.now_ms = end

    # --- requests: their ids; the answers are in `answers` ---------------------------------------

    def _request(self) -> int:
        self.requests += 1
        return self.requests

    def init(
        self,
        transactional_id: str = "id",
        timeout_ms: int = TIMEOUT_MS,
        expected: tuple[int, int] | None = None,
    ) -> int:
        request = self._request()
        self.perform(
            self.coordinator.on_init_producer_id(
                request, transactional_id, timeout_ms, expected=expected, now_ms=self.now_ms
            )
        )
        return request

    def add(
        self,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        transactional_id: str = "id",
        client_version: int | None = None,
    ) -> int:
        """client_version: by default the cluster's."""
        request = self._request()
        self.perform(
            self.coordinator.on_add_partitions(
                request,
                transactional_id,
                *producer,
                frozenset(partitions),
                client_version=self.version if client_version is None else client_version,
                now_ms=self.now_ms,
            )
        )
        return request

    def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool,
        transactional_id: str = "id",
        client_version: int | None = None,
    ) -> int:
        request = self._request()
        self.perform(
            self.coordinator.on_end(
                request,
                transactional_id,
                *producer,
                is_commit=is_commit,
                client_version=self.version if client_version is None else client_version,
                now_ms=self.now_ms,
            )
        )
        return request

    # --- with all that follows from them ---------------------------------------------------------

    def begin_producer(self, transactional_id: str = "id") -> tuple[int, int]:
        """Its id and epoch."""
        while True:
            request = self.init(transactional_id)
            self.settle()
            answer = self.answers[request]
            assert isinstance(answer, InitializedProducer)
            if answer.error is ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS

    def error_of(self, request: int) -> ErrorCode:
        answer = self.answers[request]
        return answer.error if isinstance(answer, InitializedProducer) else answer

    def metadata(self, transactional_id: str = "id") -> TransactionMetadata:
        found = self.coordinator.metadata_of(transactional_id)
        assert found is not None
        return found
