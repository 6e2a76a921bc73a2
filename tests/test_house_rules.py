"""The house rules a linter cannot be told. Each failure names the file and the line."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
PURE = (
    "protocol",
    "storage",
    "coordinators",
    "groups",
    "transactions",
    "cluster",
    "steps",
    "replication",
    "controller",
)
SOURCE = (*PURE, "handlers", "actors", "discovery", "launch", "clients", "pipelines", "cli")
OUTSIDE_WORLD = {"asyncio", "ray", "random", "secrets", "select", "socket", "threading", "time"}
MAX_LINES = 600
MAX_PUBLIC_METHODS = 15
"""Of a class; properties are methods, too."""
MAX_CONSTRUCTOR_ARGUMENTS = 12
MAX_ATTRIBUTES = 25
"""That the constructor of a class sets."""
MAX_METHODS = 30
"""Of a class, of any kind."""
LARGER = {
    "Admin": (25, 36),
    "AsyncConsumer": (25, 41),
    "Consumer": (25, 35),
    "ConsumerProcess": (25, 32),
}
"""Attributes and methods that these have at most, and may only lose: what they do is given from outside."""
GIVEN_FROM_OUTSIDE = {"Admin", "AsyncConsumer", "Consumer", "ConsumerProcess", "Queue"}
"""What Kafka's clients of these names, and Ray's queue, can do is what ours can."""
SETTINGS_AS_ARGUMENTS = {"Consumer", "ConsumerGroup", "Producer", "TopicDataset"}
"""Made by applications, which name the settings that they change."""
# Dev tools that live beside what they make; nothing imports them.
TOOLS = {"protocol/message_generator.py"}


# Names are Kafka's: generated from its schemas, or the interfaces of its 0.7.
NAMED_BY_KAFKA = ("protocol/messages/", "clients/classic/")
# What handlers and steps ask for, as protocols; actors/ has what is asked.
PORTS = {
    "handlers/ports/context.py",
    "handlers/ports/group_port.py",
    "handlers/ports/transaction_port.py",
    "replication/logs/directory_lifecycle.py",
}


@cache
def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def test_pure_folders_take_time_ids_and_randomness_as_arguments() -> None:
    leaks = [
        f"{path}:{line}: {module}"
        for path in modules(*PURE)
        if name(path) not in TOOLS
        for line, module in imported(path)
        if module in OUTSIDE_WORLD
    ]
    assert leaks == []


def test_pure_folders_never_wait() -> None:
    waiting = [
        f"{path}:{node.lineno}: {node.name}"
        for path in modules(*PURE)
        for node in nodes(path)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert waiting == []


def test_a_file_is_read_in_one_sitting() -> None:
    lines = {
        name(path): len(path.read_text().splitlines())
        for path in modules(*SOURCE, "tests", "examples", "benchmarks")
    }
    assert {each: count for each, count in lines.items() if count > MAX_LINES} == {}


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in nodes(path) if isinstance(node, ast.ClassDef)]


def public_methods(one: ast.ClassDef) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name
        for node in one.body
        if isinstance(node, functions) and not node.name.startswith("_")
    }


def test_a_class_has_one_meaning() -> None:
    too_many = [
        f"{path}:{one.lineno}: {one.name} {len(methods)} {sorted(methods)}"
        for path in modules(*SOURCE)
        for one in classes(path)
        if len(methods := public_methods(one)) > MAX_PUBLIC_METHODS
        and one.name not in GIVEN_FROM_OUTSIDE
    ]
    assert too_many == []


def test_a_class_is_made_of_few_parts() -> None:
    too_many = [
        f"{path}:{node.lineno}: {one.name} {count}"
        for path in modules(*SOURCE)
        for one in classes(path)
        if one.name not in SETTINGS_AS_ARGUMENTS
        for node in one.body
        if isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and (count := len(node.args.args) + len(node.args.kwonlyargs) - 1)
        > MAX_CONSTRUCTOR_ARGUMENTS
    ]
    assert too_many == []


def attributes(one: ast.ClassDef) -> set[str]:
    """Those of `self` that the constructor sets."""
    return {
        node.attr
        for constructor in one.body
        if isinstance(constructor, ast.FunctionDef) and constructor.name == "__init__"
        for node in ast.walk(constructor)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def methods(one: ast.ClassDef) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in one.body if isinstance(node, functions)}


def sizes() -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Where each class is, its name, and how many attributes and methods it has."""
    for path in modules(*SOURCE):
        for one in classes(path):
            yield f"{path}:{one.lineno}", one.name, (len(attributes(one)), len(methods(one)))


