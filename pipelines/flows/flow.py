"""Parts of a flow, and their validation. Pure: nothing is opened or connected to here.

{"name": "delays",
 "sources": {"flights": {"topic": "flights", "value": "json", "schema": "tail string, ..."}},
 "steps": {"late": {"sql": "SELECT tail, delay FROM flights WHERE delay > 15"}},
 "targets": {"late": {"topic": "late", "key": "tail"}}}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from ..ranges.value_decoder import NAMES as VALUES_OF_RAY
from ..spark.topic_view import FORMATS as VALUES, KEYS, WITH_SCHEMA

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FORMATS: Final = ("parquet", "delta", "iceberg")
_ICEBERG_NAME: Final = re.compile(r"\w+(\.\w+)+")
_FLOW_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


class FlowFailed(Exception):
    """Failure of a flow. The text names the part that failed, and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSource:
    """A topic, or (with Spark) a table of Parquet files, under the name of a view.

    stream: False: only the records that exist when the flow starts, for joins or for targets that
    are written whole. value, schema, schema_registry, columns, key: as `topic_view`'s. watermark:
    how late a record may be, for windows ("10 minutes").
    """

    name: str
    topic: str | None = None
    table: str | None = None
    value: str = "raw"
    schema: Any = None
    schema_registry: str | None = None
    columns: tuple[str, ...] | None = None
    key: str = "utf8"
    stream: bool = True
    watermark: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStep:
    """A step of a flow: exactly one of sql, python and map_batches.

    python: takes the DataFrames named in `of`, in this order, and returns one. map_batches: a
    function, or a class for actors, as for Ray Data; `options` are keyword arguments of it.
    """

    name: str
    sql: str | None = None
    python: Callable[..., Any] | None = None
    map_batches: Callable[..., Any] | None = None
    of: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTarget:
    """A topic, or (with Spark) a table.

    of: the step or source whose rows are written; by default the last step. If they depend on no
    stream, each run computes them once and writes them whole. key, value: names of
    columns; without a value each record is a JSON object of all columns. table: a directory of
    Parquet files or of a Delta table, or namespace.table of Iceberg. catalog: an Iceberg catalog,
    by name or by its properties.
    """

    name: str
    of: str
    topic: str | None = None
    table: str | None = None
    key: str | None = None
    value: str | None = None
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    format: str = "parquet"
    catalog: str | Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A validated flow.

    checkpoint: Spark's checkpoint directory. executors: number of RayDP executors; 0 runs Spark in
    this process. trigger: Spark's processing time interval ("10 seconds"). commit_records: most
    records of one transaction of a Ray Data flow, about.
    """

    name: str
    engine: Literal["spark", "ray"]
    sources: tuple[FlowSource, ...]
    steps: tuple[FlowStep, ...]
    targets: tuple[FlowTarget, ...]
    checkpoint: str
    executors: int = 0
    trigger: str | None = None
    commit_records: int = 500_000


def flow_of(content: Any, checkpoints: str, find: Callable[[str], Callable[..., Any]]) -> Flow:
    """Validate a mapping and make a Flow of it.

    checkpoints: folder of the checkpoints of flows that set none. find: resolves a reference such
    as "steps.py:late" to its function.
    Raises ValueError: the mapping is not a valid flow; the text names the wrong part.
    """
    if not isinstance(content, Mapping):
        raise ValueError(  # noqa: TRY004 -- one kind of error for all that is wrong in a flow
            "a flow is a mapping of name, sources, steps and targets"
        )
    allowed = {"name", "sources", "steps", "targets", "checkpoint", "executors", "trigger"}
    _only(content, allowed | {"commit_records"}, "the flow")
    name = content.get("name")
    if not isinstance(name, str) or not _FLOW_NAME.fullmatch(name):
        raise ValueError(f'the flow\'s name is {name!r}; use letters, digits, ".", "_" and "-"')
    sources = tuple(_source(each, given) for each, given in _parts(content, "sources", needed=True))
    steps = _steps(_parts(content, "steps"), sources, find)
    engine = _engine(sources, steps)
    for source in sources:
        if source.topic is not None:
            _check_value(source, VALUES if engine == "spark" else VALUES_OF_RAY)
    last = steps[-1].name if steps else sources[-1].name
    known = {each.name for each in sources} | {each.name for each in steps}
    targets = tuple(
        _target(each, given, last, known) for each, given in _parts(content, "targets", needed=True)
    )
    executors = content.get("executors", 0)
    records = content.get("commit_records", 500_000)
    for what, number, least in (("executors", executors, 0), ("commit_records", records, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"{what} is {number!r}; use a whole number of at least {least}")
    if engine == "ray":
        _check_ray(content, sources[0], targets, last)
    elif "commit_records" in content:
        raise ValueError(
            "commit_records is for steps with map_batches; with Spark a source has the option "
            "maxOffsetsPerTrigger"
        )
    return Flow(
        name=name,
        engine=engine,
        sources=sources,
        steps=steps,
        targets=targets,
        checkpoint=str(content.get("checkpoint") or f"{checkpoints}/{name}"),
        executors=executors,
        trigger=content.get("trigger"),
        commit_records=records,
    )


def _parts(
    content: Mapping[str, Any], what: str, *, needed: bool = False
) -> list[tuple[str, Mapping[str, Any]]]:
    parts = content.get(what) or {}
    if not isinstance(parts, Mapping) or (needed and not parts):
        raise ValueError(f"{what} is {parts!r}; name at least one, as a mapping of names")
    for name, given in parts.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f'{what}: {name!r} is not a valid name; use letters, digits and "_"')
        if not isinstance(given, Mapping):
            raise ValueError(  # noqa: TRY004 -- as above
                f"{what}.{name} is {given!r}; it must be a mapping"
            )
    return list(parts.items())


def _only(given: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for key in given:
        if key not in allowed:
            raise ValueError(f"{where} has {key!r}; it can have {', '.join(sorted(allowed))}")


def _one_of(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    if sum(given.get(name) is not None for name in names) != 1:
        raise ValueError(f"{where} needs one of {', '.join(names)}")


def _source(name: str, given: Mapping[str, Any]) -> FlowSource:
    where = f"sources.{name}"
    _only(given, {one.name for one in fields(FlowSource)} - {"name"}, where)
    _one_of(given, ("topic", "table"), where)
    columns = given.get("columns")
    if columns is not None:
        columns = _names(columns, f"{where}.columns")
    source = FlowSource(name=name, **{**given, "columns": columns})
    if source.table is not None and set(given) - {"table"}:
        raise ValueError(f"{where} is a table, and a table has no other settings")
    if source.schema_registry is not None and source.value not in WITH_SCHEMA:
        raise ValueError(
            f"{where} has a schema_registry, which is for the values json, avro and protobuf"
        )
    if source.watermark is not None and not source.stream:
        raise ValueError(f"{where} has stream: false; remove watermark, which is for streams")
    return source


def _check_value(source: FlowSource, values: tuple[str, ...]) -> None:
    """Check the settings that can be checked without Spark and without the topic.

    values: those that the flow's engine supports; with map_batches also a function.
    """
    where, value, schema = f"sources.{source.name}", source.value, source.schema
    if value not in values and not (values is VALUES_OF_RAY and callable(value)):
        raise ValueError(f"{where}.value is {value!r}; use {', '.join(values)}")
    if source.key not in KEYS:
        raise ValueError(f"{where}.key is {source.key!r}; use {', '.join(KEYS)}")
    if value in WITH_SCHEMA and schema is None and source.schema_registry is None:
        raise ValueError(f"{where}: value {value} needs a schema, or a schema_registry that has it")
    if value not in WITH_SCHEMA and schema is not None:
        raise ValueError(f"{where} has a schema, which is for the values json, avro and protobuf")


def _steps(
    parts: list[tuple[str, Mapping[str, Any]]],
    sources: tuple[FlowSource, ...],
    find: Callable[[str], Callable[..., Any]],
) -> tuple[FlowStep, ...]:
    known = [source.name for source in sources]
    steps = []
    for name, given in parts:
        where = f"steps.{name}"
        _only(given, {"sql", "python", "map_batches", "of", "options"}, where)
        _one_of(given, ("sql", "python", "map_batches"), where)
        if name in known:
            raise ValueError(f"{where}: another source or step has this name; choose another")
        of = _names(given.get("of", () if "sql" in given else known[-1]), f"{where}.of")
        for each in of:
            if each not in known:
                raise ValueError(f"{where}.of: {each!r} is not a source or an earlier step")
        if "sql" in given and of:
            raise ValueError(f"{where}: an SQL statement names its inputs; remove `of`")
        if given.get("options") and "map_batches" not in given:
            raise ValueError(f"{where}: options are only for map_batches; remove them")
        functions = {
            kind: find(given[kind]) if isinstance(given[kind], str) else given[kind]
            for kind in ("python", "map_batches")
            if given.get(kind) is not None
        }
        for kind, function in functions.items():
            if not callable(function):
                raise ValueError(  # noqa: TRY004 -- as above
                    f"{where}.{kind} is {function!r}; use FILE.py:FUNCTION"
                )
        steps.append(
            FlowStep(
                name=name,
                sql=given.get("sql"),
                of=of,
                options=given.get("options") or {},
                **functions,
            )
        )
        known.append(name)
    return tuple(steps)


def _engine(
    sources: tuple[FlowSource, ...], steps: tuple[FlowStep, ...]
) -> Literal["spark", "ray"]:
    with_ray = [step.map_batches is not None for step in steps]
    if not any(with_ray):
        if not any(source.topic for source in sources):
            raise ValueError("sources: none is a topic; a flow reads at least one")
        return "spark"
    if not all(with_ray):
        raise ValueError(
            "steps of Spark (sql, python) and of Ray Data (map_batches) are mixed; make two flows "
            "with a topic between them"
        )
    if len(sources) != 1:
        raise ValueError("a flow with map_batches has one source")
    return "ray"


def _check_ray(
    content: Mapping[str, Any], source: FlowSource, targets: tuple[FlowTarget, ...], last: str
) -> None:
    is_plain = source.columns is None and not (source.watermark or source.options)
    if "key" in content["sources"][source.name]:
        raise ValueError(
            f"sources.{source.name}.key is for Spark; with map_batches the column key has bytes: "
            "remove it"
        )
    if source.topic is None or not is_plain or not source.stream:
        raise ValueError(
            f"sources.{source.name}: with map_batches it is a topic, with value, schema and "
            "schema_registry only"
        )
    if isinstance(source.schema, str) and source.value == "json":
        raise ValueError(
            f"sources.{source.name}.schema: with map_batches give each field its Arrow type, as "
            "{tail: string, delay: float64}"
        )
    for target in targets:
        if target.table is not None or target.of != last or target.output_mode != "append":
            raise ValueError(
                f"targets.{target.name}: with map_batches a target is a topic that takes the last "
                "step; use `bradbury load` to write topics to tables"
            )
    for setting in ("checkpoint", "executors", "trigger"):
        if content.get(setting) is not None:
            raise ValueError(f"{setting} is for Spark, and the steps are map_batches")


def _target(name: str, given: Mapping[str, Any], last: str, known: set[str]) -> FlowTarget:
    where = f"targets.{name}"
    _only(given, {one.name for one in fields(FlowTarget)} - {"name"}, where)
    _one_of(given, ("topic", "table"), where)
    target = FlowTarget(
        name=name,
        **{
            **given,
            "of": given.get("of", last),
            "partition_by": _names(given.get("partition_by", ()), f"{where}.partition_by"),
        },
    )
    if target.of not in known:
        raise ValueError(f"{where}.of: there is no source or step {target.of!r}")
    if target.topic is None and (target.key or target.value):
        raise ValueError(f"{where}: key and value are for topics, not for tables; remove them")
    if target.table is None and target.partition_by:
        raise ValueError(f"{where}: partition_by is for tables; a topic is partitioned by key")
    if target.table is None and (target.format != "parquet" or target.catalog is not None):
        raise ValueError(f"{where}: format and catalog are for tables, not for topics; remove them")
    if target.format not in FORMATS:
        raise ValueError(f"{where}.format is {target.format!r}; use {', '.join(FORMATS)}")
    if target.catalog is not None and target.format != "iceberg":
        raise ValueError(f"{where}: catalog needs format: iceberg")
    if target.format == "iceberg" and not _ICEBERG_NAME.fullmatch(target.table or ""):
        raise ValueError(f"{where}.table is {target.table!r}; with iceberg use NAMESPACE.TABLE")
    modes = ("append", "complete") if target.table is None else ("append",)
    if target.output_mode not in modes:
        raise ValueError(f"{where}: output_mode is {target.output_mode!r}; use {modes}")
    return target


def _names(given: Any, where: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{where} is {given!r}; use a name or a list of names")
    return tuple(names)
