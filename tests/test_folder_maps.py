"""The maps of the folders, and what pages of code say of one another: what they name exists."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
WITHOUT_MAP = {"protocol/messages"}
"""Generated: one module for each API."""
LINE_OF_A_MAP = re.compile(r"^((?:\w+/?, )*\w+/?) {2,}\S", re.MULTILINE)
"""The names of modules and `folders/`, and in a column of its own what they are for."""
REFERENCE = re.compile(r"(?<![\w./<$-])[a-z]\w*(?:[./]\w+)+")
NO_MODULES = {
    "cluster.bootstrap_servers": "of a variable in an example",
    "cluster.id": "a line of Kafka's meta.properties",
    "controller.quota.window.num": "Kafka's setting",
    "replication.quota.window.num": "Kafka's setting",
    "steps.py": "a file of the user's, next to FLOW.yaml",
    "metadata/src/main/resources/common/metadata": "in Kafka's repository",
    "ray/data/_internal/datasource/kafka_datasource.py": "in Ray's",
    "ray/data/_internal/planner/plan_read_op.py": "in Ray's",
}
"""Written like references to modules, and none."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def modules() -> dict[Path, str]:
    """Every file of the source folders, and what is in it."""
    tops = sorted(path.parent for path in ROOT.glob("*/__init__.py"))
    return {
        path: path.read_text()
        for top in tops
        if top.name != "tests"
        for path in sorted(top.rglob("*.py"))
    }


@cache
def folders() -> dict[str, list[Path]]:
    """By their own names."""
    found: dict[str, list[Path]] = {}
    for path in dict.fromkeys(module.parent for module in modules()):
        found.setdefault(path.name, []).append(path)
    return found


def test_the_map_of_a_folder_names_all_that_is_in_it_and_nothing_else() -> None:
    wrong = {}
    for folder in (each for named in folders().values() for each in named):
        head = ast.get_docstring(ast.parse(modules()[folder / "__init__.py"])) or ""
        mapped = [each for names in LINE_OF_A_MAP.findall(head) for each in names.split(", ")]
        inside = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        inside += [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
        if sorted(mapped) != sorted(inside) and name(folder) not in WITHOUT_MAP:
            missing, unknown = set(inside) - set(mapped), set(mapped) - set(inside)
            wrong[name(folder)] = f"missing {sorted(missing)}, unknown {sorted(unknown)}"
    assert wrong == {}


def exists(reference: str) -> bool:
    """folder/module from any folder on, folder.module from a top-level one; then names in it."""
    first, *rest = re.split(r"[./]", reference.removesuffix(".py"))
    return rest != [] and any(is_in(folder, rest) for folder in folders()[first])


def is_in(folder: Path, names: list[str]) -> bool:
    if not names:
        return True
    first, *rest = names
    if (text := modules().get(folder / f"{first}.py")) is not None:
        return all(re.search(rf"\b{each}\b", text) for each in rest)
    return folder / first in folders().get(first, ()) and is_in(folder / first, rest)


def is_of_the_source(reference: str) -> bool:
    first = re.split(r"[./]", reference)[0]
    if "/" in reference and reference[len(first)] == "/":
        return first in folders()
    return ROOT / first in folders().get(first, ())


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of docstrings and comments, by number."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if is_docstring or token.type == tokenize.COMMENT:
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_what_docstrings_and_comments_refer_to_exists() -> None:
    wrong = []
    for path, text in modules().items():
        suspects = {
            each
            for each in set(REFERENCE.findall(text)) - set(NO_MODULES)
            if is_of_the_source(each) and not exists(each)
        }
        # To look for them in the code is quick; to tell code from prose is not.
        for number, line in prose(text) if suspects else ():
            found = suspects & set(REFERENCE.findall(line))
            wrong += [f"{name(path)}:{number}: {each}" for each in sorted(found)]
    assert wrong == []
