"""Buckets: how many there are, and labels that put each of them into a separate partition."""

from __future__ import annotations

from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.errors import BudgetError, PenstockError

LEAST_TUPLES = 16  # with a smaller share, policies have nothing to choose from
LEAST_BYTES = 16 * 1024


def bucket_count(given: int | None, budget: Budget, partitions: int) -> int:
    """Return the number of buckets: as given, or the partitions, fewer if shares would be too small.

    >>> import penstock as ps
    >>> from penstock.spark.runtime.bucket_labels import bucket_count
    >>> bucket_count(None, ps.Tuples(100), 200), bucket_count(3, ps.Tuples(100), 200)
    (6, 3)
    """
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise PenstockError(f"buckets={given!r} is not allowed; it must be a whole number from 1 up.")
        return given
    most = budget.n // LEAST_TUPLES if isinstance(budget, Tuples) else partitions
    if isinstance(budget, Bytes):
        most = budget.n // LEAST_BYTES
    return max(1, min(partitions, most))


def share(budget: Budget, buckets: int) -> Budget:
    """Return the share of the budget of one bucket."""
    if isinstance(budget, Fraction):
        raise BudgetError(
            f"{budget!r} is a share of what the whole input needs, unknown for a stream; give Tuples "
            "or Bytes."
        )
    part = budget.n // buckets
    if part < 1:
        raise BudgetError(f"{budget} over {buckets} buckets leaves nothing for each; give fewer buckets.")
    return Tuples(part) if isinstance(budget, Tuples) else Bytes(part)


def labels(buckets: int) -> list[int]:
    """Return, per bucket, the smallest number that Spark's hash partitioning sends to partition `bucket`.

    Grouped by bucket numbers, several buckets could share a partition and leave others idle.

    >>> from penstock.spark.runtime.bucket_labels import labels
    >>> len(set(labels(8)))
    8
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < buckets:
        found.setdefault(_spark_hash(number) % buckets, number)
        number += 1
    return [found[bucket] for bucket in range(buckets)]


def _spark_hash(value: int) -> int:
    """Spark's hash of an int: the 32-bit x86 variant of MurmurHash3 with seed 42, as a signed number."""
    mask = 0xFFFFFFFF

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & mask

    block = rotated(((value & mask) * 0xCC9E2D51) & mask, 15) * 0x1B873593 & mask
    hashed = (rotated(42 ^ block, 13) * 5 + 0xE6546B64) & mask
    hashed ^= 4
    hashed = ((hashed ^ (hashed >> 16)) * 0x85EBCA6B) & mask
    hashed = ((hashed ^ (hashed >> 13)) * 0xC2B2AE35) & mask
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed
