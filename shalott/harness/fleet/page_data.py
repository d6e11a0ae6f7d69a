"""What the page of a fleet report shows, as data: the same whichever engine counted.

Every share has its denominator and Wilson's score interval at 95 % (E. B. Wilson, "Probable
Inference, the Law of Succession, and Statistical Inference", JASA 22, 1927). None is what is
not known, and is shown as that. Lists are cut to a number of rows; ``left_out`` counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from shalott.harness.matrix.night_findings import Finding, Share
from shalott.harness.store.intervals import wilson

LINKS = 3  # runs that a row leads to
SPARK_DAYS = 14

T = TypeVar("T")


def share(k: int, n: int) -> Share | None:
    """k of n with its interval; None of nothing."""
    if n == 0:
        return None
    low, high = wilson(k, n)
    return Share(k=k, n=n, low=low, high=high)


class Listed(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The first rows of a list, and how many more it has."""

    rows: tuple[T, ...] = ()
    left_out: int = 0


def listed(rows: Sequence[T], at_most: int) -> Listed[T]:
    return Listed(rows=tuple(rows[:at_most]), left_out=max(0, len(rows) - at_most))


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by verdict. ``none``: the harness failed, or there is no verdict (yet)."""

    valid: int = 0
    invalid: int = 0
    unknown: int = 0
    none: int = 0

    @property
    def total(self) -> int:
        return self.valid + self.invalid + self.unknown + self.none

    @property
    def expected(self) -> int:
        """None: here a run that may fail counts as what it is."""
        return 0

    @property
    def failing(self) -> Share | None:
        """Invalid ones of those of which a verdict says yes or no."""
        return share(self.invalid, self.invalid + self.valid)


def count_verdicts(verdicts: Iterable[str]) -> Verdicts:
    """Of words that are Verdicts' names."""
    counts = {"valid": 0, "invalid": 0, "unknown": 0, "none": 0}
    for verdict in verdicts:
        counts[verdict] += 1
    return Verdicts(**counts)


class Axes(msgspec.Struct, frozen=True, order=True):
    """What ran and what broke it; "?" is not known. ``nemesis``: kinds of faults, or "none"."""

    system: str
    profile: str
    workload: str
    nemesis: str
    cluster: str


class CellRow(msgspec.Struct, frozen=True, kw_only=True):
    """``days``: this cell on the last days on which anything ran, the newest last; None of a day
    without it. ``worst``: runs that are not valid, the newest first; else the newest."""

    axes: Axes
    verdicts: Verdicts
    days: tuple[Verdicts | None, ...]
    worst: tuple[str, ...]


class LossRow(msgspec.Struct, frozen=True, kw_only=True):
    """``lost``: acknowledged messages that are certainly gone; ``unsure`` may be. ``rate`` is by
    message, ``lossy`` by run. ``worst``: the runs that lost most."""

    system: str
    profile: str
    nemesis: str
    acknowledged: int
    lost: int
    unsure: int
    rate: Share | None
    lossy: Share | None
    worst: tuple[str, ...]


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """``runs``: that sent messages, and are in ``rows``; ``by_verdict``: of them those whose
    history is gone, so that their own verdict's counts stand here; ``without``: runs in which no
    message was sent; ``unknown``: whose end is unknown."""

    rows: Listed[LossRow]
    runs: int
    by_verdict: int
    without: int
    unknown: int


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A UTC day of true time on which runs were made. ``acknowledged`` and ``lost`` as in LossRow,
    of ``counted`` runs. ``worst`` as in CellRow."""

    day: str
    verdicts: Verdicts
    counted: int
    acknowledged: int
    lost: int
    worst: tuple[str, ...]


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """``drawn``: the newest calendar days, the oldest first, with those on which nothing ran.
    ``rows``: days on which something ran, the newest first. ``undated``: runs of unknown time."""

    drawn: tuple[Day, ...]
    earlier: int  # runs on days before those that are drawn
    rows: Listed[Day]
    undated: int


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The newest night beside those before it. ``matrix``: whose night it is; "": a UTC day.
    ``expectations``: whether it is known what the matrix expects of its cells."""

    night: str
    matrix: str
    verdicts: Verdicts
    again: int
    compared_with: tuple[str, ...]
    expectations: bool
    findings: Listed[Finding]
    statuses: dict[str, int]


class OutageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run's longest time without an acknowledgement. ``queue`` and ``during`` (kinds of faults
    in force then) are None where only the run's own verdict tells of it."""

    run: str
    axes: Axes
    gap_ns: int
    queue: str | None
    begin_ns: int | None
    during: tuple[str, ...] | None


class Outages(msgspec.Struct, frozen=True, kw_only=True):
    """``measured`` runs of ``runs``."""

    rows: Listed[OutageRow]
    measured: int
    runs: int


class RecoveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """Time from when a fault took hold to the first acknowledgement of what was asked after that.

    ``faults``: all of them; ``unasked``: no operation was invoked while they lasted and nothing was
    acknowledged after, which tells nothing; ``never``: asked, and nothing was acknowledged any
    more. Quantiles are over ``faults - unasked``, by nearest rank, never counting as longest: None
    is never. ``worst``: the runs of the longest."""

    fault: str
    system: str
    faults: int
    runs: int
    unasked: int
    never: int
    median_ns: int | None
    p95_ns: int | None
    worst_ns: int | None
    worst: tuple[str, ...]


class Recoveries(msgspec.Struct, frozen=True, kw_only=True):
    """``runs`` with faults whose history was read; ``unknown``: runs whose history is gone."""

    rows: Listed[RecoveryRow]
    runs: int
    unknown: int


class DualRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two masters at once, by what was in force when it began. ``runs``: in how many of the runs
    of this system, profile and mode. ``longest_ns``: None if only an epoch tells of them."""

    system: str
    profile: str
    mode: str
    cause: str
    claimed: int
    effective: int
    runs: Share | None
    torn: Share | None  # runs in which both acknowledged
    longest_ns: int | None
    worst: tuple[str, ...]


class Duals(msgspec.Struct, frozen=True, kw_only=True):
    """``runs``: judged for it. ``unknown``: runs whose history is gone."""

    rows: Listed[DualRow]
    runs: int
    unknown: int


class CampaignRow(msgspec.Struct, frozen=True, kw_only=True):
    """A search. ``classes``: in how many of the judged seeds each kind of anomaly was found.
    ``kept``: its findings, as runs."""

    run: str
    name: str
    system: str | None
    profile: str | None
    workload: str | None
    wanted: int | None
    judged: int | None
    valid: int | None
    invalid: int | None
    unknown: int | None
    not_booted: int | None
    failing: Share | None
    classes: tuple[tuple[str, int], ...]
    kept: Listed[str]


class PageData(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    ``verdicts``: of the sample, which are runs that were not chosen by a failure. ``again``: runs
    that were repeated because they had failed; ``findings``: of searches; neither is in any share.
    ``outages``, ``recoveries``: None if the engine does not tell. ``differs``: runs whose
    results.json counts something otherwise, with what.
    """

    store: str
    verdicts: Verdicts
    again: int
    findings: int
    untabled: int  # runs that the table of runs does not have: only what the report tells is known
    first_ns: int | None
    last_ns: int | None
    commits: int
    cells: Listed[CellRow]
    losses: Losses
    days: Days
    changes: Changes | None
    outages: Outages | None
    recoveries: Recoveries | None
    duals: Duals
    campaigns: Listed[CampaignRow]
    differs: Listed[tuple[str, str]]
    notes: Listed[str]
