"""Balance: three operators in a line, each with the same amount of arithmetic for every tuple.

Published were 200,000 operations a tuple and operator. Here they are the 200,000 steps of a CRC
over as many bytes, in C: 0.06 to 0.2 ms of a core. As many steps in Python would take 10 ms, and
five machines would not fit on two cores.
"""

from __future__ import annotations

import zlib

from taut.workloads.topologies.topology import Bolt

OPERATIONS = 200_000
_BYTES = (bytes(range(251)) * (OPERATIONS // 251 + 1))[:OPERATIONS]


def emit(n: int) -> str:
    """A number to begin with."""
    return f"{n} 0 {n & 0xFFFFFFFF:08x}"


def reckon(value: str) -> str:
    """The checksum of the bytes, begun with the one before."""
    head, _, before = value.rpartition(" ")
    return f"{head} {zlib.crc32(_BYTES, int(before, 16)):08x}"


BOLTS = (Bolt("map", reckon),) * 3
