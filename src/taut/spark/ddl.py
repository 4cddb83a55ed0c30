"""Columns from text, written as Spark writes them: ``"word string, n bigint"``.

PySpark parses such text in the JVM; here it is parsed without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

Columns: TypeAlias = str | pa.Schema | Mapping[str, str | pa.DataType]
"""Spark DDL, an Arrow schema, or a type (or its name) for each column."""

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.)*'|[<>(),:])")

_SIMPLE = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": pa.timestamp("us"),
}


def columns(given: Columns) -> pa.Schema:
    """The schema that text, a schema or a mapping stands for.

    Raises
    ------
    ValueError
        When it cannot be read.

    Examples
    --------
    >>> columns("word string, n bigint NOT NULL").field("n")
    pyarrow.Field<n: int64 not null>
    """
    if isinstance(given, str):
        schema = pa.schema(_Parser(given).columns())
    elif isinstance(given, pa.Schema):
        schema = given
    elif isinstance(given, Mapping):
        types = {n: _Parser(t).only_type() if isinstance(t, str) else t for n, t in given.items()}
        if wrong := [n for n, kind in types.items() if not isinstance(kind, pa.DataType)]:
            raise ValueError(
                f"schema: {wrong[0]!r} has {types[wrong[0]]!r}; a type such as 'bigint' or "
                "pa.int64() is needed"
            )
        schema = pa.schema(list(types.items()))
    else:
        raise ValueError(
            f"schema {given!r}: text such as 'word string, n bigint', a pa.Schema or a mapping of "
            "names to types is needed"
        )
    if len(set(schema.names)) < len(schema.names):
        raise ValueError(f"schema {given!r}: a name comes twice")
    return schema


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def columns(self) -> list[pa.Field]:
        fields = self._fields()
        self._end()
        return fields

    def only_type(self) -> pa.DataType:
        kind = self._type()
        self._end()
        return kind

    def _fields(self) -> list[pa.Field]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return fields

    def _field(self) -> pa.Field:
        name = self._word("a column's name")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._take(":")
        kind, nullable = self._type(), True
        if self._take("not"):
            self._need("null")
            nullable = False
        if self._take("comment"):
            self._next()
        return pa.field(name, kind, nullable)

    def _type(self) -> pa.DataType:
        name = self._word("a type").lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name not in ("array", "map", "struct"):
            raise self._wrong(f"{name!r} is no type; known are {', '.join(_SIMPLE)}, decimal, ...")
        self._need("<")
        if name == "array":
            kind = pa.list_(pa.field("element", self._type()))
        elif name == "map":
            key = pa.field("key", self._type(), nullable=False)
            self._need(",")
            kind = pa.map_(key, pa.field("value", self._type()))
        else:
            kind = pa.struct([] if self._peek() == ">" else self._fields())
        self._need(">")
        return kind

    def _decimal(self) -> pa.DataType:
        precision, scale = "10", "0"
        if self._take("("):
            precision = self._word("a precision")
            if self._take(","):
                scale = self._word("a scale")
            self._need(")")
        digits = (precision + scale).isdecimal()
        if not digits or not max(1, int(scale)) <= int(precision) <= 38:
            raise self._wrong(f"decimal({precision},{scale}) has not 1 to 38 digits")
        return pa.decimal128(int(precision), int(scale))

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[1] if found else ""

    def _next(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        if not found:
            raise self._wrong(f"cannot be read from {self._text[self._at :]!r} on")
        self._at = found.end()
        return found[1]

    def _take(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._next()
        return True

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"{token!r} is missing before {self._text[self._at :]!r}")

    def _word(self, what: str) -> str:
        if not re.match(r"[\w`]", self._peek()):
            raise self._wrong(f"{what} is missing before {self._text[self._at :]!r}")
        return self._next()

    def _end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong(f"cannot be read from {self._text[self._at :]!r} on")

    def _wrong(self, why: str) -> ValueError:
        return ValueError(f"schema {self._text!r}: {why}; right is such as 'word string, n bigint'")
