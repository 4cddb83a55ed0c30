"""Arrow arrays to Python values and back, exactly or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from numbers import Integral
from typing import Any

import pyarrow as pa

_REFUSED = (pa.ArrowException, OverflowError, TypeError, ValueError)


_SHOWN = 200
"""Characters of a value that an error shows."""


class Misfit(Exception):
    """A value does not fit its column; ``at`` is its place in the list."""

    def __init__(self, at: int, needed: str) -> None:
        super().__init__(at, needed)
        self.at, self.needed = at, needed


def to_python(array: pa.Array) -> list[Any]:
    """The values of an Arrow array as Python's."""
    kind = array.type
    if not pa.types.is_timestamp(kind) or kind.unit == "ns" or kind.tz not in (None, "UTC"):
        values: list[Any] = array.to_pylist()
        return values
    # fifty times as fast as to_pylist, and every row has a time of arrival
    epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)
    since = array.drop_null().to_numpy(zero_copy_only=False).view(f"m8[{kind.unit}]")
    times = [epoch + passed for passed in since.tolist()]
    if not array.null_count:
        return times
    left = iter(times)
    return [next(left) if valid else None for valid in array.is_valid().to_pylist()]


def to_arrow(values: list[Any], field: pa.Field) -> pa.Array:
    """Python values as an array of a field's type.

    Arrow would cut 1.5 to 1 for an integer column, a datetime to its date, and text to a list of
    letters: such values are refused here. A datetime without a zone is taken as UTC.

    Raises
    ------
    Misfit
        When a value is of another type, or None where the field takes none.
    """
    try:
        if _all_suit(values, field):
            array = pa.array(values, field.type)
            if isinstance(array, pa.ChunkedArray):
                raise Misfit(0, f"less than 2 GB of {field.type} in a chunk")
            return array
    except _REFUSED:
        pass
    for at, value in enumerate(values):
        if not fits(value, field):
            raise Misfit(at, str(field.type) + ("" if field.nullable else " not null"))
    raise Misfit(0, str(field.type))


def _all_suit(values: list[Any], field: pa.Field) -> bool:
    if pa.types.is_nested(field.type):
        return all(_suits(value, field) for value in values)
    return all(_keeps(cls, field) for cls in set(map(type, values)))


def fits(value: Any, field: pa.Field) -> bool:
    """Whether a column takes a value, unchanged."""
    try:
        return _suits(value, field) and len(pa.array([value], field.type)) == 1
    except _REFUSED:
        return False


def _suits(value: Any, field: pa.Field) -> bool:
    kind = field.type
    if value is None or not pa.types.is_nested(kind):
        return _keeps(type(value), field)
    if pa.types.is_struct(kind):
        return (
            isinstance(value, Mapping)
            and value.keys() <= {inner.name for inner in kind}
            and all(_suits(value.get(inner.name), inner) for inner in kind)
        )
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return all(_suits(k, kind.key_field) and _suits(v, kind.item_field) for k, v in pairs)
    if not hasattr(kind, "value_field"):  # a union, which Spark does not have
        return True
    inner = kind.value_field
    return not isinstance(value, str | bytes) and all(_suits(v, inner) for v in value)


def _keeps(cls: type, field: pa.Field) -> bool:
    """Whether Arrow, if it takes values of a class for this field, takes them unchanged."""
    kind = field.type
    if cls is type(None):
        return bool(field.nullable)
    if pa.types.is_integer(kind):
        return issubclass(cls, Integral)
    if pa.types.is_date(kind):
        return not issubclass(cls, datetime | Integral)
    return not pa.types.is_timestamp(kind) or not issubclass(cls, Integral)


def cut(value: object) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
