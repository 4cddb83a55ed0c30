"""Keys and states as bytes, and back as they were."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from taut.errors import JobError
from taut.spark.reduce.job import PLAIN, Job
from taut.spark.reduce.same import exact, same, steady
from taut.spark.values import cut

_DECODE: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_date, datetime.date),
    (pa.types.is_timestamp, datetime.datetime),
)


class Part(msgspec.Struct, array_like=True):
    """Some keys with their states and how often they came, and keys that are no longer there."""

    keys: Any
    states: list[bytes]
    counts: list[float]
    gone: Any
    era: int


class Cold(msgspec.Struct, array_like=True):
    """A state outside memory, and how often its key had come, by when."""

    state: bytes
    count: float
    era: int


class Codec:
    """Turns the keys and states of one job into bytes.

    A state has to come back as it was, also in another process: without ``state=`` only values
    that msgpack keeps as they are will do, for it would turn a tuple into a list. With it, a state
    whose types are not all those that were stated is read back before it counts, and what was read
    is what the worker goes on with: one that has a copy and one that reads the store have the same.
    """

    def __init__(self, job: Job) -> None:
        key = next(kind for fits, kind in _DECODE if fits(job.key_type))
        self.keys = f"{key.__name__} keys{_windowed(job)}"
        """What states are found by: another cannot find those of this one."""
        self.kinds = f"{self.keys}, state {job.state!r}"
        if job.windows is not None:
            key = tuple[key, int]  # type: ignore[valid-type]  # known at run time
        self._job = job
        self._typed = job.state is not None
        self._steady = steady(job.state) if self._typed else frozenset(PLAIN)
        self._exact = (exact(job.state) if self._typed else None) or (lambda state: False)
        self._seen: set[type] = set()
        try:
            self._state = msgspec.msgpack.Decoder(job.state if self._typed else Any)
        except TypeError as error:
            raise JobError(f"job {job.name!r}: state={job.state!r}: {error}") from None
        self._key = msgspec.msgpack.Decoder(key)
        self._keys = msgspec.msgpack.Decoder(list[key])  # type: ignore[valid-type]  # known at run time
        self._part = msgspec.msgpack.Decoder(
            tuple[msgspec.Raw, list[bytes], list[float], msgspec.Raw, int]
        )
        self._cold = msgspec.msgpack.Decoder(Cold)
        self._encode = msgspec.msgpack.Encoder().encode

    def keep(self, key: Any, states: dict[Any, Any]) -> bytes:
        """The state of a key as bytes; what is among the states is then what these say."""
        state = states[key]
        if isinstance(state, np.generic):
            states[key] = state = state.item()
        try:
            data = self._encode(state)
        except (TypeError, OverflowError, ValueError, RecursionError) as error:
            raise JobError(
                f"job {self._job.name!r}: the state of key {cut(key)}, {cut(state)}, cannot be "
                f"stored: {error}"
            ) from error
        if type(state) in self._steady or self._exact(state):
            return data
        states[key] = again = self._again(key, state, data)
        return self._encode(again)

    def _again(self, key: Any, state: Any, data: bytes) -> Any:
        """A state as it comes back, which has to be as it was."""
        if not self._typed:
            raise self._other(
                key,
                state,
                f": say state= with its type, such as state={_suggested(state)}, so that it comes "
                "back as it was",
            )
        try:
            again = self._state.decode(data)
        except msgspec.ValidationError as error:
            raise self._other(key, state, f", and state={self._job.state!r}: {error}") from None
        # equal is not the same, as of a dict and a Counter: that the first of a type shows
        if type(state) not in self._seen or again != state:
            if not same(state, again):
                raise self._other(
                    key,
                    state,
                    f", and state={self._job.state!r}: it would come back as {cut(again)} "
                    f"({type(again).__name__}); say what it is and what is in it, as in "
                    "state=dict[str, tuple[int, int]]",
                )
            self._seen.add(type(state))
        return again

    def _other(self, key: Any, state: Any, why: str) -> JobError:
        return JobError(
            f"job {self._job.name!r}: the state of key {cut(key)} is {cut(state)} "
            f"({type(state).__name__}){why}"
        )

    def state(self, key: Any, state: Any) -> bytes:
        """A state as bytes."""
        return self.keep(key, {key: state})

    def stored(self, state: Any) -> bytes:
        """A state as bytes, of one that was kept or read before."""
        return self._encode(state)

    def read_state(self, data: bytes) -> Any:
        """A state from bytes."""
        try:
            return self._state.decode(data)
        except msgspec.ValidationError as error:
            raise JobError(
                f"job {self._job.name!r}: a stored state is no {self._job.state}: {error}; was "
                "state= another when it was stored?"
            ) from error

    def key(self, key: Any) -> bytes:
        """A key as bytes."""
        return self._encode(key)

    def read_key(self, data: bytes) -> Any:
        """A key from bytes."""
        try:
            return self._key.decode(data)
        except msgspec.ValidationError as error:
            raise self._other_keys(error) from error

    def part(self, part: Part) -> bytes:
        """Some keys and states as bytes."""
        return self._encode(part)

    def read_part(self, data: bytes) -> Part:
        """And back."""
        keys, states, counts, gone, era = self._part.decode(data)
        try:
            return Part(self._keys.decode(keys), states, counts, self._keys.decode(gone), era)
        except msgspec.ValidationError as error:
            raise self._other_keys(error) from error

    def cold(self, cold: Cold) -> bytes:
        """A state outside memory as bytes."""
        return self._encode(cold)

    def read_cold(self, data: bytes) -> Cold:
        """And back."""
        return self._cold.decode(data)

    def _other_keys(self, error: Exception) -> JobError:
        return JobError(
            f"job {self._job.name!r}: a stored key is no {self._job.key}: {error}; was key= or "
            "window= another when it was stored?"
        )


def _windowed(job: Job) -> str:
    if job.windows is None:
        return ""
    window = job.windows.window
    return (
        f" in windows of {window.length:g} s every {window.slide:g} s, from {window.start:g} s on"
    )


def _suggested(state: object) -> str:
    if isinstance(state, list | set | frozenset):
        return f"{type(state).__name__}[int]"
    if isinstance(state, dict):
        return "dict[str, int]"
    return "tuple[int, int]" if isinstance(state, tuple) else type(state).__name__
