"""Does MirrorMaker 2's RemoteClusterUtils find in our checkpoints where a group goes on?"""

from pathlib import Path
from typing import Literal

import pytest

import bradbury
from bradbury.tests.compatibility.support.kafka_jars import CONNECT, require, run_java
from tests.pipelines.mirrors.mirror_scene import send

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM = Path(__file__).resolve().parents[2] / "compatibility" / "TranslatedOffsets.java"
POLICIES = {
    "prefix": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "identity": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}


def translated(
    bootstrap: str, alias: str, group: str, policy: Literal["prefix", "identity"]
) -> dict[tuple[str, int], int]:
    settings = [f"bootstrap.servers={bootstrap}", f"replication.policy.class={POLICIES[policy]}"]
    said = run_java(str(PROGRAM), alias, group, *settings, jars=CONNECT).stdout
    lines = [line.split() for line in said.splitlines()]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}


@pytest.mark.long  # Java machines
@pytest.mark.parametrize("policy", ["prefix", "identity"])
def test_mirror_makers_library_translates_offsets_by_our_checkpoints(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    policy: Literal["prefix", "identity"],
) -> None:
    require(CONNECT)
    copied = topic if policy == "identity" else f"{alias}.{topic}"

    def mirror(*committed: int) -> None:
        with source.admin() as admin:
            for partition, offset in enumerate(committed):
                admin.alter_group_offsets(f"g-{alias}", {(topic, partition): offset})
            admin.alter_group_offsets(f"other-{alias}", {(topic, 0): 1})
        bradbury.mirror(
            topic,
            source.bootstrap_servers,
            alias=alias,
            policy=policy,
            bootstrap_servers=bootstrap,
            groups=f".*{alias}",
        )

    send(source.bootstrap_servers, topic, range(30))
    mirror(3, 10)
    found = translated(bootstrap, alias, f"g-{alias}", policy)
    assert found == {(copied, 0): 3, (copied, 1): 10}
    send(source.bootstrap_servers, topic, range(30, 60))
    mirror(15, 20, 0)  # the newest checkpoint of each partition counts
    found = translated(bootstrap, alias, f"g-{alias}", policy)
    # Behind the tenth record is the end of its transaction, which takes an offset.
    assert found == {(copied, 0): 16, (copied, 1): 21, (copied, 2): 0}
    with bradbury.Admin(bootstrap) as admin:
        here = {tuple(key): one.offset for key, one in admin.group_offsets(f"g-{alias}").items()}
    assert here == found
    assert translated(bootstrap, alias, f"other-{alias}", policy) == {(copied, 0): 1}
    assert translated(bootstrap, alias, f"absent-{alias}", policy) == {}
