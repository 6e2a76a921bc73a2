"""The fixtures as somebody else's tests see them: in a pytest run of its own."""

import subprocess
import sys
from pathlib import Path

import bradbury
from bradbury.tests.docs.page_runner import blocks

ROOT = Path(bradbury.__file__).resolve().parent

TESTS = """
import sys


def test_pytest_started_without_anything_heavy():
    assert not {"ray", "pyarrow", "numba", "uvloop"} & set(sys.modules)


def test_records_arrive(bradbury_cluster, bradbury_topic):
    import bradbury

    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic)
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


def run_pytest(file: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=file.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_cluster_per_run_and_a_topic_per_test(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    assert "4 passed" in run_pytest(tmp_path / "test_theirs.py", environment)


def test_what_the_document_shows_passes(tmp_path: Path, environment: dict[str, str]) -> None:
    page = ROOT / "docs" / "testing-with-bradbury.md"
    (tmp_path / "test_shown.py").write_text("\n\n".join(block.source for block in blocks(page)))
    assert "2 passed" in run_pytest(tmp_path / "test_shown.py", environment)
