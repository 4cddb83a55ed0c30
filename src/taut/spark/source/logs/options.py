"""Options of a data source are text: to numbers, to yes and no, to Arrow schemas."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

from taut.errors import LogError
from taut.spark.ddl import columns

_Number = TypeVar("_Number", int, float)


def required(options: Mapping[str, str], name: str, example: str) -> str:
    """The text of an option that must be there."""
    if not options.get(name):
        raise LogError(f'option {name}={options.get(name)!r}: must be given, such as "{example}"')
    return options[name]


def number(
    options: Mapping[str, str], name: str, kind: Callable[[str], _Number], example: str
) -> _Number:
    """The number of an option that must be there."""
    text = required(options, name, example)
    try:
        return kind(text)
    except ValueError:
        raise LogError(f'option {name}={text!r}: must be a number, such as "{example}"') from None


def flag(options: Mapping[str, str], name: str) -> bool:
    """Yes or no; no when it is not there.

    >>> flag({"header": "True"}, "header"), flag({}, "header")
    (True, False)
    """
    text = options.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise LogError(f'option {name}={text!r}: must be "true" or "false"')
    return text.lower() == "true"


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as text, for the option ``arrowschema``."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_from(options: Mapping[str, str]) -> pa.Schema | None:
    """The schema of ``schema``, which is DDL, or of ``arrowschema``, if one is there."""
    ddl, text = options.get("schema"), options.get("arrowschema")
    if ddl:
        try:
            return columns(ddl)
        except ValueError as error:
            raise LogError(f"option {error}") from error
    if not text:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, ValueError, pa.ArrowException, OSError):
        raise LogError(
            f"option arrowschema={text[:200]!r}: must be an Arrow schema, serialised, in base64"
        ) from None
