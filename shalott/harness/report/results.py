"""results.json: the verdict and every checker's result as data, and reading it back.

The schema is RunResults; docs/reference/output-files.md says what each field means. Fields may be
added in later versions: a reader must ignore those it does not know. ``RESULTS_VERSION`` grows when
one changes its meaning.

A violation is a checker that said no, and the class of anomaly because of which it did. What a
checker merely remarked on beside that is none. Runs that fail are told apart by these classes, in
searches and from night to night.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shalott.checkers.checker import Result
from shalott.core.errors import StoreError, UsageError
from shalott.core.plan import Plan
from shalott.core.sums import check_sum
from shalott.harness.report.meta import ReportMeta, Tested, Usage
from shalott.harness.report.verdict_words import headline, overall

RESULTS_VERSION = 1


class RunResults(msgspec.Struct, frozen=True, kw_only=True):
    version: int = RESULTS_VERSION
    run: str = ""  # its name and directory, as in the files beside it; "" in files of before
    name: str
    seed: int
    system: str
    profile: str
    workload: str
    started_wall_ns: int  # by the true clock, also of a simulation
    virtual_started_ns: int | None = None  # what a simulation's own clock showed then
    complete: bool  # false: the recording was cut short
    valid: bool | str
    headline: str
    command: str  # repeats the run
    versions: dict[str, str] = {}
    tested: Tested = Tested()
    elapsed_ns: int = 0  # real time, boot to checks
    usage: Usage | None = None  # of the nodes; None: not known
    iteration: int = 1  # which of the runs that one command made
    failures: tuple[str, ...] = ()  # the harness's own, no verdict on the system
    notes: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()


def render_results(
    plan: Plan, results: Sequence[Result], meta: ReportMeta, *, complete: bool = True, run: str = ""
) -> bytes:
    """The file's content. ``complete`` is the history's: false if its recording was cut short."""
    content = RunResults(
        run=run,
        name=plan.name,
        seed=plan.seed,
        system=plan.system.name,
        profile=plan.system.profile,
        workload=plan.workload.name,
        started_wall_ns=meta.started_wall_ns,
        virtual_started_ns=meta.virtual_started_ns,
        complete=complete,
        valid=overall(results),
        headline=headline(results),
        command=meta.command,
        versions=meta.versions,
        tested=meta.tested,
        elapsed_ns=meta.elapsed_ns,
        usage=meta.usage,
        iteration=meta.iteration,
        failures=meta.failures,
        notes=meta.notes,
        results=tuple(results),
    )
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def read_results(path: Path) -> RunResults:
    """Read what ``render_results`` wrote. Raises UsageError with one sentence."""
    try:
        if path.exists() and not path.is_file():  # the end of a pipe may never come
            raise StoreError(f"cannot read the results {path}: it is no file")
        check_sum(path)
        found = msgspec.json.decode(path.read_bytes(), type=RunResults)
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"cannot read the results {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} holds no results: {error}") from error
    if found.version > RESULTS_VERSION:
        raise UsageError(f"{path} was written by a later version of Shalott ({found.version})")
    return found


# Said before a run of faults that may be too short (harness/run/plan_checks.py).
MAY_CHANGE_NOTHING = "the faults may change nothing"


def notes_that_apply(notes: Sequence[str], results: Sequence[Result]) -> tuple[str, ...]:
    """Without the doubt whether faults change anything, where they did: a node or a client noticed
    one, or a check failed."""
    noticed = any(result.counts.get("noticed-fault-count") for result in results)
    if not noticed and overall(results) is not False:
        return tuple(notes)
    return tuple(note for note in notes if MAY_CHANGE_NOTHING not in note)


# What a checker reports and may have said no without.
REMARKS = ("dual-master-claimed", "epoch-regression")
# The gravest first: what a finding with several classes is called after.
GRAVEST = (
    "lost",
    "lost-write",
    "corrupted",
    "unexpected",
    "dual-master-effective",
    "diverged",
    "crashed",
)


class Violation(NamedTuple):
    """What the same checker must find again for a plan to fail in the same way."""

    checker: str
    kind: str


def violations(results: Sequence[Result]) -> tuple[Violation, ...]:
    """Every reason for which a checker said no, the gravest first, then by name."""
    found: dict[Violation, None] = {}
    for result in results:
        if result.valid is not False:
            continue
        broken = result.detail.get("broken") or [anomaly.kind for anomaly in result.anomalies]
        kinds = [kind for kind in broken if kind not in REMARKS] or broken or ["invalid"]
        found |= {Violation(result.checker, str(kind)): None for kind in kinds}
    return tuple(sorted(found, key=lambda one: (gravity(one.kind), one)))


def gravity(kind: str) -> int:
    """For sorting: 0 is the gravest."""
    return GRAVEST.index(kind) if kind in GRAVEST else len(GRAVEST)


def classes(found: Sequence[Violation]) -> tuple[str, ...]:
    """The distinct kinds, in the order of ``found``."""
    return tuple(dict.fromkeys(violation.kind for violation in found))
