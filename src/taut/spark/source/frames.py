"""Messages on a socket: a length of four bytes, then msgpack. Never pickle, always bounded.

One connection carries requests and their answers in order. The first frame of a client is a
:class:`Hello` with the token; a server that does not like it closes without a word.
"""

from __future__ import annotations

import asyncio
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


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_FRAME) -> bytes | None:
    """The next frame's body; None when the peer has closed between two frames."""
    try:
        head = await reader.readexactly(_LENGTH.size)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise FrameError("cut off in the middle of a length") from None
    (size,) = _LENGTH.unpack(head)
    if size > limit:
        raise FrameError(f"a frame of {size} bytes: at most {limit} are taken")
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        raise FrameError("cut off in the middle of a frame") from None


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
        self._socket = socket.create_connection(address, timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(encode(Hello(VERSION, token)))
        except BaseException:
            self._socket.close()
            raise

    def ask(self, message: object, decode: Callable[[bytes], Any] = msgspec.msgpack.decode) -> Any:
        """Send a message and return its answer."""
        self._socket.sendall(encode(message))
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if size > MAX_FRAME:
            raise FrameError(f"an answer of {size} bytes: at most {MAX_FRAME} are taken")
        return decode(self._exactly(size))

    def close(self) -> None:
        """Close the connection; again is harmless."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            got = self._socket.recv(size - len(parts))
            if not got:
                raise ConnectionError("the server closed the connection")
            parts += got
        return bytes(parts)
