"""The fixtures as somebody else's tests see them: in a pytest run of its own."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import sys


def test_pytest_started_without_anything_heavy():
    assert not {"ray", "pyarrow", "numba", "uvloop"} & set(sys.modules)


def test_records_arrive(bradbury_cluster, bradbury_topic):
    import bradbury

    with bradbury.Producer(bradbury_cluster.bootstrap_servers) as producer:
        producer.send(bradbury_topic, b"an order").result(30)
    with bradbury_cluster.admin() as admin:
        assert admin.list_topics() == [bradbury_topic]


def test_the_next_test_has_the_same_cluster_and_another_topic(bradbury_cluster, bradbury_topic):
    with bradbury_cluster.admin() as admin:
        (before,) = admin.list_topics()
    assert before.startswith("test_records_arrive")
    assert bradbury_topic != before


def test_any_name_of_a_test_makes_a_topic_name(bradbury_topic):
    assert bradbury_topic.replace("-", "").replace("_", "").isalnum()
"""


def test_a_cluster_per_run_and_a_topic_per_test(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
