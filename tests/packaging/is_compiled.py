"""Whether the installed package is the compiled one, and serves: run with a wheel's Python alone."""

import bradbury
from bradbury.storage.log import partition_log


def main() -> None:
    assert not partition_log.__file__.endswith(".py"), partition_log.__file__
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            admin.create_topic("compiled", 1)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            assert producer.send("compiled", b"here").result(30).offset == 0


if __name__ == "__main__":
    main()
