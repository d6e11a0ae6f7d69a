"""results.json: the verdict and every checker's result as data, and reading it back.

The schema is RunResults; docs/reference/output-files.md says what each field means. Fields may be
added in later versions: a reader must ignore those it does not know. ``RESULTS_VERSION`` grows when
one changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from shalott.checkers.checker import Result
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.report.meta import ReportMeta, Tested
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
        iteration=meta.iteration,
        failures=meta.failures,
        notes=meta.notes,
        results=tuple(results),
    )
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def read_results(path: Path) -> RunResults:
    """Read what ``render_results`` wrote. Raises UsageError with one sentence."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=RunResults)
    except OSError as error:
        raise UsageError(f"cannot read the results {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} holds no results: {error}") from error
    if found.version > RESULTS_VERSION:
        raise UsageError(f"{path} was written by a later version of Shalott ({found.version})")
    return found
