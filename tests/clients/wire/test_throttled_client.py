"""Does a client of ours leave a broker alone for as long as its answer says (KIP-219)?"""

import time

import pytest

import bradbury
from bradbury.clients.quotas.quotas_admin import (
    CLIENT_ID,
    USER,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from bradbury.protocol.errors import InvalidRequest

TWO_SLICES = {"quota.window.num": "2", "controller.quota.window.num": "2"}


@pytest.fixture(scope="module")
def servers():
    with bradbury.local(config=TWO_SLICES) as cluster:
        yield cluster.bootstrap_servers


def test_quotas_are_set_described_and_removed(servers: str) -> None:
    pair = ClientQuotaEntity(user="alice", client_id="")
    with bradbury.Admin(servers) as admin:
        admin.alter_client_quotas(
            {
                pair: {"producer_byte_rate": 1024, "request_percentage": 12.5},
                ClientQuotaEntity(ip=""): {"connection_creation_rate": 1000},
            }
        )
        default = ClientQuotaFilterComponent.of_default_entity(CLIENT_ID)
        assert admin.describe_client_quotas(ClientQuotaFilter((default,))) == {
            pair: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
        }
        named = ClientQuotaFilterComponent.of_entity_type(USER)
        assert set(admin.describe_client_quotas(ClientQuotaFilter((named,)))) == {pair}
        only_users = ClientQuotaFilter((named,), strict=True)
        assert admin.describe_client_quotas(only_users) == {}, "the pair has a client id, too"
        assert len(admin.describe_client_quotas()) == 2
        admin.alter_client_quotas({pair: {"request_percentage": None}}, validate_only=True)
        assert len(admin.describe_client_quotas()[pair]) == 2
        admin.alter_client_quotas({pair: dict.fromkeys(admin.describe_client_quotas()[pair])})
        assert pair not in admin.describe_client_quotas()
        with pytest.raises(InvalidRequest, match="Invalid configuration key x"):
            admin.alter_client_quotas({pair: {"x": 1.0}})


@pytest.mark.long  # seconds of throttling
def test_a_producer_and_a_consumer_wait_and_lose_nothing(servers: str) -> None:
    limited = ClientQuotaEntity(client_id="slow")
    value = b"x" * 1_500
    with bradbury.Admin(servers) as admin:
        admin.create_topic("slow", 1)
        admin.alter_client_quotas(
            {limited: {"producer_byte_rate": 3_000, "consumer_byte_rate": 3_000}}
        )
        began = time.monotonic()
        with bradbury.Producer(
            servers, client_id="slow", linger_ms=0, batch_size=1_600
        ) as producer:
            for _ in range(8):
                producer.send("slow", value).result(60)
            figures = producer.metrics()["producer-metrics"]
        assert time.monotonic() - began >= 1.0, "12,000 bytes at 3,000 a second, a second's free"
        assert figures["produce-throttle-time-max"] > 0
        with bradbury.Consumer(
            "slow",
            bootstrap=servers,
            client_id="slow",
            fetch_max_bytes=1_600,
            auto_offset_reset="earliest",
        ) as consumer:
            found = 0
            while found < 8:
                found += len(consumer.poll(1_000))
            figures = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert figures["fetch-throttle-time-max"] > 0
