"""Package by which Spark discovers the source: it looks in `pyspark_*` for `DefaultSource`.

The source is loaded on first use only, and a lookup raises nothing but AttributeError: if it raises
anything else in one such package, Spark does not find the others.
"""


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from bradbury.pipelines.spark.source import BradburyDataSource
    except ImportError as error:
        raise AttributeError(f"format 'bradbury' cannot be loaded: {error}") from error
    return BradburyDataSource