def test_a_class_can_be_known_whole() -> None:
    too_many = []
    for place, each, size in sizes():
        most = LARGER.get(each, (MAX_ATTRIBUTES, MAX_METHODS))
        if size[0] > most[0] or size[1] > most[1]:
            too_many.append(f"{place}: {each} has {size} attributes and methods, at most {most}")
    assert too_many == []


def test_the_list_of_larger_classes_has_no_others() -> None:
    large = {
        each
        for _, each, (attribute_count, method_count) in sizes()
        if attribute_count > MAX_ATTRIBUTES or method_count > MAX_METHODS
    }
    assert set(LARGER) - large == set()


def test_no_class_is_put_together_by_inheritance() -> None:
    """A class that inherits from two of ours is one that was split into files; parts are composed."""
    ours = {one.name for path in modules(*SOURCE) for one in classes(path)}
    split = [
        f"{path}:{one.lineno}: {one.name}({', '.join(bases)})"
        for path in modules(*SOURCE)
        for one in classes(path)
        if len(bases := [ast.unparse(base) for base in one.bases if ast.unparse(base) in ours]) > 1
    ]
    assert split == []


def test_imports_inside_the_package_are_relative() -> None:
    """But for a top-level package of its own in the wheel."""
    absolute = [
        f"{path}:{line}"
        for path in modules(*SOURCE)
        if path.parent.name != "pyspark_bradbury"
        for line, module in imported(path)
        if module == "bradbury"
    ]
    assert absolute == []


def _twins(names: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Those that stand in two files."""
    found: dict[str, list[str]] = {}
    for each, path in names:
        found.setdefault(each, []).append(name(path))
    return {each: paths for each, paths in found.items() if len(paths) > 1}


def test_no_two_modules_have_one_name() -> None:
    """But for the two sides of one API: its messages and its handler."""
    apis = {path.stem for path in modules("protocol/messages")}
    named = [
        (path.stem, path)
        for path in modules(*SOURCE)
        if path.stem != "__init__"
        and not name(path).startswith(NAMED_BY_KAFKA)
        and not (name(path).startswith("handlers/") and path.stem in apis)
    ]
    assert _twins(named) == {}


def test_no_two_classes_have_one_name() -> None:
    """But for a port, and what implements it one floor above. What begins with _ is its module's."""
    named = [
        (node.name, path)
        for path in modules(*SOURCE)
        if not name(path).startswith(NAMED_BY_KAFKA)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    ports = {each for each, path in named if name(path) in PORTS}
    without_ports = [
        (each, path) for each, path in named if each not in ports or name(path) not in PORTS
    ]
    assert _twins(without_ports) == {}


LOGGER_NAMES = {"__name__", "change.name", "name", "RAY_DATA"}
"""The latter: of any logger, as KIP-412 asks; Ray's own, which the demo makes quiet."""


def test_a_logger_has_the_name_of_its_module() -> None:
    others = {
        name(path): named
        for path in modules(*SOURCE)
        if (named := set(re.findall(r"getLogger\(([^)]*)\)", path.read_text())) - LOGGER_NAMES)
    }
    assert others == {}


def test_the_wheel_holds_every_package_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {"bradbury"}
    for path in modules(*SOURCE):
        if path.name == "__init__.py":
            found.add("bradbury." + ".".join(path.parent.relative_to(ROOT).parts))
    found.discard("bradbury.pipelines.pyspark_bradbury")
    assert listed == found | {"pyspark_bradbury"}


def test_importing_the_package_is_cheap_and_brings_neither_ray_nor_spark() -> None:
    program = (
        "import sys; before = set(sys.modules); import bradbury; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "assert not new & {'ray', 'pyspark', 'numpy', 'pyarrow', 'numba', 'uvloop'}, new"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_can_be_had() -> None:
    for public in bradbury.__all__:
        assert getattr(bradbury, public) is not None
