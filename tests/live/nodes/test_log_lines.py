"""What does the log of a cluster say of groups and of the controller, at INFO, in Kafka's words?"""

import logging
import re
from pathlib import Path

import pytest

import bradbury

GROUP = "billing"
TOPIC = "invoices"


def said(caplog: pytest.LogCaptureFixture, pattern: str) -> str:
    """The first line that matches. Fails with all lines if there is none."""
    for record in caplog.records:
        if record.levelno >= logging.INFO and re.search(pattern, record.getMessage()):
            return record.getMessage()
    raise AssertionError(f"{pattern!r} is in none of:\n{caplog.text}")


def consumer(bootstrap: str, instance: str | None = None) -> bradbury.Consumer:
    return bradbury.Consumer(
        TOPIC,
        bootstrap=bootstrap,
        group=GROUP,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def read_one(member: bradbury.Consumer) -> None:
    while not member.poll(1000).num_rows:
        pass


@pytest.fixture
def cluster_dir(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """The directory of a cluster that is down, with one record."""
    caplog.set_level(logging.INFO, "bradbury")
    with bradbury.local(data_dir=str(tmp_path / "data")) as cluster:
        with cluster.admin() as admin:
            admin.create_topic(TOPIC)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"one").result(60)
    return str(tmp_path / "data")


def test_the_controller_says_that_it_becomes_active_and_that_it_resigns(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    with bradbury.local(data_dir=cluster_dir):
        pass
    line = said(caplog, "^Becoming the active controller of cluster")
    assert re.search(r"at epoch 1, next write offset \d+, 1 topics\.$", line)
    said(caplog, r"^Resigned as the active controller at epoch 1: it is shut down\.$")


def test_each_step_of_a_rebalance_is_logged_with_its_reason(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bradbury.local(data_dir=cluster_dir) as cluster:
        caplog.clear()
        with consumer(cluster.bootstrap_servers) as member:
            read_one(member)
            member.commit()
        said(
            caplog,
            rf"^Dynamic member with unknown member id joins group {GROUP} in Empty state\. "
            r"Created a new member id \S+ and requesting the member to rejoin with this id\.$",
        )
        said(
            caplog,
            rf"^Preparing to rebalance group {GROUP} in state Empty with old generation 0 "
            r"\(reason: Adding new member \S+ with group instance id None; client reason: .+\)\.$",
        )
        said(caplog, rf"^Stabilized group {GROUP} generation 1 with 1 members: range by \S+\.$")
        said(
            caplog,
            rf"^Assignment received from leader \S+ for group {GROUP} for generation 1\. "
            r"The group has 1 members, 0 of which are static\.$",
        )
        said(
            caplog,
            rf"^\[Group {GROUP}\] Member \S+ has left group through explicit `LeaveGroup` "
            r"request; client reason: .+$",
        )
        said(
            caplog,
            rf"^Preparing to rebalance group {GROUP} in state Stable with old generation 1 "
            r"\(reason: explicit `LeaveGroup` request for \(\S+\) members\.\)\.$",
        )
        said(caplog, rf"^Group {GROUP} with generation 2 is now empty\.$")


def test_a_static_member_that_comes_back_is_logged_with_its_former_member_id(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bradbury.local(data_dir=cluster_dir) as cluster:
        with consumer(cluster.bootstrap_servers, "ledger-1") as member:
            read_one(member)
        caplog.clear()
        with consumer(cluster.bootstrap_servers, "ledger-1") as member:
            read_one(member)
        said(
            caplog,
            rf"^Static member with groupInstanceId=ledger-1 and unknown member id joins group "
            rf"{GROUP} in Stable state\. Replacing previously mapped member ledger-1-\S+ with this "
            r"groupInstanceId; its member id is ledger-1-\S+\.$",
        )
        said(
            caplog,
            rf"^Static member \S+ which joins group {GROUP} during Stable stage and doesn't "
            r"affect the selected protocol will not trigger a rebalance\.$",
        )
        assert "Preparing to rebalance" not in caplog.text


def test_a_member_that_is_gone_is_logged_when_its_session_ends(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bradbury.local(
        data_dir=cluster_dir, config={"group.min.session.timeout.ms": "100"}
    ) as cluster:
        member = bradbury.Consumer(
            TOPIC,
            bootstrap=cluster.bootstrap_servers,
            group=GROUP,
            group_instance_id="ledger-1",  # which does not leave when it is closed
            auto_offset_reset="earliest",
            session_timeout_ms=300,
            heartbeat_interval_ms=100,
        )
        with member:
            read_one(member)
        with cluster.admin() as admin:
            while admin.describe_groups([GROUP])[0].members:
                pass
        said(caplog, rf"^Member \S+ in group {GROUP} has failed, removing it from the group\.$")
        said(caplog, r"\(reason: removing member \S+ on heartbeat expiration\.\)\.$")


def test_a_coordinator_logs_what_it_has_loaded(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        bradbury.local(data_dir=cluster_dir) as cluster,
        consumer(cluster.bootstrap_servers) as member,
    ):
        read_one(member)
        member.commit()
    caplog.clear()
    with bradbury.local(data_dir=cluster_dir) as cluster, cluster.admin() as admin:
        assert len(admin.group_offsets(GROUP)) == 1
    line = said(caplog, "^Finished loading offsets and group metadata from __consumer_offsets-")
    assert re.search(r"-\d+ in \d+ milliseconds for epoch \d+: 1 groups, 1 offsets\.$", line)
    said(caplog, r"^Finished unloading offsets and group metadata for __consumer_offsets-\d+ with")
    # A partition that never had a record is no news.
    assert caplog.text.count("Finished loading") == 1


def test_line_ends_of_a_client_do_not_reach_the_log(
    cluster_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bradbury.local(data_dir=cluster_dir) as cluster:
        caplog.clear()
        with bradbury.Consumer(
            TOPIC,
            bootstrap=cluster.bootstrap_servers,
            group="a\nINFO forged line",
            auto_offset_reset="earliest",
        ) as member:
            read_one(member)
        assert r"group a\nINFO forged line in state Empty" in said(caplog, "^Preparing to rebal")
