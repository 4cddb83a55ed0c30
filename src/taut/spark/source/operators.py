"""Operators without state that a lane runs on the chunks it takes.

A :class:`Chain` is a value: it is built in the driver, pickled to the lanes, and run there on one
chunk after another. Arrival, partition and offset travel with every row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from taut.spark.ddl import Columns, columns
from taut.spark.source.batches import run_batch
from taut.spark.source.logs.base import ADDED
from taut.spark.source.rows import Operator, OperatorError, Step, run_rows

__all__ = ["Chain", "Columns", "Effect", "Operator", "OperatorError"]

Effect = Callable[[pa.RecordBatch], None]
"""A sink that runs in the lane, on each chunk that is emitted."""


class _Plan(NamedTuple):
    given: pa.Schema
    schema: pa.Schema
    groups: list[list[Step]]


@dataclass(frozen=True)
class Chain:
    """Operators, one after another, and a sink at the end or none.

    Functions on rows take a dict of columns; with ``column`` they take and give the bare value of
    that column. Functions on batches take a :class:`pyarrow.RecordBatch`. Operators on rows that
    follow each other are run operator by operator with one conversion before and one after.

    Examples
    --------
    >>> chain = Chain().flat_map(str.split, "word string", column="value").filter(
    ...     str.isalpha, column="word"
    ... )
    >>> [operator.kind for operator in chain.operators]
    ['flat_map', 'filter']
    """

    operators: tuple[Operator, ...] = ()
    sink: Effect | None = None
    _plans: list[_Plan] = field(default_factory=list, init=False, repr=False, compare=False)

    def map(
        self,
        f: Callable[[Any], Any],
        schema: Columns | None = None,
        *,
        on: str = "row",
        column: str | None = None,
    ) -> Chain:
        """One row for each row.

        Parameters
        ----------
        f
            Takes a row and returns a row; on batches, a batch and a batch. Arrival, partition and
            offset may be left out of what it returns: they are carried over.
        schema
            The columns of the result when they are others; with ``column`` the one column that
            takes its place. Spark DDL, an Arrow schema, or a mapping of names to types.
        on
            ``"row"`` or ``"batch"``.
        column
            The only column that ``f`` sees and gives, as a bare value.
        """
        return self._with("map", f, schema, on, column)

    def flat_map(
        self,
        f: Callable[[Any], Any],
        schema: Columns | None = None,
        *,
        on: str = "row",
        column: str | None = None,
    ) -> Chain:
        """Any number of rows for each row: ``f`` returns an iterable of what it would for map.

        On batches it may also return one batch. Batches without arrival, partition and offset are
        taken only when they have as many rows as came in.
        """
        return self._with("flat_map", f, schema, on, column)

    def filter(
        self, f: Callable[[Any], Any], *, on: str = "row", column: str | None = None
    ) -> Chain:
        """The rows for which ``f`` is true; on batches it returns a boolean array."""
        return self._with("filter", f, None, on, column)

    def to(self, sink: Effect) -> Chain:
        """End the chain with a sink. The lane calls it on chunks it emits; ``run`` does not."""
        if not callable(sink):
            raise OperatorError(f"to({sink!r}): a function of a pa.RecordBatch is needed")
        if self.sink is not None:
            raise OperatorError("to: the chain has a sink already, and it takes one")
        return replace(self, sink=sink)

    def schema(self, given: pa.Schema) -> pa.Schema:
        """The columns after the last operator, for the columns of a log."""
        return self._plan(given).schema

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A chunk through all operators; functions are not called without rows.

        Raises
        ------
        OperatorError
            When a function fails, or what it gives does not fit the columns.
        """
        plan = self._plan(batch.schema)
        for steps in plan.groups:
            if not batch.num_rows:
                return pa.RecordBatch.from_pylist([], plan.schema)
            on_rows = steps[0].operator.on == "row"
            batch = run_rows(batch, steps) if on_rows else run_batch(batch, steps[0])
        return batch

    def dumps(self) -> bytes:
        """The chain with its functions, for a worker of Spark.

        Raises
        ------
        OperatorError
            When a function, or something it captures, cannot be sent.
        """
        try:
            return _pickled(self)
        except Exception as error:
            for title, f in self._functions():
                if why := _unsendable(f):
                    raise OperatorError(f"{title} cannot be sent to a worker: {why}") from error
            raise OperatorError(f"the chain cannot be sent to a worker: {error}") from error

    @staticmethod
    def loads(data: bytes) -> Chain:
        """The chain that :meth:`dumps` wrote. Only for bytes that Spark carried in a task."""
        from pyspark import cloudpickle

        try:
            chain = cloudpickle.loads(data)
        except (ImportError, AttributeError) as error:
            raise OperatorError(
                f"the chain needs what this worker lacks: {error}; send it along, such as with "
                "spark.addArtifact(path, pyfile=True)"
            ) from error
        if not isinstance(chain, Chain):
            raise OperatorError(f"the bytes hold a {type(chain).__name__}, not a chain")
        return chain

    def __bool__(self) -> bool:
        return bool(self.operators) or self.sink is not None

    def __reduce__(self) -> tuple[type[Chain], tuple[tuple[Operator, ...], Effect | None]]:
        return Chain, (self.operators, self.sink)

    def _with(
        self,
        kind: str,
        f: Callable[[Any], Any],
        schema: Columns | None,
        on: str,
        column: str | None,
    ) -> Chain:
        if not callable(f):
            raise OperatorError(f"{kind}({f!r}): a function is needed")
        if on not in ("row", "batch"):
            raise OperatorError(f"{kind}(on={on!r}): 'row' or 'batch' is needed")
        if on == "batch" and column is not None:
            raise OperatorError(f"{kind}(column={column!r}): only with on='row'")
        if self.sink is not None:
            raise OperatorError(f"{kind} after to: a sink is the end of a chain")
        try:
            parsed = None if schema is None else columns(schema)
        except ValueError as error:
            raise OperatorError(f"{kind}: {error}") from None
        return Chain((*self.operators, Operator(kind, f, on, column, parsed)))

    def _functions(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        count = len(self.operators)
        for number, operator in enumerate(self.operators, 1):
            yield f"{operator.kind} {number} of {count} ({operator.name})", operator.f
        if self.sink is not None:
            yield f"the sink ({Operator('to', self.sink).name})", self.sink

    def _plan(self, given: pa.Schema) -> _Plan:
        if self._plans and self._plans[0].given == given:
            return self._plans[0]
        if lacking := [name for name in ADDED.names if given.get_field_index(name) < 0]:
            raise OperatorError(f"column {lacking[0]!r} is missing: the rows of a log have it")
        schema, steps = given, []
        for operator, (title, _) in zip(self.operators, self._functions(), strict=False):
            schema = _schema_after(operator, title, schema)
            steps.append(Step(operator, title, schema))
        # operators on rows in one group, every operator on batches in its own
        numbered = groupby(
            enumerate(steps), lambda at: at[0] if at[1].operator.on == "batch" else -1
        )
        plan = _Plan(given, schema, [[step for _, step in group] for _, group in numbered])
        self._plans[:] = [plan]
        return plan


def _schema_after(operator: Operator, title: str, before: pa.Schema) -> pa.Schema:
    column, schema = operator.column, operator.schema
    at = -1 if column is None else before.get_field_index(column)
    if column is not None and at < 0:
        raise OperatorError(f"{title}: column {column!r} is not among {', '.join(before.names)}")
    if schema is None:
        return before
    if column is None:
        kept = [before.field(name) for name in ADDED.names]
        for given in schema:
            if given.name in ADDED.names and given.type != before.field(given.name).type:
                raise OperatorError(f"{title}: column {given.name!r} keeps its type")
        return pa.schema([f for f in schema if f.name not in ADDED.names] + kept)
    if len(schema) != 1 or column in ADDED.names:
        raise OperatorError(
            f"{title}: with column={column!r}, schema= is the one column in its place, not "
            f"{', '.join(schema.names)}"
        )
    if schema.names[0] != column and schema.names[0] in before.names:
        raise OperatorError(f"{title}: there is a column {schema.names[0]!r} already")
    return before.set(at, schema.field(0))


def _pickled(value: object) -> bytes:
    from pyspark import cloudpickle

    dumps: Callable[[object], bytes] = cloudpickle.dumps
    return dumps(value)


def _unsendable(f: Callable[[Any], Any]) -> str | None:
    """Why a function cannot be pickled, or None when it can."""
    try:
        _pickled(f)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    else:
        return None
    for name, value in _captured(f).items():
        try:
            _pickled(value)
        except Exception:  # any error of a value's own pickling is the reason that is looked for
            what = f"it captures {name!r}, a {type(value).__qualname__} ({why})"
            if type(value).__module__.startswith("pyspark"):
                return f"{what}; Spark's session and DataFrames live in the driver: collect first"
            return f"{what}; open or make it inside the function, at the first call"
    return f"{why}; locks, open files and connections are made inside the function"


def _captured(f: object) -> Mapping[str, Any]:
    if isinstance(f, partial):
        named = {f"argument {n}": value for n, value in enumerate(f.args, 1)}
        return {**_captured(f.func), **named, **f.keywords}
    owner = getattr(f, "__self__", None if inspect.isfunction(f) else f)
    found = {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    f = getattr(f, "__func__", f)
    if not inspect.isfunction(f):
        return found
    found.update(inspect.getclosurevars(f).nonlocals)
    found.update(inspect.getclosurevars(f).globals)
    for name, parameter in inspect.signature(f).parameters.items():
        found[name] = parameter.default
    return found
