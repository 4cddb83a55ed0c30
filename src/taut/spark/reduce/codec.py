"""Keys and states as bytes, and back as they were."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pyarrow as pa

from taut.errors import JobError
from taut.spark.reduce.job import Job, is_plain
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
    that msgpack keeps as they are will do, for it would turn a tuple into a list.
    """

    def __init__(self, job: Job) -> None:
        key = next(kind for fits, kind in _DECODE if fits(job.key_type))
        if job.windows is not None:
            key = tuple[key, int]  # type: ignore[valid-type]  # known at run time
        self._job = job
        self._typed = job.state is not None
        self._known: set[type] = set()
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

    def state(self, key: Any, state: Any) -> bytes:
        """A state as bytes."""
        try:
            data = self._encode(state)
        except (TypeError, OverflowError, ValueError) as error:
            raise JobError(
                f"job {self._job.name!r}: the state of key {cut(key)}, {cut(state)}, cannot be "
                f"stored: {error}"
            ) from error
        if type(state) not in self._known:
            self._know(key, state, data)
        return data

    def _know(self, key: Any, state: Any, data: bytes) -> None:
        """Whether states of this type come back as they were, which the first of them shows."""
        what = f"job {self._job.name!r}: the state of key {cut(key)} is {cut(state)}"
        if not self._typed:
            if not is_plain(state):
                raise JobError(
                    f"{what} ({type(state).__name__}): say state= with its type, such as "
                    f"state={_suggested(state)}, so that it comes back as it was"
                )
        else:
            try:
                again = self._state.decode(data)
            except msgspec.ValidationError as error:
                raise JobError(f"{what}, and state={self._job.state!r}: {error}") from None
            if type(again) is not type(state) and again != state:
                raise JobError(
                    f"{what} ({type(state).__name__}), and state={self._job.state!r}: it would "
                    f"come back as {cut(again)} ({type(again).__name__})"
                )
        self._known.add(type(state))

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


def _suggested(state: object) -> str:
    if isinstance(state, list | set | frozenset):
        return f"{type(state).__name__}[int]"
    if isinstance(state, dict):
        return "dict[str, int]"
    return "tuple[int, int]" if isinstance(state, tuple) else type(state).__name__
