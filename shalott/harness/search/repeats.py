"""What a campaign runs again, and what that is for.

In the simulation a run is a function of its plan: some seeds and all findings are run a second time
in another process, and digests that differ mean that nothing the search says can be believed. On
real nodes a plan that failed may pass the next time: a finding is run again until it is clear how
often it fails (failure_rate.py).
"""

from __future__ import annotations

from typing import Protocol

from shalott.core.rng import Stream
from shalott.harness.search.campaign import Campaign
from shalott.harness.search.failure_rate import Rule, Trials, trials_of
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.summary import verdict_of

AGAIN_SHARE = 0.05  # of the seeds that are run twice (FoundationDB's unseed_check_ratio)


class Repeats(Protocol):
    def add(self, report: SeedReport, worker: int | None, *, is_kept: bool) -> None:
        """A seed was run: by this worker, or by an earlier command (None)."""
        ...

    def take(self, worker: int) -> int | None:
        """A seed for this worker to run again; None if there is none."""
        ...

    def record(self, report: SeedReport) -> None:
        """A seed was run again: write it down."""
        ...

    def only(self, seed: int) -> None:
        """No other seed matters any more."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left for any worker."""
        ...


def is_repeated(seed: int) -> bool:
    """Whether this seed is one of those that are simulated twice."""
    return Stream(seed, "search", "again").random() < AGAIN_SHARE


class DigestRepeats:
    """Of simulated runs: once, in another process than the first time."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._todo: list[int] = []
        self._made_by: dict[int, int | None] = {}

    def add(self, report: SeedReport, worker: int | None, *, is_kept: bool) -> None:
        wanted = report.error is None and (is_kept or is_repeated(report.seed))
        if wanted and report.seed not in self._campaign.again:
            self._todo.append(report.seed)
            self._made_by[report.seed] = worker

    def take(self, worker: int) -> int | None:
        for seed in self._todo:
            if self._made_by[seed] != worker:
                self._todo.remove(seed)
                return seed
        return None

    def record(self, report: SeedReport) -> None:
        digest = report.digest if report.error is None else f"failed: {report.error}"
        self._campaign.add_again(report.seed, digest)

    def only(self, seed: int) -> None:
        self._todo = [other for other in self._todo if other == seed]

    @property
    def is_empty(self) -> bool:
        return not self._todo


class RateRepeats:
    """Of real runs: each kept finding until its rate is clear. The run that found it is not
    counted: it was chosen because it failed."""

    def __init__(self, campaign: Campaign, rule: Rule) -> None:
        self._campaign = campaign
        self._rule = rule
        self._kinds: dict[int, tuple[str, ...]] = {}
        self._under_way: dict[int, int] = {}

    def add(self, report: SeedReport, worker: int | None, *, is_kept: bool) -> None:
        if is_kept and verdict_of(report) == "invalid":
            self._kinds[report.seed] = report.violations
            self._under_way[report.seed] = 0

    def take(self, worker: int) -> int | None:
        seed = next(iter(self._open()), None)
        if seed is not None:
            self._under_way[seed] += 1
        return seed

    def record(self, report: SeedReport) -> None:
        self._campaign.add_repeat(report)
        self._under_way[report.seed] -= 1

    def only(self, seed: int) -> None:
        self._kinds = {other: kinds for other, kinds in self._kinds.items() if other == seed}

    @property
    def is_empty(self) -> bool:
        return not self._open()

    def _open(self) -> list[int]:
        """Those that are worth another run, even if those under way say more."""
        return [
            seed
            for seed, kinds in self._kinds.items()
            if not self._rule.is_over(trials := repeated(self._campaign, seed, kinds))
            and trials.ran + self._under_way[seed] < self._rule.most
        ]


def repeated(campaign: Campaign, seed: int, kinds: tuple[str, ...]) -> Trials:
    """How often a finding came again: by its gravest class."""
    return trials_of(fails_by(report, kinds[0]) for report in campaign.repeats.get(seed, ()))


def fails_by(report: SeedReport, kind: str) -> bool | None:
    """Whether the run violated that; None if it proves nothing."""
    verdict = verdict_of(report)
    if verdict in ("valid", "invalid"):
        return kind in report.violations
    return None
