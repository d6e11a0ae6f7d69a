"""What the head of a report says below the verdict: why messages were lost and what would close it;
and how long no client was served, which every run tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Result
from shalott.core.plan import Plan
from shalott.harness.report import draw
from shalott.harness.report.loss_windows import LOSS_WINDOWS, Setting, closing_settings
from shalott.harness.report.losses import loss_of
from shalott.harness.report.shown_anomalies import Detail

CAUSES_MAX = 3


@dataclass(frozen=True, slots=True)
class CauseLine:
    """One cause of loss. ``share``: how many of the lost messages it took, in words."""

    window: str
    title: str
    share: str
    remedy: str  # "" if nothing known closes it


def cause_lines(plan: Plan, results: Sequence[Result]) -> list[CauseLine]:
    """The chief causes of what was lost, the gravest first; none if nothing was lost."""
    by_cause: Mapping[str, int] = loss_of(results).get("by-cause", {})
    total = sum(by_cause.values())
    ranked = sorted(by_cause.items(), key=lambda item: (item[0] != "unexplained", -item[1]))
    lines = [_cause_line(plan, window, n, total) for window, n in ranked[:CAUSES_MAX]]
    rest = sum(n for _, n in ranked[CAUSES_MAX:])
    if rest:
        lines.append(CauseLine("", "other causes, which are listed below", _share(rest, total), ""))
    return lines


def _cause_line(plan: Plan, window: str, lost: int, total: int) -> CauseLine:
    share = _share(lost, total)
    if window not in LOSS_WINDOWS:
        title = (
            "no event and no fault explains it: this may be a fault of the broker"
            if window == "unexplained"
            else f"{window.replace('-', ' ')}: too many runs of loss"
        )
        return CauseLine("", title, share, "")
    title, words = LOSS_WINDOWS[window]
    return CauseLine(window, title, share, _remedy(words, closing_settings(window, plan)))


def _remedy(words: str, settings: Sequence[Setting]) -> str:
    """What closes it; of the settings that do, what this run had."""
    if not settings:
        return f"Closed by {words}."
    missing = [one for one in settings if not one.is_set]
    if not missing:
        names = " and ".join(f"{one.name}={one.own}" for one in settings)
        return f"This run had {names}, which should have closed it."
    closed = ", ".join(f"{one.name}={one.closed}" for one in missing)
    own = ", ".join(f"{one.name}={one.own}" if one.own else _unset(one) for one in missing)
    if all(not one.own for one in missing):
        return f"Closed by {closed}, which this run did not set."
    return f"Closed by {closed}; this run had {own}."


def _unset(setting: Setting) -> str:
    return f"{setting.name} not set"


def _share(part: int, total: int) -> str:
    if part == total:
        return f"all {total:,} lost messages" if total > 1 else "the lost message"
    return f"{part:,} of {total:,} lost messages ({100 * part / total:.0f} %)"


@dataclass(frozen=True, slots=True)
class Served:
    """How well a run was served. ``figures``: (what, how much, which tells more)."""

    figures: list[tuple[str, str, str]]
    is_bad: bool  # beyond what the plan allows, or never again


def availability_line(results: Sequence[Result]) -> Served | None:
    """None if no checker measured it."""
    result = next((one for one in results if one.checker == "availability"), None)
    if result is None:
        return None
    counts, faults = result.counts, result.detail.get("faults") or ()
    gap = result.detail.get("longest-gap")
    figures = []
    if counts.get("acknowledged-fraction"):
        figures.append(
            ("acknowledged", f"{100 * counts['acknowledged-fraction']:.1f} %", "of what was sent")
        )
    if gap:
        figures.append(("longest without an acknowledgement", _ms(gap["ms"]), _where(gap, faults)))
    if faults:
        never = int(counts.get("never-recovered-count", 0))
        slowest = max(
            (one for one in faults if one["recovery_ms"] is not None),
            key=lambda one: one["recovery_ms"],
            default=None,
        )
        if slowest is not None:
            figures.append(
                ("slowest first acknowledgement after a fault", _ms(slowest["recovery_ms"]),
                 f"after {slowest['fault']}")
            )  # fmt: skip
        if never:
            times = f"{never} fault{'' if never == 1 else 's'}"
            figures.append(("never acknowledged again", times, ""))
    allowed = result.detail.get("max_rto_ms")
    if allowed:
        figures.append(("longest outage allowed", _ms(allowed), ""))
    bad = result.valid is False or bool(counts.get("never-recovered-count"))
    return Served(figures, bad) if figures else None


def _where(gap: Detail, faults: Sequence[Detail]) -> str:
    """In which queue and when; and of which faults it is the longest gap, too."""
    span = f"{gap['begin_ns'] / 1e9:.1f}–{gap['end_ns'] / 1e9:.1f} s"
    around = [
        str(one["fault"])
        for one in faults
        if (one.get("longest_gap") or {}).get("begin_ns") == gap["begin_ns"]
    ]
    during = f", around {around[0]}" if around else ""
    return f"{gap['queue']}, {span}{during}"


def _ms(value: float) -> str:
    return draw.duration_label(value * 1e6)
