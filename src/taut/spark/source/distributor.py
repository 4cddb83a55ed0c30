"""The distributor: the one place per query that hands chunks to lanes, of all open batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from taut.spark.source.dealt import Batch
from taut.spark.source.protocol import Join, Refused, Reply, Report, Request
from taut.spark.source.tally import Standing, Tally


class Distributor:
    """All batches of a query that are planned and not committed."""

    def __init__(self) -> None:
        self._batches: dict[str, Batch] = {}
        self._issued = self._replayed = 0

    @property
    def issued(self) -> int:
        """Offsets handed out so far, in all batches."""
        return self._issued + sum(batch.issued for batch in self._batches.values())

    @property
    def replayed(self) -> int:
        """Those of them that were handed out once more."""
        return self._replayed + sum(batch.replayed for batch in self._batches.values())

    def standing(self, tally: Tally) -> Standing:
        """How it stands, with what has been noted of chunks since the last time."""
        since: dict[int, float] = {}
        waiting: Counter[str] = Counter()
        for batch in self._batches.values():
            since |= batch.open_since
            waiting.update(batch.waiting)
        return Standing.of(tally, since, waiting)

    def __iter__(self) -> Iterator[str]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def open(self, key: str, batch: Batch) -> Batch:
        """Begin a batch; one that is planned again with the same key goes on where it was."""
        return self._batches.setdefault(key, batch)

    def get(self, key: str) -> Batch | None:
        """A batch that is not committed."""
        return self._batches.get(key)

    def forget(self, *keys: str) -> None:
        """These batches are committed: nobody will ask for them again."""
        for key in keys:
            batch = self._batches.pop(key, None)
            if batch is not None:
                self._issued += batch.issued
                self._replayed += batch.replayed

    def answer(self, message: Request, now: float) -> Reply:
        """The reply to a lane."""
        batch = self._batches.get(message.batch)
        if batch is None:
            return Refused(f"batch {message.batch!r} is over")
        if isinstance(message, Report):
            return batch.report(message, now)
        if isinstance(message, Join):
            return batch.join(message, now)
        return batch.beat(message, now)

    def look(self, now: float) -> None:
        """Look after lanes that have fallen silent."""
        for batch in self._batches.values():
            batch.look(now)

    @property
    def alarm(self) -> float | None:
        """When the next chunk is overdue, unless it is finished by then."""
        return min((b.alarm for b in self._batches.values() if b.alarm is not None), default=None)

    def ring(self, now: float) -> None:
        """See which chunks are overdue."""
        for batch in self._batches.values():
            batch.ring(now)

    @property
    def rang(self) -> bool:
        """Whether those that wait have to be told of overdue chunks; told once."""
        return sum(batch.rang for batch in self._batches.values()) > 0
