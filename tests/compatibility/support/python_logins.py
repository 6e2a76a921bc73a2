"""Clients in Python that log in, produce and consume: librdkafka's, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from bradbury.tests.compatibility.support.logins import Login

PATIENCE = 60
Record = tuple[str, str]


class PythonClient(Protocol):
    package: str

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        """Raises what the client does when it is not let in, or says so itself."""
        ...

    def consume(self, login: Login, topic: str, count: int) -> list[Record]: ...

    def sending(self, login: Login, topic: str) -> AbstractContextManager[Callable[[], int]]:
        """A producer as a function: it sends a record, and returns Kafka's error code of it."""
        ...


class NotLetIn(Exception):
    """What a client has said in a callback."""


def protocol_of(login: Login) -> str:
    return "SASL_SSL" if login.mechanism else "SSL"


def sasl_settings(login: Login, token: object) -> dict[str, Any]:
    """Of kafka-python and of aiokafka, which has its names from there."""
    if not login.mechanism:
        return {}
    if login.token:
        return {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": token}
    return {
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


class ConfluentKafka:
    package = "confluent-kafka"

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        errors: list[confluent_kafka.KafkaError] = []
        settings = self._settings(login) | {"error_cb": errors.append}
        producer = confluent_kafka.Producer(settings)
        for key, value in records:
            producer.produce(topic, value, key)
        while producer.flush(0.2):
            refused = {confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL}
            for error in errors:
                # With TLS 1.3 the handshake is over before the certificate is looked at.
                if error.code() in refused or "certificate required" in error.str():
                    producer.purge()
                    raise NotLetIn(error.str())

    @contextmanager
    def sending(self, login: Login, topic: str) -> Iterator[Callable[[], int]]:
        producer = confluent_kafka.Producer(self._settings(login))

        def send() -> int:
            codes: list[int] = []
            try:
                producer.produce(
                    topic,
                    b"a record",
                    on_delivery=lambda error, _: codes.append(error.code() if error else 0),
                )
            except confluent_kafka.KafkaException as refused:  # as its metadata says so by now
                return int(refused.args[0].code())
            assert producer.flush(PATIENCE) == 0
            [code] = codes
            return code

        yield send

    def consume(self, login: Login, topic: str, count: int) -> list[Record]:
        group = {"group.id": f"{topic}-group", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(self._settings(login) | group)
        consumer.subscribe([topic])
        found: list[Record] = []
        try:
            while len(found) < count:
                for message in consumer.consume(count, 1):
                    assert message.error() is None, message.error()
                    found.append((message.key().decode(), message.value().decode()))
        finally:
            consumer.close()
        return found

    @staticmethod
    def _settings(login: Login) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": login.servers,
            "security.protocol": protocol_of(login),
            "ssl.ca.location": login.authority,
            "log_level": 0,
        }
        if login.certificate:
            settings["ssl.certificate.location"] = login.certificate
            settings["ssl.key.location"] = login.certificate
        if login.mechanism:
            settings["sasl.mechanism"] = login.mechanism
        if login.token:
            token = Path(login.token).read_text()
            settings["oauth_cb"] = lambda _: (token, 2.0**32)
        elif login.mechanism:
            settings |= {"sasl.username": login.user, "sasl.password": login.password}
        return settings


class KafkaPython:
    package = "kafka-python"

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        producer = kafka.KafkaProducer(**self._settings(login), max_block_ms=PATIENCE * 1_000)
        try:
            sent = [producer.send(topic, value.encode(), key.encode()) for key, value in records]
            for one in sent:
                one.get(PATIENCE)
        finally:
            producer.close(timeout=1)

    @contextmanager
    def sending(self, login: Login, topic: str) -> Iterator[Callable[[], int]]:
        producer = kafka.KafkaProducer(**self._settings(login), max_block_ms=PATIENCE * 1_000)

        def send() -> int:
            try:
                producer.send(topic, b"a record").get(PATIENCE)
            except kafka.errors.BrokerResponseError as error:
                return int(error.errno)
            return 0

        try:
            yield send
        finally:
            producer.close(timeout=1)

    def consume(self, login: Login, topic: str, count: int) -> list[Record]:
        group = {"group_id": f"{topic}-group", "auto_offset_reset": "earliest"}
        consumer = kafka.KafkaConsumer(topic, **self._settings(login), **group)
        found: list[Record] = []
        try:
            while len(found) < count:
                for messages in consumer.poll(timeout_ms=1_000).values():
                    found += [(each.key.decode(), each.value.decode()) for each in messages]
        finally:
            consumer.close()
        return found

    @staticmethod
    def _settings(login: Login) -> dict[str, Any]:
        class Token(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return Path(login.token).read_text()

        settings: dict[str, Any] = {
            "bootstrap_servers": login.servers.split(","),
            "security_protocol": protocol_of(login),
            "ssl_cafile": login.authority,
            "bootstrap_timeout_ms": 5_000,
        }
        if login.certificate:
            settings |= {"ssl_certfile": login.certificate, "ssl_keyfile": login.certificate}
        return settings | sasl_settings(login, Token())


class Aiokafka:
    package = "aiokafka"

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        async def scene() -> None:
            async with aiokafka.AIOKafkaProducer(**self._settings(login)) as producer:
                for key, value in records:
                    await producer.send(topic, value.encode(), key.encode())
                await producer.flush()

        asyncio.run(asyncio.wait_for(scene(), PATIENCE))

    @contextmanager
    def sending(self, login: Login, topic: str) -> Iterator[Callable[[], int]]:
        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(**self._settings(login))
            await producer.start()
            return producer

        async def send() -> int:
            try:
                await asyncio.wait_for(producer.send_and_wait(topic, b"a record"), PATIENCE)
            except aiokafka.errors.BrokerResponseError as error:
                return int(error.errno)
            return 0

        with asyncio.Runner() as runner:
            producer = runner.run(start())
            try:
                yield lambda: runner.run(send())
            finally:
                runner.run(producer.stop())

    def consume(self, login: Login, topic: str, count: int) -> list[Record]:
        async def scene() -> list[Record]:
            group = {"group_id": f"{topic}-group", "auto_offset_reset": "earliest"}
            found: list[Record] = []
            async with aiokafka.AIOKafkaConsumer(
                topic, **self._settings(login), **group
            ) as consumer:
                while len(found) < count:
                    for messages in (await consumer.getmany(timeout_ms=1_000)).values():
                        found += [(each.key.decode(), each.value.decode()) for each in messages]
            return found

        return asyncio.run(asyncio.wait_for(scene(), PATIENCE))

    @staticmethod
    def _settings(login: Login) -> dict[str, Any]:
        token = Path(login.token).read_text() if login.token else ""

        class Token(AsyncTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return token

        context = ssl.create_default_context(cafile=login.authority)
        if login.certificate:
            context.load_cert_chain(login.certificate)
        settings: dict[str, Any] = {
            "bootstrap_servers": login.servers,
            "security_protocol": protocol_of(login),
            "ssl_context": context,
        }
        return settings | sasl_settings(login, Token())
