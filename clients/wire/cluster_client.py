"""Requests to the right node of a cluster, and the view of it they are routed by.

Invariants:
    `view` is replaced on the I/O thread only and may be read from any thread.
    A connection that ended is forgotten and made again by the next request to its node.
    A metadata refresh asks every node it knows of, then the bootstrap servers again, before it
    fails: a cluster that moved altogether is found again by its bootstrap addresses (KIP-899).

A node has one connection per lane, because a broker answers a connection's requests in order: a
parked Fetch or JoinGroup would hold up whatever came after it.

Not here: retries of requests; each kind has its own rules.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from ...discovery.bootstrap import find_servers
from ...discovery.state_file import default_namespace, live_state
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from ...protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ...protocol.schema import Message
from ...protocol.topic_name import check_topic_name
from ..security.client_config_file import default_security
from ..security.security_options import ClientSecurity
from ..threads.io_thread import IoThread, Steps, wait
from .bootstrap_servers import format_servers, parse_servers
from .cluster_view import ClusterView, TopicView
from .connection import Address, Connection
from .connection_metrics import ConnectionMetrics
from .connection_security import ConnectionSecurity
from .sampled_stats import Figures

R = TypeVar("R", bound=Message)
T = TypeVar("T")

CONTROL: Final = "control"
DATA: Final = "data"
GROUP: Final = "group"

UNKNOWN_TOPIC_GRACE_MS: Final = 5_000
"""Milliseconds that a topic may be unknown before it is an error: brokers learn of it in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of all clients, with Kafka's names and defaults.

    allow_auto_create_topics: None for clients that have no such setting, and create none.
    receive_buffer_bytes: of a socket (SO_RCVBUF); None: the kernel sets the size automatically.
    security: None: what discovery/client_config finds for these brokers.
    """

    client_id: str = "bradbury"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    connect_timeout_ms: int = 10_000
    allow_auto_create_topics: bool | None = None
    receive_buffer_bytes: int | None = None
    security: ClientSecurity | None = None


def unknown_topic(name: str, config: ClientConfig) -> UnknownTopicOrPartition:
    """The error that there is no such topic, with the remedies of a client of this config."""
    match config.allow_auto_create_topics:
        case None:
            also = ""
        case True:
            also = ", or let the brokers do so: auto.create.topics.enable=true"
        case False:
            also = ", or let this client do so: allow_auto_create_topics=True"
    return UnknownTopicOrPartition(
        f"topic {name!r} does not exist; create it with `bradbury topics create "
        f"{name}` or bradbury.Admin().create_topic({name!r}){also}"
    )


class ClusterClient:
    """Owned by one Producer, Consumer or Admin, which closes it; the thread keeps it alive."""

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        namespace: str | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        self.config = config or ClientConfig()
        namespace = namespace or default_namespace()
        servers = find_servers(bootstrap, namespace)
        self.bootstrap = parse_servers(servers)
        self._namespace = namespace
        self._security = ConnectionSecurity(
            self.config.security or default_security(servers, namespace)
        )
        self.io = IoThread(f"{self.config.client_id}-io")
        self.view = ClusterView()
        self.on_view: list[Callable[[], None]] = []
        self.metrics = ConnectionMetrics()
        self._viewed_at = time.monotonic()
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._wanted: set[str] = set()
        self._all_wanted = False
        self._refreshing: tuple[frozenset[str] | None, Future[ClusterView]] | None = None
        self._aging = False

    # --- from any thread ---------------------------------------------------------------------

    def run(self, steps: Steps[T], timeout_ms: int | None = None) -> T:
        """Run `steps` on the I/O thread and wait for what they return.

        Raises:
            RequestTimedOut: they took longer than `timeout_ms`.
        """
        future = self.io.spawn(steps)
        try:
            return future.result(None if timeout_ms is None else timeout_ms / 1000)
        except TimeoutError:
            if future.done():
                raise  # the steps themselves ran into one
            raise RequestTimedOut(f"no result within {timeout_ms} ms") from None

    def close(self) -> None:
        """Close every connection and end the thread. Safe to call twice."""
        if self.io.stopped:
            return
        if self.io.has_begun and not self.io.is_current():  # as it is when `drop` was called
            closed: Future[None] = Future()
            self.io.call_soon(lambda: self._close_connections(closed))
            try:
                closed.result(5)
            except TimeoutError:
                pass
        self.io.stop()
        self._close_connections(None)  # connections begun when the requests above failed

    def drop(self) -> None:
        """Close without waiting, when the client was dropped. From any thread, at any time."""
        if self.io.has_begun:
            self.io.call_soon(self.close)
        else:
            self.close()

    def figures(self, now: float) -> Figures:
        """Metrics of connections, and the age of the metadata."""
        open_connections = list(self._connections.values())
        return {
            **self.metrics.figures(now),
            "metadata-age": now - self._viewed_at,
            "requests-in-flight": sum(one.in_flight_count for one in open_connections),
        }

    @property
    def closed(self) -> bool:
        return self.io.stopped

    def is_gone(self, topic: str) -> bool:
        """Whether the last answer said that there is no such topic."""
        known = self.view.topics.get(topic)
        if known is None:
            return self._all_wanted and bool(self.view.brokers)
        return known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- on the I/O thread -------------------------------------------------------------------

    def connection(self, address: Address, lane: str) -> Connection:
        """The live connection to `address` in `lane`, begun now if there is none."""
        connection = self._connections.get((address, lane))
        if connection is None or connection.failure is not None:
            connection = Connection(
                self.io,
                address,
                client_id=self.config.client_id,
                connect_timeout_ms=self.config.connect_timeout_ms,
                receive_buffer_bytes=self.config.receive_buffer_bytes,
                metrics=self.metrics,
                security=self._security,
            )
            self._connections[address, lane] = connection
        return connection

    def send(
        self,
        address: Address,
        message: Message,
        response: type[R],
        *,
        lane: str = CONTROL,
        timeout_ms: int | None = None,
        max_version: int | None = None,
    ) -> Future[R]:
        return self.connection(address, lane).request(
            message,
            response,
            timeout_ms=timeout_ms or self.config.request_timeout_ms,
            max_version=max_version,
        )

    def send_to_any(
        self,
        message: Message,
        response: type[R],
        *,
        max_version: int | None = None,
        repeatable: bool = True,
    ) -> Steps[R]:
        """Ask node after node until one answers.

        Args:
            repeatable: False for a request that must not be carried out twice: if it was sent and
                the response was lost, it is not sent again.

        Raises:
            AuthenticationFailed: a node rejects this client's credentials, or this client the node.
            ConnectionFailed: none did; the text has the last reason and the remedy.
        """
        failure: ConnectionFailed | None = None
        for address in self._candidates():
            connection = self.connection(address, CONTROL)
            try:
                return (
                    yield from wait(
                        connection.request(
                            message,
                            response,
                            timeout_ms=self.config.request_timeout_ms,
                            max_version=max_version,
                        )
                    )
                )
            except AuthenticationFailed:
                raise  # another broker would say the same
            except ConnectionFailed as error:
                if connection.is_ready and not repeatable:
                    raise ConnectionFailed(
                        f"{error}; the change may have been made; check before you retry"
                    )
                failure = error
        servers = format_servers(self.bootstrap)
        state = live_state(self._namespace)  # commands, too, pass the address that they read there
        is_here = state is not None and state.bootstrap == servers
        look = "`bradbury status` says" if is_here else "is the address right?"
        raise ConnectionFailed(
            f"no broker of {servers} answers; is the cluster up? {look} (last try: {failure})"
        )

    def feature_level(self, name: str) -> int:
        """Finalized level of a feature, by the broker with the latest epoch; or 0."""
        known = [one.api_versions.features for one in self._connections.values()]
        best = max(known, key=lambda features: features.epoch, default=None)
        return 0 if best is None else best.levels.get(name, 0)

    def want(self, topics: Iterable[str]) -> bool:
        """Keep `topics` in the view from now on; True if one is new and a refresh is due."""
        before = len(self._wanted)
        self._wanted.update(topics)
        return len(self._wanted) > before

    def want_all(self, *, wanted: bool) -> None:
        """Keep every topic of the cluster in the view, from the next refresh on, or no longer."""
        self._all_wanted = wanted

    def forget(self, topic: str) -> None:
        self._wanted.discard(topic)

    def refresh(self) -> Future[ClusterView]:
        """Ask for the wanted topics again. Calls while one is in flight share its answer."""
        wanted = None if self._all_wanted else frozenset(self._wanted)
        if self._refreshing is not None and _is_part(wanted, self._refreshing[0]):
            return self._refreshing[1]
        future = self.io.spawn(self._refresh(wanted))
        self._refreshing = (wanted, future)
        future.add_done_callback(self._on_refreshed)
        if not self._aging:
            self._aging = True
            self.io.call_later(self.config.metadata_max_age_ms / 1000, self._on_age)
        return future

    def topic(
        self,
        name: str,
        *,
        partition: int = 0,
        timeout_ms: int | None = None,
        grace_ms: int = UNKNOWN_TOPIC_GRACE_MS,
    ) -> Steps[TopicView]:
        """The view of one topic, asked for until it is known.

        If it has no such `partition`, which may have been added since, it is asked for again.

        Raises:
            UnknownTopicOrPartition: it stayed unknown for `grace_ms`, or for `timeout_ms`.
            KafkaError: the broker refuses the name, or access.
            ConnectionFailed: no broker answers.
        """
        self.want([name])
        if timeout_ms is not None:
            grace_ms = min(grace_ms, timeout_ms)
        waited_ms = 0
        while True:
            view = self.view.topics.get(name)
            if view is not None and len(view.partitions) > partition and not view.error_code:
                return view
            yield from wait(self.refresh())
            view = self.view.topics.get(name)
            if view is not None and view.partitions and not view.error_code:
                return view
            code = view.error_code if view is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code and not error_for(code).retriable:
                self.forget(name)
                if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                    check_topic_name(name)  # Metadata has no text: the rule that the name breaks
                raise error_for(code, f"topic {name!r}: {error_for(code)}")
            if waited_ms >= grace_ms:
                self.forget(name)
                raise unknown_topic(name, self.config)
            waited_ms += self.config.retry_backoff_ms
            yield self.config.retry_backoff_ms / 1000

    def _refresh(self, wanted: frozenset[str] | None) -> Steps[ClusterView]:
        request = MetadataRequest(
            topics=None
            if wanted is None
            else [MetadataRequestTopic(name=name) for name in sorted(wanted)],
            allow_auto_topic_creation=self.config.allow_auto_create_topics or False,
        )
        response = yield from self.send_to_any(request, MetadataResponse)
        if response.error_code:
            raise error_for(response.error_code)
        self.view = self.view.updated(response, asked=wanted)
        self._viewed_at = time.monotonic()
        for callback in self.on_view:
            callback()
        return self.view

    def _on_refreshed(self, future: Future[ClusterView]) -> None:
        if self._refreshing is not None and self._refreshing[1] is future:
            self._refreshing = None

    def _on_age(self) -> None:
        self.io.call_later(self.config.metadata_max_age_ms / 1000, self._on_age)
        self.refresh()

    def _candidates(self) -> list[Address]:
        """Known nodes in random order, connected ones first; then the bootstrap servers."""
        known = [broker.address for broker in self.view.brokers.values()]
        random.shuffle(known)
        known.sort(key=lambda address: not self._is_connected(address))
        return list(dict.fromkeys([*known, *self.bootstrap]))

    def _is_connected(self, address: Address) -> bool:
        connection = self._connections.get((address, CONTROL))
        return connection is not None and connection.failure is None

    def _close_connections(self, closed: Future[None] | None) -> None:
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        if closed is not None:
            closed.set_result(None)


def _is_part(wanted: frozenset[str] | None, asked: frozenset[str] | None) -> bool:
    """Whether an answer about `asked` (None: all topics) says what is `wanted`."""
    return asked is None or (wanted is not None and wanted <= asked)


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed later, at this node or another."""
    if isinstance(error, ConnectionFailed):
        return not isinstance(error, AuthenticationFailed)
    return isinstance(error, KafkaError) and error.retriable
