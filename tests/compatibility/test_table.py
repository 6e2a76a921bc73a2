"""docs/compatibility.md claims what was run, and nothing else. Runs last: it compares with this run."""

import pytest

from bradbury.tests.compatibility.support.compatibility import (
    DOCUMENT,
    Claim,
    Recorder,
    claims,
    render,
)


def test_the_document_claims_nothing_that_was_not_run(
    recorder: Recorder, request: pytest.FixtureRequest
) -> None:
    left_out = "not deep" in request.config.option.markexpr
    found = claims(DOCUMENT.read_text())
    assert found, "the document has no table"
    records = recorder.records()
    compared = 0
    for (name, version), calls in found.items():
        ran = records.get(name)
        if ran is None or ran["version"] != version:
            continue  # that tool, or that version of it, is not installed here
        for call, claim in calls.items():
            if claim.deep and left_out and call not in ran["calls"]:
                continue
            assert call in ran["calls"], f"{name}: nothing ran {call}; run `make compatibility`"
            assert ran["calls"][call]["outcome"] == claim.outcome, f"{name}: {call}"
            compared += 1
    if not compared:
        pytest.skip("none of the tools has been run here yet")


def test_a_tool_that_has_run_nothing_is_none_that_is_here() -> None:
    recorder = Recorder({"without it before": {"version": "1", "calls": {}}})
    recorder.tool("without its compiler", "2")
    with recorder.tool("here", "3").call("one"):
        pass
    assert list(recorder.records()) == ["here"]


def test_what_is_rendered_is_what_is_claimed() -> None:
    records = {
        "a tool": {
            "version": "1.0 (x)",
            "calls": {
                "one (a=b)": {"outcome": "works", "note": "", "deep": False},
                "two": {"outcome": "refused", "note": "no | yet", "deep": True},
                "four": {"outcome": "works", "note": "", "deep": True},
                "three": {"outcome": "fails", "note": "KeyError", "deep": False},
            },
        }
    }
    assert claims(render(records)) == {
        ("a tool", "1.0 (x)"): {
            "one (a=b)": Claim("works", deep=False),
            "two": Claim("refused", deep=True),
            "three": Claim("fails", deep=False),
            "four": Claim("works", deep=True),
        }
    }
