"""format("bradbury"): the Python Data Source that Spark calls.

    BradburyDataSource     entry point: options, row schema, readers, writers
    BatchQueryReader, PushdownBatchReader    a batch query, in reading/batch_query
    StreamReader                             micro-batches, in reading/stream_reader

Invariants:
    A reader with pushFilters is returned only if filter pushdown is on: with it off, which is
    Spark's default, Spark fails any read whose reader has that method.
    Objects for tasks are pickled and refer to classes of importable modules only, so that
    module-wide clients survive from task to task.
    Readers and writers are imported on use: a query has up to seven Python processes that import
    this module, and most of them use one of these.

Where each is called (driver, planner, executor): docs/spark.md. Not here: the sink.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from dataclasses import replace
from typing import ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ...clients.security.security_options import ClientSecurity
from .options.spark_options import ReadOptions, WriteOptions
from .tasks import worker
from .tasks.arrow import check_projection, row_schema
from .tasks.spark_failure import errors_in_one_line

FORMAT: Final = "bradbury"
_PUSHDOWN_MODULE: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class BradburyDataSource(DataSource):
    """Data source of the format "bradbury".

    default_bootstrap: bootstrap servers if no option gives them; see session.register.
    default_security: security if no option gives any.
    """

    default_bootstrap: ClassVar[str | None] = None
    default_security: ClassVar[ClientSecurity | None] = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @errors_in_one_line()
    def schema(self) -> StructType:
        worker.freeze_if_kept()
        options = ReadOptions.parse(self._given(), streaming=True, check_mode=False)
        return row_schema(
            include_headers=options.include_headers, value_decoder=options.value_decoder
        )

    @errors_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        from .reading.batch_query import BatchQueryReader, PushdownBatchReader

        worker.freeze_if_kept()
        options = self.read_options(streaming=False)
        check_projection(schema, options.value_decoder)
        kind = PushdownBatchReader if _PUSHDOWN_MODULE in sys.modules else BatchQueryReader
        return kind(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's
        from .reading.stream_reader import RefusedStream, StreamReader

        try:
            options = self.read_options(streaming=True)
            check_projection(schema, options.value_decoder)
            return StreamReader(schema, options)
        except ValueError as error:
            return RefusedStream(error)

    @errors_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .writing.sink import BatchWriter

        worker.freeze_if_kept()
        if overwrite:
            raise ValueError(
                'Save mode Overwrite is not allowed: topics are append-only. Use .mode("append")'
            )
        return BatchWriter(self._write_options(schema, streaming=False))

    @errors_in_one_line()
    def streamWriter(  # noqa: N802 -- Spark's name; it passes both by keyword
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Writer of a stream. `overwrite` (output mode complete) appends, as by Spark's sink."""
        from .writing.sink import StreamWriter

        worker.freeze_if_kept()  # called for planning and for committing each batch
        return StreamWriter(self._write_options(schema, streaming=True))

    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def read_options(self, *, streaming: bool) -> ReadOptions:
        """Options of a read, with the defaults. Raises ValueError: one of them is invalid."""
        options = ReadOptions.parse(self._given(), streaming=streaming)
        security = options.fetch.security or self.default_security
        return replace(
            options,
            bootstrap=options.bootstrap or self.default_bootstrap,
            fetch=replace(options.fetch, security=security),
        )

    def _write_options(self, schema: StructType, *, streaming: bool) -> WriteOptions:
        from .writing.sink import check_columns, check_topic
        from .writing.transactional_sink import make_marker_topic

        options = WriteOptions.parse(self._given(), streaming=streaming)
        options = replace(
            options,
            bootstrap=options.bootstrap or self.default_bootstrap,
            security=options.security or self.default_security,
        )
        check_columns(schema, options.topic)
        check_topic(options)
        if options.exactly_once:
            make_marker_topic(options)
        return options
