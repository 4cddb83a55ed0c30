"""Whether a value comes back from its bytes as it was."""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Callable, Sequence
from keyword import iskeyword
from math import isnan
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from taut.spark.reduce.job import PLAIN

Look = Callable[[Any], bool]


def same(value: Any, other: Any) -> bool:
    """Whether two values are the same, by type too, and all that is in them.

    A whole number passes for the float of its value.

    >>> same([1, (2, "a")], [1, (2, "a")]), same([1, (2, "a")], [1, [2, "a"]]), same(0, 0.0)
    (True, False, True)
    """
    if type(value) is not type(other):
        return type(value) is int and type(other) is float and value == other
    if isinstance(value, set | frozenset):
        found = {each: each for each in other}
        return value == other and all(same(each, found[each]) for each in value)
    mine, its = _inside(value), _inside(other)
    if mine is not None and its is not None:
        return len(mine) == len(its) and all(map(same, mine, its))
    if isinstance(value, datetime.datetime | datetime.time):
        return bool(value == other) and value.utcoffset() == other.utcoffset()
    # what is not a number is not equal to itself
    return bool(value == other or (isinstance(value, float) and isnan(value) and isnan(other)))


def _inside(value: Any) -> Sequence[Any] | None:
    """The values in a value, in order, if there is a place for others."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    return [getattr(value, name) for name in _names(type(value))] or None


def _names(kind: type) -> list[str]:
    """Of the fields that a type has, if it has any."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if issubclass(kind, msgspec.Struct):
        return [*kind.__struct_fields__]
    return [field.name for field in getattr(kind, "__attrs_attrs__", ())]


def steady(stated: Any) -> frozenset[type]:
    """The types of a stated type if all of them are plain: what they hold comes back as it was.

    >>> sorted(kind.__name__ for kind in steady(int | None)), steady(list[int])
    (['NoneType', 'int'], frozenset())
    """
    union = get_origin(stated) in (Union, types.UnionType)
    kinds = get_args(stated) if union else (type(None) if stated is None else stated,)
    return frozenset(kinds) if all(kind in PLAIN for kind in kinds) else frozenset()


def exact(stated: Any, _within: tuple[Any, ...] = ()) -> Look | None:
    """A quick look at values of a stated type, or None where there is none.

    A value on which it is true has the stated types throughout, and comes back as it was; on any
    other nothing is said.

    >>> look = exact(list[int])
    >>> look([1, 2]), look([1, 2.5]), look((1, 2))
    (True, False, False)
    """
    if kinds := steady(stated):
        return lambda value: type(value) in kinds
    origin, args, within = get_origin(stated), get_args(stated), (*_within, stated)
    look: Look | None = None
    if stated in _within or (origin is not None and not args):
        pass  # a type that has itself in it, or one that says nothing of what is in it
    elif origin is tuple and args[-1] is not ...:
        places = [f"[{at}]" for at in range(len(args))]
        look = _each(tuple, places, args, within, size=len(args))
    elif origin in (list, set, frozenset, tuple):
        look = _each(origin, [""], args[:1], within, every=True)
    elif origin is dict:
        look = _each(dict, ["", ".values()"], args, within, every=True)
    elif isinstance(stated, type) and not hasattr(stated, "__post_init__"):
        look = _fielded(stated, within)
    return look


def _fielded(kind: type, within: tuple[Any, ...]) -> Look | None:
    fielded = dataclasses.is_dataclass(kind) and all(f.init for f in dataclasses.fields(kind))
    if not fielded and not issubclass(kind, msgspec.Struct):
        return None
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # of types that are known only where it was made
        return None
    names = [name for name in _names(kind) if name.isidentifier() and not iskeyword(name)]
    if names != _names(kind):
        return None
    return _each(kind, [f".{name}" for name in names], [hints[name] for name in names], within)


def _each(
    kind: type,
    places: Sequence[str],
    inside: Sequence[Any],
    within: tuple[Any, ...],
    *,
    size: int | None = None,
    every: bool = False,
) -> Look | None:
    """Of values with others in them, at places or in every one of them.

    It is written out and compiled: a loop over places takes three times as long.
    """
    names: dict[str, Any] = {"kind": kind}
    tests = ["type(value) is kind", *([] if size is None else [f"len(value) == {size}"])]
    for at, (place, held) in enumerate(zip(places, inside, strict=True)):
        kinds, look = steady(held), exact(held, within)
        if look is None:
            return None
        names[f"of{at}"] = kinds or look
        if kinds:
            test = "{}.issuperset(map(type, {}))" if every else "type({1}) in {0}"
        else:
            test = "all(map({}, {}))" if every else "{}({})"
        tests.append(test.format(f"of{at}", f"value{place}"))
    made: Look = eval(f"lambda value: {' and '.join(tests)}", names)
    return made
