"""The Kafka clients of this process. Logs are values; clients are opened once and used again.

A client has threads, which a fork does not copy: a forked process opens its own, and never frees
those it has inherited, because that would wait for threads that are not there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from taut.errors import LogError
from taut.spark.source.logs.kafka_stream import Stream

OURS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}
"""Settings that are not the user's: Spark keeps the offsets."""
_ALWAYS = {
    "client.id": "taut",
    "log_level": "2",  # errors are told where they matter, not printed by a thread
    "reconnect.backoff.max.ms": "1000",
}
_CONSUMER = {
    "group.id": "taut",
    "isolation.level": "read_committed",
    # a fetch that waits for new records holds up the next one, of another place
    "fetch.wait.max.ms": "10",
    # records are skipped that other lanes take: do not fetch far ahead, and look again soon
    "queued.min.messages": "10000",
    "fetch.queue.backoff.ms": "5",
}

Settings = Mapping[str, str]
_Key = frozenset[tuple[str, str]]


class _Clients:
    """All clients of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.admins: dict[_Key, AdminClient] = {}
        self.troubles: dict[_Key, str] = {}
        self.idle: dict[_Key, list[Stream]] = {}


_clients = _Clients()
_inherited: list[_Clients] = []


def admin(settings: Settings) -> AdminClient:
    """What asks for offsets and settings of topics; for any thread."""
    here, key = _here(), frozenset(settings.items())

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            here.troubles[key] = error.str()

    with here.lock:
        if key not in here.admins:
            with _refusing(settings):
                here.admins[key] = AdminClient(_ALWAYS | dict(settings) | {"error_cb": note})
        return here.admins[key]


def trouble(settings: Settings) -> str | None:
    """What went wrong last with the connections that ask for offsets."""
    admin(settings).poll(0)  # where the client tells
    return _here().troubles.get(frozenset(settings.items()))


@contextmanager
def stream(settings: Settings, topic: str, partition: int, start: int) -> Iterator[Stream]:
    """A stream for one read, if possible one that is already at its place."""
    here, key = _here(), _stream_key(settings, topic)
    with here.lock:
        idle = here.idle.setdefault(key, [])
        suiting = [each for each in idle if each.suits(topic, partition, start)]
        taken = (suiting or idle)[-1:]
        for each in taken:
            idle.remove(each)
    if not taken:
        with _refusing(settings):
            taken = [Stream(Consumer(_ALWAYS | _CONSUMER | dict(settings) | OURS))]
    try:
        yield taken[0]
    finally:
        with here.lock:
            idle.append(taken[0])


def rest(settings: Settings, topic: str) -> None:
    """Let the idle streams fetch no more; they stay connected for the next read."""
    here = _here()
    with here.lock:
        for each in here.idle.get(_stream_key(settings, topic), []):
            each.rest()


def _stream_key(settings: Settings, topic: str) -> _Key:
    # a consumer that is set to a topic it does not know yet takes up to a second
    return frozenset({*settings.items(), ("subscribe", topic)})


def _here() -> _Clients:
    global _clients  # noqa: PLW0603 -- a process has one set of clients
    if _clients.process != os.getpid():
        _inherited.append(_clients)
        _clients = _Clients()
    return _clients


@contextmanager
def _refusing(settings: Settings) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise LogError(
            f"options kafka.*: {error.args[0].str()}; must be settings of librdkafka, here "
            f"{', '.join(sorted(settings))}"
        ) from error
