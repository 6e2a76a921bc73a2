"""Which settings does `rebalance --throttle` make, and does it leave any behind?"""

from pathlib import Path

import bradbury
from bradbury.cli.cluster.copy_throttle import RATES, RECEIVERS, SENDERS, CopyThrottle
from bradbury.cluster.control.rebalance import PartitionMove


def test_senders_and_receivers_of_the_moves_are_listed_and_forgotten_again(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path)) as cluster, cluster.admin() as admin:
        admin.create_topic("a", 2)
        admin.create_topic("b")
        admin.create_topic("still")

        def lists(topic: str) -> tuple[str | None, str | None]:
            entries = admin.describe_configs(topic)
            return entries[SENDERS].value, entries[RECEIVERS].value

        def rates() -> set[str | None]:
            entries = admin.describe_configs(broker=1)
            return {entries[name].value for name in RATES}

        unlimited = rates()
        throttle = CopyThrottle(admin, 1_000_000)
        throttle.cover(
            [PartitionMove("a", 0, (1, 2), (2, 3)), PartitionMove("a", 1, (1,), (1, 2, 3))]
        )
        throttle.cover([PartitionMove("b", 0, (1,), (2,))])
        assert rates() == {"1000000"}
        assert lists("a") == ("0:1,0:2,1:1", "0:3,1:2,1:3")
        assert lists("b") == ("0:1", "0:2")
        assert lists("still") == ("", "")
        CopyThrottle(admin, 5).lift()  # of a command that was interrupted
        assert lists("a") == lists("b") == ("", "")
        assert rates() == unlimited
