"""Figures and names as the page shows them."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

import markupsafe

from shalott.harness.fleet.page.data import Verdicts

TEXT_MAX = 300
# Of each Unicode category what it does to a page: Cc and Cf move or hide text, Cs is no character.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: str) -> str:
    """Somebody else's text, safe to look at: what can't be seen is shown as its number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in _UNSEEN else char for char in text
    )


def shortened(text: str, at_most: int = TEXT_MAX) -> str:
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"


def count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def percent(part: float) -> str:
    """Two digits that tell something: neither 0 nor 100 is said of what is not quite that."""
    value = 100 * part
    if value <= 0 or value >= 100:
        return "0 %" if value <= 0 else "100 %"
    from_end = float(f"{min(value, 100 - value):.2g}")
    if from_end < 1e-6:
        return "under 0.000001 %" if value < 50 else "over 99.999999 %"
    digits = max(0, 1 - math.floor(math.log10(from_end)) - (value > 50 or from_end >= 10))
    text = f"{value:.{digits}f}"
    return f"{text} %"


def duration(ns: int | None) -> str:
    """None is never."""
    if ns is None:
        return "never"
    if ns < 10**9:
        return f"{ns / 1e6:,.0f} ms"
    return f"{ns / 1e9:,.2f} s" if ns < 100 * 10**9 else f"{ns / 1e9:,.0f} s"


def moment(wall_ns: int | None) -> str:
    """A wall time, in UTC."""
    if wall_ns is None:
        return "unknown"
    return f"{datetime.fromtimestamp(wall_ns // 10**9, UTC):%Y-%m-%d %H:%M} UTC"


def breakable(text: str) -> markupsafe.Markup:
    """A name of several parts, which may be broken between them."""
    shown = markupsafe.escape(plain(text))
    for mark in "/+@":
        shown = shown.replace(mark, markupsafe.Markup(f"{mark}<wbr>"))
    return shown


def verdict_words(counts: Verdicts) -> list[tuple[str, str]]:
    """Each verdict that there is, with its style."""
    told = (
        ("bad", counts.invalid, "invalid"), ("doubt", counts.unknown, "unknown"),
        ("doubt", counts.none, "without a verdict"), ("good", counts.valid, "valid"),
    )  # fmt: skip
    return [(style, f"{number:,} {word}") for style, number, word in told if number]


def number_of(count_: int, one: str, several: str = "") -> str:
    """As in: 1 run, 2 runs."""
    return f"{count_:,} {one if count_ == 1 else several or one + 's'}"
