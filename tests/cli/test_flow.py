"""`bradbury flow run`: what is said of files that are no flows."""

from pathlib import Path

import pytest

from bradbury.cli.flows.flow_command import _Lines
from bradbury.pipelines.flows.flow_progress import FlowProgress
from bradbury.tests.support.command_line import Command


def test_a_file_that_is_no_flow_is_a_usage_error(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text("{name: n, sources: {a: {topic: t}}, targets: {b: {topic: u, of: c}}}")
    assert "there is no source or step 'c'" in command("flow", "run", str(path)).usage
    path.write_text("{name: n, sources: {a: {topic: t, value: jsn}}, targets: {b: {topic: u}}}")
    assert f"{path}: sources.a.value is 'jsn'" in command("flow", "run", str(path)).usage
    (tmp_path / "a.txt").touch()
    assert "neither .yaml nor .py" in command("flow", "run", str(tmp_path / "a.txt")).usage
    missing = command("flow", "run", str(tmp_path / "none.yaml"))
    assert missing.usage.endswith("none.yaml: there is no such file")
    assert "FLOW" in command("flow", "run").usage


def test_a_line_of_progress_has_records_rate_and_lag(capsys: pytest.CaptureFixture[str]) -> None:
    _Lines()([FlowProgress("late", 1_200, 2, 40, 99.6), FlowProgress("sums", None, 0, None, 0.0)])
    assert capsys.readouterr().err.splitlines() == [
        "late: 1,200 records read so far, 100 records/s, 40 records behind",
        "sums: not written yet",
    ]
