"""`bradbury flow run`: what is said of files that are no flows."""

from pathlib import Path

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
