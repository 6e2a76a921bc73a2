"""Do imports point one way? Every import counts, lazy ones and those for type checkers, too."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import bradbury

ROOT = Path(bradbury.__file__).resolve().parent
OMITTED = {"tests", "benchmarks", "docs", "examples", "build"}
MOST_FILES = 16
"""Files in one folder. It only ever goes down; messages are generated, one for each API."""
GENERATED = {"bradbury.protocol.messages"}

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in OMITTED or any(part.startswith(".") for part in parts):
            continue
        names = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(("bradbury", *names))] = path
    return found


def imports_of(module: str, path: Path) -> Iterator[str]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            for name in node.names:
                yield f"{start}.{name.name}"
                yield start


def import_graph() -> Graph:
    known = modules()
    graph: Graph = {}
    for module, path in known.items():
        named = {name for name in imports_of(module, path) if name in known}
        # A package is named with each module in it: only what it has of its own counts.
        graph[module] = {
            name
            for name in named - {module}
            if known[name].name != "__init__.py" or not any(m.startswith(name + ".") for m in named)
        }
    return graph


def rooms(graph: Graph) -> Graph:
    known = modules()

    def room(module: str) -> str:
        return module if known[module].name == "__init__.py" else module.rpartition(".")[0]

    found: Graph = {}
    for module, targets in graph.items():
        found.setdefault(room(module), set()).update(
            room(target) for target in targets if room(target) != room(module)
        )
    return found


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The names of one cycle, if there is any."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if cycle := visit(target, [*path, name]):
                return cycle
        done.add(name)
        return []

    for name in sorted(graph):
        if cycle := visit(name, []):
            return cycle
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle_in(import_graph()) == []


def test_no_room_imports_itself_by_way_of_others() -> None:
    assert cycle_in(rooms(import_graph())) == []


def test_a_room_can_be_looked_over_and_says_what_is_in_it() -> None:
    for module, path in modules().items():
        if path.name != "__init__.py" or module == "bradbury":
            continue
        assert ast.get_docstring(ast.parse(path.read_text())), f"{module} does not say what it is"
        files = [one for one in path.parent.glob("*.py") if one != path]
        assert module in GENERATED or len(files) <= MOST_FILES, f"{module} has {len(files)} files"


def test_a_folder_of_tests_has_few_files() -> None:
    """Not counted is what a folder has of other kinds: programs of other languages, recorded answers."""
    tests = ROOT / "tests"
    folders = {path.parent for path in tests.rglob("*.py")}
    sizes = {str(each.relative_to(ROOT)): len([*each.glob("*.py")]) for each in folders}
    assert {each: size for each, size in sizes.items() if size > MOST_FILES} == {}
