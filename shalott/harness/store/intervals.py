"""How sure a share is: Wilson's score interval for k of n (E. B. Wilson, 1927)."""

from __future__ import annotations

import math

Z95 = 1.959963984540054  # the 97.5 % point of the normal distribution


def wilson(k: int, n: int, z: float = Z95) -> tuple[float, float]:
    """The interval of shares that k of n are compatible with; (0, 1) of nothing."""
    if n == 0:
        return 0.0, 1.0
    share = k / n
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    middle, scale = share + z * z / (2 * n), 1 + z * z / n
    low = 0.0 if k == 0 else (middle - spread) / scale
    high = 1.0 if k == n else (middle + spread) / scale
    return low, high
