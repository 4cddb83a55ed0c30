"""Numbers drawn from the numbers of rows, the same in the JVM and in numpy.

Both sides compute Spark's ``xxhash64``, so that a test knows a row without asking Spark for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as F

from taut.workloads.reduce.options import whole
from taut.workloads.windows import WorkloadError

if TYPE_CHECKING:
    from pyspark.sql import Column

Longs: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
        0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip
_SPARK_SEED = 42
_SPACING = 2.0**-53
"""Between doubles in [0.5, 1): a draw has as many bits as a double can tell apart."""


def hashed(n: Column, salt: int) -> Column:
    """A hash of a number, any bigint."""
    return F.xxhash64(n, F.lit(salt).cast("bigint"))


def hashed_array(n: Longs, salt: int) -> Longs:
    """:func:`hashed` in numpy."""
    first = _hash_long(n.view(np.uint64), np.full(n.shape, _SPARK_SEED, np.uint64))
    both: Longs = _hash_long(np.full(n.shape, salt, np.uint64), first).view(np.int64)
    return both


def uniform(n: Column, salt: int) -> Column:
    """A number in [0, 1)."""
    return F.shiftrightunsigned(hashed(n, salt), 11).cast("double") * F.lit(_SPACING)


def uniform_array(n: Longs, salt: int) -> Doubles:
    """:func:`uniform` in numpy."""
    bits = hashed_array(n, salt).view(np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * _SPACING


def pick(n: Column, salt: int, among: int) -> Column:
    """A whole number from 0 to ``among - 1``."""
    return F.pmod(hashed(n, salt), F.lit(among).cast("bigint"))


def pick_array(n: Longs, salt: int, among: int) -> Longs:
    """:func:`pick` in numpy."""
    return hashed_array(n, salt) % among


@dataclass(frozen=True, slots=True)
class Zipf:
    """Ranks from 1 to ``keys``, nearly as often as Zipf's law says: rank r in proportion to r^-s.

    A rank is a continuous number rounded, whose density is x^-s from 1/2 to keys + 1/2, because the
    inverse of that is one expression. So the share of rank r is in proportion to the integral of
    x^-s from r - 1/2 to r + 1/2. For s = 1 and 20,000 keys that gives the first rank 10.4 % where
    Zipf's law says 9.5 %, and every other rank its share within 7 %; for s = 0 it is exact.

    Parameters
    ----------
    keys
        How many ranks.
    exponent
        s, from 0 (all alike) to 10.
    """

    keys: int
    exponent: float = 1.0

    def __post_init__(self) -> None:
        whole("keys", self.keys, least=1)
        if not 0 <= self.exponent <= 10:
            raise WorkloadError(f"zipf={self.exponent!r}: must be from 0 (all keys alike) to 10")

    def rank(self, share: Column) -> Column:
        """The rank below which this share of all draws lie."""
        scale, add, base, power = self._inverse()
        if base is not None:
            x = F.lit(scale) * F.pow(F.lit(base), share)
        else:
            x = F.pow(F.lit(add) + share * F.lit(scale), F.lit(power))
        # a draw just below 1 may round to one rank too many
        return F.floor(F.least(x + F.lit(0.5), F.lit(float(self.keys)))).cast("bigint")

    def ranks(self, shares: Doubles) -> Longs:
        """:meth:`rank` in numpy."""
        scale, add, base, power = self._inverse()
        x = scale * np.power(base, shares) if base is not None else (add + shares * scale) ** power
        return np.floor(np.minimum(x + 0.5, float(self.keys))).astype(np.int64)

    def shares(self) -> Doubles:
        """The share of each rank, the first one first."""
        edges: Any = np.arange(self.keys + 1) + 0.5
        power = 1.0 - self.exponent
        below = np.log(edges) if self._is_one else edges**power / power
        shares: Doubles = np.diff(below) / (below[-1] - below[0])
        return shares

    @property
    def _is_one(self) -> bool:
        return abs(self.exponent - 1.0) < 1e-6

    def _inverse(self) -> tuple[float, float, float | None, float]:
        """``scale * base ** share``, or without a base ``(add + share * scale) ** power``."""
        low, high = 0.5, self.keys + 0.5
        if self._is_one:
            return low, 0.0, high / low, 1.0
        power = 1.0 - self.exponent
        return high**power - low**power, low**power, None, 1.0 / power


def _hash_long(value: npt.NDArray[np.uint64], seed: npt.NDArray[np.uint64]) -> Any:
    """One round of xxHash64 over eight bytes, as Spark chains it from column to column."""
    mixed = seed + _P5 + np.uint64(8)
    mixed ^= _rotated(value * _P2, 31) * _P1
    mixed = _rotated(mixed, 27) * _P1 + _P4
    mixed ^= mixed >> np.uint64(33)
    mixed *= _P2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _P3
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
