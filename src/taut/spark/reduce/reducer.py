"""One reducer's part of a batch: choose rows, fold them, put the rest aside, keep the states.

Which rows are worked on follows from the rows, whichever way they came, the time that Spark planned
the batch at, and what the reducer had learned by the end of the last one. A batch that is tried
again, by any worker, decides the same; but for ``edf``, which goes by how they came.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from taut.errors import JobError
from taut.policy.deadline import Recent
from taut.spark.reduce.blobs import Packed, Rows, pack, row_schema, unpack
from taut.spark.reduce.chosen import Chosen, Costs, choose, classes
from taut.spark.reduce.codec import Codec
from taut.spark.reduce.fold import Work, finalized, fold
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.keyed import Head, Keyed, Store, Waiting
from taut.spark.reduce.telling import Telling, row_of
from taut.spark.reduce.terms import CLOSED, CROWDED, LATE, WAITED, Moment, Stats, Terms
from taut.spark.reduce.ties import Ties
from taut.spark.values import cut

Numbers = np.ndarray[Any, Any]

_PROBING = 4
"""Batches without a row of a cold key, after which one is worked on."""
_TELLING = 50
_LONG = 0.01
"""Rows, or seconds of work, that tell what a row costs; of less, what a batch costs anyway is most.
"""


@dataclass(slots=True)
class Done:
    """What comes of a batch.

    Attributes
    ----------
    packed
        To be passed on.
    timers
        Event times, in ms, at which windows want to be closed.
    waiting
        Rows that wait for time.
    """

    packed: list[Packed]
    timers: list[int]
    waiting: int


class Reducer:
    """Reduces the rows of one job at one reducer, batch after batch; holds no state itself.

    Parameters
    ----------
    reducer, ids
        Its id, and those of all that share the keys; without these they are not looked at.
    """

    def __init__(
        self,
        job: Job,
        terms: Terms,
        reducer: int,
        clock: Callable[[], float] = time.time,
        ids: Sequence[int] = (),
    ) -> None:
        self._job = job
        self._terms = terms
        self._reducer = reducer
        self._clock = clock
        self._ids = list(ids)
        self._codec = Codec(job)
        self._schema = row_schema(job)
        self._types = f"key {job.key_type}, value {job.value_type}"

    def batch(self, store: Store, packed: Sequence[Packed], moment: Moment) -> Done:
        """Reduce what has come, and what waits if there is time."""
        run = _Run(self, store, moment)
        run.learn()
        come = sorted(packed, key=lambda one: (one.part, one.seq))
        rows = self._rows([one.blob for one in come])
        spare = run.fresh(rows)
        run.readmit(spare)
        return run.end()

    def close(self, store: Store, moment: Moment) -> Done:
        """Put out the windows that the watermark has passed."""
        run = _Run(self, store, moment)
        run.readmit_before(moment.watermark_us)
        run.close(moment.watermark_us)
        return run.end()

    def _rows(self, blobs: Sequence[bytes]) -> Rows:
        return Rows([unpack(blob, self._schema) for blob in blobs], self._schema)

    def _same(self, head: Head) -> None:
        """Whether keys are where they were."""
        if self._ids and head.reducers and head.reducers != self._ids:
            before, now = len(head.reducers), len(self._ids)
            what = f"reducers={before}"
            if before == now:
                what = "spark.sql.shuffle.partitions as it was then"
            raise JobError(
                f"job {self._job.name!r}: its checkpoint was begun with {before} reducers, and "
                f"now there are {now}{' others' if before == now else ''}: keys would not find "
                f"their states. Start it with {what}"
            )
        head.reducers = head.reducers or self._ids


class _Run:
    """One batch on its way through."""

    def __init__(self, reducer: Reducer, store: Store, moment: Moment) -> None:
        self._r = reducer
        self._moment = moment
        self._began = reducer._clock()
        terms = reducer._terms
        self._keyed = Keyed(store, reducer._codec, reducer._job.name, terms.budget, reducer._clock)
        head = self._keyed.head
        reducer._same(head)
        self._begins = moment.stamp_us / MICRO + head.lead.careful
        self._after = head.after.careful
        fixed = head.fixed_cost.value + self._closing()
        self._costs = Costs(head.row_cost.value, head.cold_cost.value, fixed)
        self._folding = 0.0
        self._changed: dict[Any, int] = {}
        self._gone: list[Any] = []
        self._timers: list[int] = []
        predicted = self._begins + fixed + self._after
        self._stats = Stats(
            reducer._reducer, reducer._job.name, moment.batch, self._began, 0.0, predicted
        )
        self._tell = Telling(reducer._job, terms, self._stats, moment.stamp_us)

    # -- the parts of a batch ------------------------------------------------------------------

    def learn(self) -> None:
        """How long things take, for the next batch; this one goes by what was known before."""
        head, moment = self._keyed.head, self._moment
        if moment.written is None:
            return  # the first of a run tells what it takes to start, not what batches take
        head.lead = head.lead.observe(max(0.0, self._began - moment.stamp_us / MICRO))
        if moment.written[0] == head.ended_batch:
            head.after = head.after.observe(max(0.0, moment.written[1] - head.ended))

    def fresh(self, rows: Rows) -> float:
        """Choose among the rows that have come and fold those; the seconds that are left."""
        self._stats.rows = len(rows)
        objective, stamp = self._r._terms.objective, self._moment.stamp_us / MICRO
        # where nothing can be on time, rows that wait get as long as a batch takes anyway
        anyway = self._begins - stamp + self._costs.fixed + self._after
        nothing = max(objective / 2.0 - self._after, objective / 8.0, anyway)
        if not len(rows):
            return nothing
        order = _by_arrival(rows.arrivals)
        units = self._units(rows, order)
        if units.dropped:
            self._tell.shed(rows, np.setdiff1d(order, units.rows), CLOSED)
        if not len(units.rows):
            return nothing
        chosen = self._choose(rows, units)
        self._stats.predicted = chosen.predicted
        self._aside(rows, units, chosen)
        kept = units.only(chosen.kept)
        failed = self._fold(rows, kept)
        once = np.unique(kept.rows) if kept.several else kept.rows
        self._stats.kept = len(once)
        if failed:
            once = once[~np.isin(once, failed)]
        self._tell.worked_on(rows.arrivals[once])
        return chosen.spare if self._stats.kept else max(chosen.spare, nothing)

    def readmit(self, spare: float) -> None:
        """Work on rows that wait, the oldest first, for as long as there is time."""
        head, terms, stats = self._keyed.head, self._r._terms, self._stats
        patience = terms.patience if terms.chooses else math.inf
        dearest = self._costs.row + (self._costs.cold if head.cold else 0.0)
        for waiting in sorted(head.waiting, key=lambda waiting: waiting.oldest_us):
            # what rows cost is only known from working on some
            least = 0 if stats.kept or stats.readmitted else 1
            old = waiting.oldest_us / MICRO + patience < self._begins
            if spare < dearest and not old and not least:
                break
            rows = self._waiting(waiting)
            order = _by_arrival(rows.arrivals)
            if old:
                gone = rows.arrivals[order] / MICRO + patience < self._begins
                self._tell.shed(rows, order[gone], WAITED)
                order = order[~gone]
            most = int(min(len(order), spare / max(self._costs.row, 1e-9)))
            takes = self._taking(rows, order[: max(1, most)])
            fits = max(least, int(np.searchsorted(takes, spare, side="right")))
            now, later = order[:fits], order[fits:]
            if len(now):
                spare -= float(takes[len(now) - 1])
                stats.predicted += float(takes[len(now) - 1])
            if len(later):
                spare = 0.0  # those that come after are younger
            self._late(rows, now)
            self._hold(rows, later)

    def readmit_before(self, upto_us: int) -> None:
        """Work on rows that wait for windows which are to be closed."""
        windows = self._r._job.windows
        assert windows is not None
        for waiting in list(self._keyed.head.waiting):
            rows = self._waiting(waiting)
            order = _by_arrival(rows.arrivals)
            due = windows.first_end(rows.times[order]) <= upto_us
            self._late(rows, order[due])
            self._hold(rows, order[~due])

    def close(self, upto_us: int) -> None:
        """Put out windows that have ended by then."""
        job, head = self._r._job, self._keyed.head
        rows: list[Any] = []
        ends: list[int] = []
        # by end and key: the same in a worker that has read the states and one that had them
        for name, state in sorted(self._keyed.closing(upto_us), key=lambda due: due[0][::-1]):
            try:
                come = finalized(job, name, state)
            except Exception as error:
                self._tell.not_finalized(name, state, error)
                come = []
            rows += come
            ends += [name[1]] * len(come)
            self._gone.append(name)
            self._changed.pop(name, None)
        arrivals = np.full(len(rows), self._moment.stamp_us, np.int64)
        # the last moment of a window is in it, its end is not: so are results for jobs after this
        self._tell.results(rows, np.array(ends, np.int64) - 1, arrivals, "finalize")
        head.closed_us = max(head.closed_us, upto_us)
        head.timers = [end for end in head.timers if end > upto_us]

    def end(self) -> Done:
        """Keep the states, and tell."""
        keyed, stats, moment = self._keyed, self._stats, self._moment
        head = keyed.head
        begun = self._r._clock()
        keyed.commit(self._changed, self._gone)
        now = self._r._clock()
        spent = max(0.0, self._folding + now - begun - keyed.cold_seconds)
        if self._gone:
            closing = max(0.0, now - self._began - self._folding)
            head.close_cost = _told(head.close_cost, closing, len(self._gone))
        else:
            head.row_cost = _told(head.row_cost, spent, stats.kept + stats.readmitted)
            if stats.sought:
                each = max(0.0, keyed.cold_seconds / stats.sought)
                head.cold_cost = head.cold_cost.observe(each)
        if stats.rows:
            fixed = now - self._began - spent - keyed.cold_seconds
            head.fixed_cost = head.fixed_cost.observe(max(0.0, fixed))
        head.ended, head.ended_batch = now, moment.batch
        keyed.save()
        stats.ended, stats.waiting = now, sum(waiting.rows for waiting in head.waiting)
        stats.hot, stats.hot_bytes, stats.cold = len(keyed.states), keyed.memory.used, head.cold
        stats.row_us, stats.cold_us = 1e6 * self._costs.row, 1e6 * self._costs.cold
        stats.lead, stats.after = self._begins - moment.stamp_us / MICRO, self._after
        return Done(self._tell.end(), self._timers, stats.waiting)

    # -- rows ------------------------------------------------------------------------------------

    def _units(self, rows: Rows, order: Numbers) -> _Units:
        """Rows with the states that they change: one each, or one for each open window."""
        windows = self._r._job.windows
        encoded = rows.keys.dictionary_encode()
        keys = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy()[order].astype(np.int64)
        if windows is None:
            return _Units(order, codes, keys, False, False)
        first = windows.first_end(rows.times[order])
        ends = first[:, None] + np.arange(windows.most) * windows.slide_us
        held = windows.holds(ends, rows.times[order][:, None])
        held &= ends > self._keyed.head.closed_us
        which, step = np.nonzero(held)
        open_ends = ends[which, step]
        found, at = np.unique(open_ends, return_inverse=True)
        pairs, codes = np.unique(codes[which] * max(1, len(found)) + at, return_inverse=True)
        names = [
            (keys[pair // len(found)], int(found[pair % len(found)])) for pair in pairs.tolist()
        ]
        self._watch(found.tolist())
        return _Units(order[which], codes, names, windows.most > 1, len(which) < held.size)

    def _watch(self, ends: list[int]) -> None:
        """Ask to be called when windows end."""
        timers = self._keyed.head.timers
        for end in ends:
            if end not in timers:
                timers.append(end)
                # Spark calls once the watermark is beyond a timer, and at the end nothing may come
                self._timers.append(end // 1_000 - 1)

    def _choose(self, rows: Rows, units: _Units) -> Chosen:
        terms, keyed = self._r._terms, self._keyed
        times = np.bincount(units.codes, minlength=len(units.names))
        cold = np.zeros(len(units.names), bool)
        if keyed.head.cold:
            cold[:] = [keyed.is_cold(name) for name in units.names]
        if not terms.chooses:
            kept = np.ones(len(units.rows), bool)
            cost = len(kept) * self._costs.row + int(cold.sum()) * self._costs.cold
            predicted = self._begins + cost + self._after + self._costs.fixed
            return Chosen(kept, predicted, max(0.0, terms.objective / 2.0 - cost))
        kinds, at = classes(times, cold)[units.codes], np.arange(len(units.rows))
        if units.several:
            # a row goes into all of its windows or none, at what the dearest of them costs
            _, first, of = np.unique(units.rows, return_index=True, return_inverse=True)
            dearest = np.zeros(len(first), kinds.dtype)
            np.maximum.at(dearest, of, kinds)
            at = np.sort(first)
            kinds = dearest[of][at]
        ties = Ties(rows, units.rows[at], self._moment.stamp_us)
        chosen = choose(
            terms.policy,
            rows.arrivals[units.rows[at]],
            kinds,
            units.codes[at],
            rows.batches[units.rows[at]],
            terms.objective,
            self._begins,
            self._after,
            self._costs,
            ties.first,
        )
        self._probe(chosen.kept, kinds, rows.arrivals[units.rows[at]], ties)
        if units.several:
            kept = np.isin(units.rows, units.rows[at][chosen.kept])
            return Chosen(kept, chosen.predicted, chosen.spare)
        return chosen

    def _probe(self, kept: Numbers, kinds: Numbers, arrivals: Numbers, ties: Ties) -> None:
        """Work on a row of a cold key now and then, or what those cost is never known again."""
        cold = np.flatnonzero(kinds)
        if len(cold) and not kept[cold].any() and self._keyed.head.batches % _PROBING == 0:
            latest = cold[arrivals[cold] == arrivals[cold].max()]
            kept[ties.first(latest, 1, False)] = True

    def _aside(self, rows: Rows, units: _Units, chosen: Chosen) -> None:
        """What becomes of rows that are not worked on now."""
        terms = self._r._terms
        if chosen.kept.all():
            return
        left = units.rows[~chosen.kept]
        if units.several:
            left = np.unique(left)
        if not len(left):
            return
        deadlines = rows.arrivals[left] / MICRO + terms.objective
        if terms.late == "fail":
            worst = left[np.argmin(deadlines)]
            raise JobError(
                f"job {self._r._job.name!r}: {len(left)} of {len(rows)} rows cannot be out within "
                f"{terms.objective:g} s, such as {cut(row_of(rows, int(worst)))}, expected out "
                f"{chosen.predicted - rows.arrivals[worst] / MICRO:.3f} s after its arrival; "
                "late='side-output' would go on"
            )
        if terms.waits:
            self._hold(rows, left)
            return
        over = deadlines < self._begins + self._after
        self._tell.shed(rows, left[over], LATE, chosen.predicted)
        self._tell.shed(rows, left[~over], CROWDED, chosen.predicted)

    def _late(self, rows: Rows, at: Numbers) -> None:
        """Work on rows whatever their deadline."""
        if len(at):
            units = self._units(rows, at)
            if units.dropped:
                self._tell.shed(rows, np.setdiff1d(at, units.rows), CLOSED)
            done = len(np.unique(units.rows))
            self._stats.readmitted += done
            self._fold(rows, units)

    def _hold(self, rows: Rows, at: Numbers) -> None:
        if len(at):
            oldest = int(rows.arrivals[at].min())
            self._keyed.hold(pack(rows.take(at)), len(at), oldest, self._r._types)

    def _waiting(self, waiting: Waiting) -> Rows:
        """Take rows that were put by."""
        if waiting.types not in ("", self._r._types):
            raise JobError(
                f"job {self._r._job.name!r}: {waiting.rows} rows wait that were put by with "
                f"{waiting.types}, and now it is {self._r._types}: start it with key= and value= "
                "as they were until none wait"
            )
        return self._r._rows([self._keyed.held(waiting)])

    def _taking(self, rows: Rows, order: Numbers) -> Numbers:
        """Seconds that the first of these rows takes, the first two, and so on."""
        takes = np.full(len(order), self._costs.row)
        if self._keyed.head.cold:
            units = self._units(rows, order)
            cold = np.array([self._keyed.is_cold(name) for name in units.names], bool)
            found, first = np.unique(units.codes, return_index=True)
            place = np.zeros(len(rows), np.int64)
            place[order] = np.arange(len(order))
            np.add.at(takes, place[units.rows[first[cold[found]]]], self._costs.cold)
        return np.cumsum(takes)

    def _closing(self) -> float:
        """Seconds that the windows take which are closed at the end of this batch."""
        head, upto = self._keyed.head, self._moment.watermark_us
        if not any(end <= upto for end in head.timers):
            return 0.0
        states = self._keyed.states
        due = sum(1 for name in states if name[1] <= upto)
        outside = head.cold * (due / len(states) if states else 1.0)
        return float(head.close_cost.value * (due + outside))

    def _fold(self, rows: Rows, units: _Units) -> list[int]:
        """Fold rows into the states of their keys; those on which a function failed."""
        job, keyed = self._r._job, self._keyed
        if not len(units.rows):
            return []
        begun = self._r._clock()
        if keyed.head.cold:
            seen = np.unique(units.codes).tolist()
            self._stats.sought += keyed.fetch(units.names[code] for code in seen)
        values = rows.values.take(pa.array(units.rows))
        work = Work(units.names, units.codes, rows.times[units.rows], values)
        if units.several and self._r._terms.keep_bad:
            work.rows = units.rows
        done = fold(job, work, keyed.states, self._r._codec)
        failed = {int(units.rows[unit]): reason for unit, reason in done.bad.items()}
        for at, reason in failed.items():
            self._tell.bad(rows, at, reason)
        for name, times in done.changed.items():
            self._changed[name] = self._changed.get(name, 0) + times
        places = units.rows[np.array(done.places, np.int64)]
        what = "update" if job.update is not None else "update_many"
        self._tell.results(done.out, rows.times[places], rows.arrivals[places], what)
        self._folding += self._r._clock() - begun
        return list(failed)


@dataclass(slots=True)
class _Units:
    """Rows, each with the state that it changes; several for a row that is in several windows."""

    rows: Numbers
    codes: Numbers
    names: list[Any]
    several: bool
    dropped: bool
    """Whether there may be rows without any."""

    def only(self, kept: Numbers) -> _Units:
        """Some of them."""
        if kept.all():
            return self
        return _Units(self.rows[kept], self.codes[kept], self.names, self.several, self.dropped)


def _told(known: Recent, spent: float, many: int) -> Recent:
    """What one of them takes, if this tells."""
    least = known.value if known.seen else math.inf
    # of few in no time, what says less than was known is nearer all the same
    if many and (many >= _TELLING or spent >= _LONG or spent / many < least):
        return known.observe(spent / many)
    return known


def _by_arrival(arrivals: Numbers) -> Numbers:
    """The order that rows came in."""
    if len(arrivals) < 2 or bool((arrivals[1:] >= arrivals[:-1]).all()):
        return np.arange(len(arrivals))
    return np.argsort(arrivals, kind="stable")
