"""All checkers of a run, put together: one verdict, and a crashed checker never makes a run valid.

After jepsen.checker/compose and check-safe: each checker judges alone, the verdicts merge by
``merge_valid``, and a checker that raises is "unknown" with its traceback in the notes.

Besides the workload's own checkers every checker judges that comes through the door and fits the
plan (checkers/checker.py). What a foreign checker gives is looked at before it is believed.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from shalott.checkers.checker import CHECKERS, Checker, CheckerRecord, Result, merge_valid
from shalott.checkers.runs.standard import RUN_WIDE
from shalott.core.doors import Requirement
from shalott.core.errors import UsageError
from shalott.core.history import History
from shalott.core.plan import Plan


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run's. ``results`` are in the checkers' order."""

    valid: bool | str  # True, False or "unknown"
    results: tuple[Result, ...]

    def of(self, checker: str) -> Result:
        """One checker's result. Raises KeyError if it did not run."""
        for result in self.results:
            if result.checker == checker:
                return result
        raise KeyError(checker)


def check_all(checkers: Sequence[Checker], history: History) -> Verdict:
    results = tuple(check_safely(checker, history) for checker in checkers)
    return Verdict(valid=merge_valid(result.valid for result in results), results=results)


def check_safely(checker: Checker, history: History) -> Result:
    """A checker's result, or "unknown" if it crashed or gave none."""
    try:
        found: object = checker.check(history)
        if not isinstance(found, Result):
            raise TypeError(f"it returned {type(found).__name__}, not a Result")
        return found
    except (Exception, SystemExit) as error:  # foreign code must not end the harness
        return Result(
            checker=checker.name,
            valid="unknown",
            notes=(
                f"The checker {checker.name} crashed: {type(error).__name__}: {error}",
                traceback.format_exc(),
            ),
        )


# --- the checkers that come through the door ------------------------------------------------------


def extra_checkers(plan: Plan, own: Sequence[Checker] = ()) -> tuple[Checker, ...]:
    """Every checker of the door that fits the plan; ``own`` are those of the workload.

    A run-wide checker that the workload has configured itself is not there twice. What can't be
    asked is "unknown": a record that raises, one with the name of a checker of the workload, and
    the whole door if two providers offer one name.
    """
    records, problems = _records()
    configured = [(type(checker), checker.name) for checker in own]
    chosen = [
        checker
        for record in records
        if (checker := _made(record, plan)) is not None
        and (type(checker), checker.name) not in configured
    ]
    names = [checker.name for checker in own]
    return (*(_renamed(each) if each.name in names else each for each in chosen), *problems)


def extra_requirements(plan: Plan) -> tuple[Requirement, ...]:
    """What a plan notes of the checkers of others that judge its run.

    Raises UsageError: two providers offer one name.
    """
    ours = [record.name for record in RUN_WIDE]
    return tuple(
        CHECKERS.requirement(record.name)
        for record in CHECKERS.records()
        if record.name not in ours and _made(record, plan) is not None
    )


def _records() -> tuple[Sequence[CheckerRecord], Sequence[Checker]]:
    """All, our own first; and what tells of those that can't be used."""
    try:
        found = CHECKERS.records()
    except UsageError as blocked:
        return RUN_WIDE, (Unusable("checkers", blocked),)
    ours = [record.name for record in RUN_WIDE]
    others = [record for record in found if record.name not in ours]
    broken = CHECKERS.problems()
    return (*RUN_WIDE, *others), (Broken(broken),) if broken else ()


def _made(record: CheckerRecord, plan: Plan) -> Checker | None:
    """None: it has nothing to say about runs of this plan."""
    try:
        if not record.fits(plan):
            return None
        checker = record.make(plan)
    except (Exception, SystemExit) as error:  # foreign code
        return Unusable(record.name, error)
    return checker if record in RUN_WIDE else Outside(record.name, checker)


def _renamed(checker: Checker) -> Checker:
    taken = UsageError(f"the workload has a checker {checker.name} of its own: rename one of them")
    return Unusable(f"{checker.name} (plug-in)", taken)


@dataclass(frozen=True, slots=True)
class Unusable:
    """In place of a checker that could not be made: it crashes, so the run is "unknown"."""

    name: str
    error: BaseException

    def check(self, history: History) -> Result:
        raise self.error


@dataclass(frozen=True, slots=True)
class Broken:
    """Tells of installed checkers that can't be imported: it is unknown which plans they fit."""

    problems: tuple[str, ...]
    name: str = "checkers"

    def check(self, history: History) -> Result:
        return Result(checker=self.name, valid=True, notes=self.problems)


_LOSS: Final = "loss"  # of a Result's detail: the report draws it


class _Drawn(msgspec.Struct, frozen=True):
    """What the report reads of an anomaly's detail."""

    begin_ns: int | None = None
    end_ns: int | None = None
    events: list[int] = []  # rows of the history's events


@dataclass(frozen=True, slots=True)
class Outside:
    """A foreign checker. Its result is looked at: it must be one, under its own name."""

    name: str
    checker: Checker

    def check(self, history: History) -> Result:
        """Raises TypeError and msgspec.ValidationError: what it gave is no result."""
        found: object = self.checker.check(history)
        if not isinstance(found, Result):
            raise TypeError(f"it returned {type(found).__name__}, not a Result")
        plain = msgspec.convert(msgspec.to_builtins(found), Result)
        if plain.valid not in (True, False, "unknown"):
            raise TypeError(f"valid is True, False or 'unknown', not {plain.valid!r}")
        if _LOSS in plain.detail:
            raise TypeError(f"a detail {_LOSS!r} is total-queue's: give yours another name")
        for anomaly in plain.anomalies:
            msgspec.convert(anomaly.detail, _Drawn)
        return msgspec.structs.replace(plain, checker=self.name)
