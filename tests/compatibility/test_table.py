"""docs/compatibility.md claims what was run, and nothing else. Runs last: it compares with this run."""

import pytest

from bradbury.tests.support.compatibility import DOCUMENT, Recorder, claims, render


def test_the_document_claims_nothing_that_was_not_run(recorder: Recorder) -> None:
    found = claims(DOCUMENT.read_text())
    assert found, "the document has no table"
    records = recorder.records()
    compared = 0
    for (name, version), calls in found.items():
        ran = records.get(name)
        if ran is None or ran["version"] != version:
            continue  # that tool, or that version of it, is not installed here
        for call, outcome in calls.items():
            assert call in ran["calls"], f"{name}: nothing ran {call}; run `make compatibility`"
            assert ran["calls"][call]["outcome"] == outcome, f"{name}: {call}"
            compared += 1
    if not compared:
        pytest.skip("none of the tools has been run here yet")


def test_what_is_rendered_is_what_is_claimed() -> None:
    records = {
        "a tool": {
            "version": "1.0 (x)",
            "calls": {
                "one (a=b)": {"outcome": "works", "note": ""},
                "two": {"outcome": "refused", "note": "no | yet"},
                "three": {"outcome": "fails", "note": "KeyError"},
            },
        }
    }
    assert claims(render(records)) == {
        ("a tool", "1.0 (x)"): {"one (a=b)": "works", "two": "refused", "three": "fails"}
    }
