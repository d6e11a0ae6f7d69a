"""Runs rows of the ladder, one run after the other, and keeps each as soon as it is over.

A side of a row (the release with the bug, the control) stops when it has ``repeat`` sound runs, or
when its answer can't change any more: the release with the bug after it was found ``ENOUGH`` times
running, the control when it showed the bug, which needs a look by somebody; unless every run is
wanted, to compare their numbers. Runs that are void are made again, at most as often as was asked
for in one command: what made them void may be gone by the next one. What was kept counts: a ladder
that was killed goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shalott.core.plan import Plan
from shalott.harness.originals.evidence import look_at
from shalott.harness.originals.kept import SIDES, Kept, Look, Side, load_kept, save_kept, tally
from shalott.harness.originals.plans import plan_of, plan_of_ours
from shalott.harness.originals.row import Row
from shalott.harness.report.results import RunResults

ENOUGH = 3


class RunPlan(Protocol):
    def __call__(self, plan: Plan) -> tuple[RunResults, Path | None]:
        """The verdict, and where the run's files are, if it has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """``version``: run the plan on this release instead of the row's, and nothing else.
    ``every``: also those that can't change the answer."""

    repeat: int = 1
    every: bool = False
    version: str = ""
    sides: tuple[Side, ...] = SIDES


def run_ladder(
    rows: Sequence[Row],
    asked: Asked,
    run_plan: RunPlan,
    directory: Path,
    tell: Callable[[Row, Look], None],
) -> Kept:
    """Raises StoreError, and whatever a run raises that is no verdict."""
    for row in rows:
        for side in asked.sides:
            looks = list(load_kept(directory).get(row.id, ()))
            for plan, release in _missing(row, side, asked, looks):
                results, where = run_plan(plan)
                look = look_at(row, side, release, results, where, os.getloadavg()[0])
                looks.append(look)
                _keep(directory, row, look)
                tell(row, look)
    return load_kept(directory)


def _keep(directory: Path, row: Row, look: Look) -> None:
    """Beside what others have kept meanwhile."""
    kept = load_kept(directory)
    kept.setdefault(row.id, []).append(look)
    save_kept(directory, kept)


def _missing(
    row: Row, side: Side, asked: Asked, looks: Sequence[Look]
) -> Iterator[tuple[Plan, str]]:
    """The plans that are still to be run; looks are added to ``looks`` meanwhile."""
    release = release_of(row, side, asked.version)
    if not release:
        return
    before = len(looks)
    while not is_done(
        side,
        [look for look in looks if look.release == release],
        asked,
        sum(bool(look.void) and look.side == side for look in looks[before:]),
    ):
        number = sum(look.side == side and look.release == release for look in looks)
        if side in ("with", "control"):
            yield plan_of(row, release, number, is_control=side == "control"), release
        else:
            yield plan_of_ours(row, number, is_on=side == "ours-on"), release


def release_of(row: Row, side: Side, version: str = "") -> str:
    """On what the side is run; "" if it is not."""
    if row.setup is None:
        return ""
    if side.startswith("ours"):
        return "" if row.ours is None or version else row.ours.system
    if version:
        is_free = version in row.free
        return version if (side == "control") == is_free else ""
    if side == "with":
        return row.run_on
    return row.control_on or (row.run_on if row.control_words else "")


def is_done(side: Side, looks: Sequence[Look], asked: Asked, voids: int) -> bool:
    """``looks``: of the row, on the side's release. ``voids``: runs of this command that proved
    nothing."""
    own = [look for look in looks if look.side == side]
    counted = tally(own, side)
    if counted.runs >= asked.repeat or voids > asked.repeat:
        return True
    if asked.every:
        return False
    sound = [look for look in own if not look.void]
    if side == "with" and len(sound) >= ENOUGH and all(look.found for look in sound[-ENOUGH:]):
        return True
    return side == "control" and counted.found > 0
