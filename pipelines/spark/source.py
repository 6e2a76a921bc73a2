"""format("bradbury"): the Python Data Source that Spark calls, reading.

    BradburyDataSource     the entry: options, row schema, readers, writers
    BatchReader, PushdownBatchReader    a batch query, in batch_reader
    StreamReader                        micro-batches, in stream_reader

What always holds:
    A reader that implements pushFilters is handed out only where Spark asks for one: with its
    configuration off, which is the default, Spark fails any read whose reader has that method.
    What tasks are given travels by pickle and names classes of importable modules only, so that
    module-wide clients survive from task to task.
    Each way of reading and writing is imported by who asks for it: a query has up to seven Python
    processes that import this, and most of them do one thing.

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
    """default_bootstrap: where the cluster is if no option says so; see session.register.

    default_security: of clients where no option says anything of it.
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
        options = self._read_options(streaming=False)
        check_projection(schema, options.value_decoder)
        kind = PushdownBatchReader if _PUSHDOWN_MODULE in sys.modules else BatchQueryReader
        return kind(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's
        from .reading.stream_reader import RefusedStream, StreamReader

        try:
            options = self._read_options(streaming=True)
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
                "Save mode Overwrite is not allowed: a topic is only ever appended to. "
                'Say .mode("append")'
            )
        return BatchWriter(self._write_options(schema, streaming=False))

    @errors_in_one_line()
    def streamWriter(  # noqa: N802 -- Spark's name; it passes both by keyword
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """`overwrite` is output mode complete: results are appended, as by Spark's own sink."""
        from .writing.sink import StreamWriter

        worker.freeze_if_kept()  # each batch is planned, and committed, by a call of this
        return StreamWriter(self._write_options(schema, streaming=True))

    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def _read_options(self, *, streaming: bool) -> ReadOptions:
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
