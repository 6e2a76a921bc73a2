"""Readers of FLOW.yaml and FLOW.py. Paths in a flow are relative to the directory of its file.

FLOW.yaml   the mapping; functions are given by name, "steps.py:late"
FLOW.py     a module whose variable `flow` is the mapping; functions are given as objects
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from .flow import Flow, FlowSource, FlowTarget, flow_of


def read_flow(path: str | Path) -> Flow:
    """Read a flow.

    Raises ValueError: the file is not a valid flow, or names functions that do not exist; OSError.
    """
    file = Path(path).resolve()
    if file.suffix == ".py":
        module = _module(file)
        if not hasattr(module, "flow"):
            raise ValueError(f"{path} has no variable `flow`; assign the mapping of the flow to it")
        content = module.flow
    elif file.suffix in (".yaml", ".yml"):
        content = _yaml(file)
    else:
        raise ValueError(f"{path} is neither .yaml nor .py; use one of them")

    def find(named: str) -> Callable[..., Any]:
        where, colon, function = named.rpartition(":")
        if not colon or not where.endswith(".py"):
            raise ValueError(f"{named!r} does not name a function; use FILE.py:FUNCTION")
        found = getattr(_module(file.parent / where), function, None)
        if found is None:
            raise ValueError(f"{where} has no function {function!r}")
        return found  # type: ignore[no-any-return]  # flow_of checks that it is callable

    try:
        flow = flow_of(content, str(file.parent / "checkpoints"), find)
        return replace(
            flow,
            sources=tuple(_placed_source(one, file.parent) for one in flow.sources),
            targets=tuple(_placed_target(one, file.parent) for one in flow.targets),
            checkpoint=_placed(flow.checkpoint, file.parent),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _yaml(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid YAML: {_what_is_wrong(error)}") from None


def _what_is_wrong(error: Exception) -> str:
    """Text of a YAML error with its place; YAML's own calls the file "<unicode string>"."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError):
        said = ", ".join(part for part in (error.context, error.problem) if part)
        at = error.problem_mark or error.context_mark
        return said if at is None else f"line {at.line + 1}, column {at.column + 1}: {said}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character #x{error.character:04x} at position {error.position}: {error.reason}"
    return " ".join(str(error).split())


def _module(file: Path) -> ModuleType:
    """The file as a module, pickled by value for workers: they do not need the file."""
    name = f"bradbury_flow_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ValueError(f"there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    for pickle in ("ray.cloudpickle", "pyspark.cloudpickle"):
        if importlib.util.find_spec(pickle.partition(".")[0]) is not None:
            importlib.import_module(pickle).register_pickle_by_value(module)
    return module


def _placed(path: str, folder: Path) -> str:
    return path if "://" in path else str(folder / path)


def _placed_source(source: FlowSource, folder: Path) -> FlowSource:
    if source.table is not None:
        return replace(source, table=_placed(source.table, folder))
    if isinstance(source.schema, Mapping) and source.value == "json":
        return replace(source, schema=_arrow_schema(source))
    return source


def _placed_target(target: FlowTarget, folder: Path) -> FlowTarget:
    if target.table is None or target.format == "iceberg":
        return target
    return replace(target, table=_placed(target.table, folder))


def _arrow_schema(source: FlowSource) -> Any:
    import pyarrow as pa

    try:
        return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in source.schema.items()])
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"sources.{source.name}.schema: {error}; use Arrow's names, as string, int64, float64, "
            "bool"
        ) from None
