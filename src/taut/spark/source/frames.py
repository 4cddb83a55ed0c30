"""Messages on a socket: a length of four bytes, then msgpack. Never pickle, always bounded.

One connection carries requests and their answers in order. The first frame of a client is a
:class:`Hello` with the token; a server that does not like it closes without a word.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

VERSION = 1
MAX_FRAME = 64 * 2**20
"""Bytes of the largest frame. A length above it is garbage or an attack: the peer is cut off."""
HELLO_FRAME = 4_096
"""Bytes of the largest frame before a peer has shown its token."""

_LENGTH = struct.Struct(">I")
_RECEIVE = 2**18


class FrameError(Exception):
    """What came is no frame of ours: cut off, too long, or not msgpack."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a connection."""

    version: int
    token: str


def encode(message: object) -> bytes:
    """A frame with its length.

    >>> encode({"a": 1}).hex()
    '0000000481a16101'
    """
    body = msgspec.msgpack.encode(message)
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes: at most {MAX_FRAME} fit in a frame")
    return _LENGTH.pack(len(body)) + body


def knows(hello: Hello, token: str) -> bool:
    """Whether a client speaks this version and holds the token."""
    same = hmac.compare_digest(hello.token.encode(), token.encode())
    return hello.version == VERSION and same


class Frames:
    """Bytes as they come in, to whole frames.

    >>> frames = Frames()
    >>> frames.add(encode(1) + encode("ab")[:3])
    >>> frames.next() == msgspec.msgpack.encode(1), frames.next(), frames.partial
    (True, None, True)
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """More bytes."""
        self._bytes += data

    def next(self, limit: int = MAX_FRAME) -> bytes | None:
        """The body of the next frame, None until it is whole."""
        if len(self._bytes) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._bytes)
        if size > limit:
            raise FrameError(f"a frame of {size} bytes: at most {limit} are taken")
        end = _LENGTH.size + size
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        return body

    @property
    def partial(self) -> bool:
        """Whether there is part of a frame."""
        return bool(self._bytes)


class Client:
    """A blocking connection for one thread: ask, and wait for the answer.

    Parameters
    ----------
    address
        Host and port.
    token
        What the server expects in the first frame.
    timeout
        Seconds for a connection or an answer, then :class:`OSError`.
    """

    def __init__(self, address: tuple[str, int], token: str, timeout: float = 30.0) -> None:
        self._frames = Frames()
        self._socket = socket.create_connection(address, timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(encode(Hello(VERSION, token)))
        except BaseException:
            self._socket.close()
            raise

    def ask(self, message: object, decode: Callable[[bytes], Any] = msgspec.msgpack.decode) -> Any:
        """Send a message and return its answer."""
        self.send(message)
        return self.answer(decode)

    def send(self, message: object) -> None:
        """Send a message; its :meth:`answer` is still to be read."""
        self._socket.sendall(encode(message))

    def answer(self, decode: Callable[[bytes], Any] = msgspec.msgpack.decode) -> Any:
        """The answer to what was sent."""
        while (body := self._frames.next()) is None:
            got = self._socket.recv(_RECEIVE)
            if not got:
                raise ConnectionError("the server closed the connection")
            self._frames.add(got)
        return decode(body)

    def close(self) -> None:
        """Close the connection; again is harmless."""
        self._socket.close()
