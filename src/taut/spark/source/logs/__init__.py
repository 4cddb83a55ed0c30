"""Logs that a Taut source reads: in memory, files of a folder, a schedule, a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from taut.errors import LogError
from taut.spark.source.logs.base import Log

OPTIONS: dict[str, tuple[str, ...]] = {
    "memory": ("address", "token"),
    "files": ("path", "format", "schema", "pattern", "header", "arrival"),
    "schedule": ("start", "rate", "partitions", "total", "payload", "arrivals", "skew"),
    "kafka": ("subscribe", "timeout", "kafka.*"),
}
"""The logs by name, and the options of each; ``kafka.*`` are settings of Kafka's client."""
KINDS = tuple(OPTIONS)


def open_log(options: Mapping[str, str]) -> Log:
    """The log that the options of a Spark data source name.

    Parameters
    ----------
    options
        ``log`` is one of :data:`KINDS`; the others are those that the log's ``options()`` gives.
        The case of a key does not matter: Spark forgets it.

    Raises
    ------
    LogError
        When an option is missing or wrong.

    Examples
    --------
    >>> open_log({"log": "schedule", "start": "0", "rate": "1000", "total": "5"}).latest()
    {'0': 5}
    """
    given = {key.lower(): value for key, value in options.items()}
    kind = given.get("log")
    if kind not in KINDS:
        raise LogError(f"option log={kind!r}: must be one of {', '.join(KINDS)}")
    # one kind is used and each brings its own libraries
    try:
        module = import_module(f"{__name__}.{kind}")
    except ModuleNotFoundError as error:
        raise LogError(
            f"option log={kind!r}: needs a package that is not installed here, {error.name}; "
            "for Kafka: pip install confluent-kafka (Taut's extra kafka has it)"
        ) from error
    log: Log = module.from_options(given)
    return log
