"""Which topics does a mirror copy; and does it say so where it does not copy one that is named?"""

import re
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.pipelines.mirrors.mirrored_topics import EXCLUDE

USERS = ["heartbeats", "orders", "orders.internal", "prices-internal"]
OTHERS = ["mm2-configs.west.internal", "node.replica", "west.checkpoints.internal"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with bradbury.local() as running:
        with running.admin() as admin, bradbury.Producer(running.bootstrap_servers) as producer:
            for topic in (*USERS, *OTHERS):
                admin.create_topic(topic, 1)
                producer.send(topic, b"x")
        yield running.bootstrap_servers


def copied(target: str, alias: str) -> list[str]:
    with bradbury.Admin(target) as admin:
        topics = admin.list_topics()
    return sorted(one.removeprefix(f"{alias}.") for one in topics if one.startswith(f"{alias}."))


def test_what_users_call_internal_is_copied_as_mirror_maker_does(
    servers: str, bootstrap: str, alias: str
) -> None:
    # DefaultTopicFilter.TOPICS_EXCLUDE_DEFAULT of Kafka 4.1.1
    assert ", ".join(EXCLUDE) == r"mm2.*\.internal, .*\.replica, __.*"
    done = bradbury.mirror(".*", servers, alias=alias, bootstrap_servers=bootstrap)
    assert (done.topics, done.records) == (4, 4)
    assert copied(bootstrap, alias) == USERS


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("node.replica", r"'node.replica' is left out by default (.*\.replica), as in MirrorMaker"),
        ("mm2-configs.west.internal", r"is left out by default (mm2.*\.internal)"),
        (
            "west.checkpoints.internal",
            r"topic 'west.checkpoints.internal' is internal (.*\.checkpoints\.internal) and never",
        ),
    ],
)
@pytest.mark.parametrize("continuous", [False, True])
def test_one_that_is_named_and_not_copied_is_told_of(
    servers: str, bootstrap: str, alias: str, topic: str, said: str, continuous: bool
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        bradbury.mirror(
            ["orders", topic],
            servers,
            alias=alias,
            bootstrap_servers=bootstrap,
            continuous=continuous,
        )
    assert copied(bootstrap, alias) == [], "nothing has begun"


def test_who_says_what_to_leave_out_gets_the_others(
    servers: str, bootstrap: str, alias: str
) -> None:
    done = bradbury.mirror(
        ["orders", "heartbeats", "node.replica"],
        servers,
        alias=alias,
        bootstrap_servers=bootstrap,
        exclude="orders",  # named and left out by the same person: no error
    )
    assert done.topics == 2
    assert copied(bootstrap, alias) == ["heartbeats", "node.replica"]


def test_a_migration_refuses_what_stays_in_its_cluster(servers: str, bootstrap: str) -> None:
    with pytest.raises(ValueError, match="'west.checkpoints.internal' is internal"):
        bradbury.Migration(
            servers, bootstrap_servers=bootstrap, topics="orders,west.checkpoints.internal"
        )
