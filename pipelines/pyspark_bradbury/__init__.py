"""Found by Spark on its own: it looks at every top-level `pyspark_*` package for `DefaultSource`.

The source is loaded on first use only, and looking never raises anything but AttributeError: one
such package that does hides all others from Spark.
"""


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from bradbury.pipelines.spark.source import BradburyDataSource
    except ImportError as error:
        raise AttributeError(f"format 'bradbury' cannot be loaded: {error}") from error
    return BradburyDataSource
