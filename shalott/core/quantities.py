"""Amounts as users write them on the command line: times and sizes, with their units."""

from __future__ import annotations

import re
from typing import Final

from shalott.core.errors import UsageError

_TIME_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1000}
_BYTES: Final = {
    "": 1, "B": 1,
    "KB": 1000, "MB": 1000**2, "GB": 1000**3, "K": 1000, "M": 1000**2, "G": 1000**3,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
}  # fmt: skip


def parse_duration_ms(flag: str, text: str) -> int:
    """60, 60s, 1.5s, 500ms, 2m, 3h or 1d, as milliseconds; a bare number is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", text.strip())
    if found is None or float(found[1]) == 0:
        raise UsageError(f"{flag} {text}: give a time above 0, such as 30, 30s, 500ms or 2m")
    return max(1, round(float(found[1]) * _TIME_MS[found[2]]))


def parse_bytes(flag: str, text: str) -> int:
    """2GB, 1.5GiB, 500M or a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?(?:I?B)?)", text.strip().upper())
    if found is None or found[2] not in _BYTES or float(found[1]) == 0:
        raise UsageError(f"{flag} {text}: give a size above 0, such as 2GB, 1.5GiB or 500MB")
    return max(1, round(float(found[1]) * _BYTES[found[2]]))
