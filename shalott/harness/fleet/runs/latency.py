"""The latency digest: a histogram with log-linear buckets, which can be added up over runs.

A bucket holds latencies that differ by at most 1/32, counted in microseconds: below 32 us each has
a bucket of its own, and every doubling above it is cut into 32 equal parts (after HdrHistogram, Gil
Tene). Two digests are merged by adding the counts of equal buckets; a quantile of the sum is then
exact to 1/32 of its value, which no mean of quantiles is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

PARTS = 32
_SHIFT = PARTS.bit_length() - 1
US, MS_IN_US = 1000, 1000
LARGEST_US = 2**46  # two years: what is longer counts as this


def buckets_of(took_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each latency in ns; negative ones count as 0."""
    us = np.clip(took_ns // US, 0, LARGEST_US)
    # The position of the highest bit; exact, as such numbers are whole in a double.
    high = np.frexp(us.astype(np.float64))[1] - 1
    shift = np.maximum(high - _SHIFT, 0)
    return np.asarray(shift * PARTS + (us >> shift), dtype=np.int64)


def bounds_us(bucket: int) -> tuple[int, int]:
    """The latencies of a bucket in us: from the first to below the second."""
    shift = max(bucket // PARTS - 1, 0)
    first = bucket - shift * PARTS
    return first << shift, (first + 1) << shift


def digest(took_ns: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    """[{"bucket", "count"}] in order; [] of nothing."""
    found, counts = np.unique(buckets_of(took_ns), return_counts=True)
    return [
        {"bucket": int(bucket), "count": int(count)}
        for bucket, count in zip(found, counts, strict=True)
    ]


def merged(digests: Iterable[Iterable[Mapping[str, int]]]) -> list[dict[str, int]]:
    """The digest of all that these were made of."""
    total: Counter[int] = Counter()
    for one in digests:
        for each in one:
            total[each["bucket"]] += each["count"]
    return [{"bucket": bucket, "count": total[bucket]} for bucket in sorted(total)]


def quantile_ms(of: Iterable[Mapping[str, int]], share: float) -> float | None:
    """The middle of the bucket below or in which ``share`` of all is; None of nothing."""
    ordered = sorted((each["bucket"], each["count"]) for each in of)
    wanted = share * sum(count for _, count in ordered)
    seen = 0
    for bucket, count in ordered:
        seen += count
        if seen >= wanted - 1e-9:
            low, high = bounds_us(bucket)
            return (low + high) / 2 / MS_IN_US
    return None
