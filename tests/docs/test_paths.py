"""Does everything that the pages name exist: files, links, and the functions said to be in a file?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.*{},-]*)+|(?<![\w.-])[\w*-]+\.py(?!\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACED = re.compile(r"`([\w/]+\.py)` \(`(\w+)`\)")


@cache
def _tree() -> frozenset[str]:
    skipped = (".venv", ".path", ".git", ".cache", "build", "wheels", ".mypy_cache", ".ruff_cache")
    found = {"bradbury"}
    for path in ROOT.iterdir():
        if path.name in skipped:
            continue
        found.add(path.name)
        if path.is_dir():
            found.update(str(one.relative_to(ROOT)) for one in path.rglob("*"))
    return frozenset(found)


def _quoted_paths(text: str) -> Iterator[str]:
    """Paths of the checkout, by their first folder, and names of Python files."""
    folders = {name.split("/")[0] for name in _tree() if "/" in name}
    for quoted in QUOTED.findall(FENCED.sub("", text)):
        for path in PATH.findall(quoted):
            if path.split("/")[0] in folders or path.endswith(".py"):
                yield path.rstrip(".,")


def _exists(path: str) -> bool:
    if "/" not in path:  # a file of the folder that the sentence speaks of
        return any(name.split("/")[-1] == path for name in _tree())
    head, brace, rest = path.partition("{")
    if brace:
        choices, _, tail = rest.partition("}")
        return all(_exists(head + choice + tail) for choice in choices.split(","))
    if "*" in path:
        return any(ROOT.glob(path))
    return path.rstrip("/") in _tree()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    missing = [path for path in _quoted_paths(page.read_text()) if not _exists(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    dead = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(link)
    assert dead == []


def test_functions_are_in_the_files_that_the_architecture_names_for_them() -> None:
    places = PLACED.findall((ROOT / "docs" / "architecture.md").read_text())
    assert places
    wrong = [
        f"{path}: {name}"
        for path, name in places
        if not re.search(
            rf"^\s*(?:async )?(?:def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE
        )
    ]
    assert wrong == []


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    }
