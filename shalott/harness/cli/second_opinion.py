"""`shalott check --engine`: who decides, ours or Porcupine, or both, which must agree.

Porcupine is loaded when it is asked (checkers/porcupine), since most checks do without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.checking import CheckInterrupted, Verdict, memory_left
from shalott.checkers.models import Model
from shalott.core.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from shalott.harness.cli.checking import CheckRequest

ENGINES: Final = ("shalott", "porcupine", "both")


def prepare_engine(request: CheckRequest) -> None:
    """Builds Porcupine if need be.

    Raises UsageError: there is no such engine; Porcupine does not do what else is asked for; it
    can't be built here.
    """
    if request.engine not in ENGINES:
        raise UsageError(f"no engine {request.engine!r}: there are {', '.join(ENGINES)}")
    if request.engine == "porcupine":
        _refuse_what_is_ours(request)
    from shalott.checkers.porcupine.porcupine import library_path

    library_path(lambda sentence: sys.stderr.write(f"shalott: {sentence}\n"))


def _refuse_what_is_ours(request: CheckRequest) -> None:
    for option, is_given in (
        ("--monitor", request.monitor != "auto"),
        ("--threads", request.threads != 0),
        ("--report", request.report is not None),
    ):
        if is_given:
            raise UsageError(
                f"{option} is nothing that Porcupine knows of: leave it out, or --engine both"
            )


def ask_porcupine(
    history: ConcurrentHistory, model: Model, time_limit_s: float | None, most_bytes: int
) -> Verdict:
    """Its verdict, as far as it came. ``most_bytes``: what this process may hold."""
    from shalott.checkers.porcupine.porcupine import check_with_porcupine

    try:
        return check_with_porcupine(
            history, model, time_limit_s=time_limit_s, memory_limit_bytes=memory_left(most_bytes)
        )
    except CheckInterrupted as interrupted:
        return interrupted.verdict


def agreed(file: str, verdict: Verdict, second: Verdict | None) -> bool | str:
    """What is known after one or two verdicts: that of whoever decided.

    Raises HarnessError: one says valid, the other invalid, so one of them has a bug.
    """
    if second is None or second.valid == "unknown":
        return verdict.valid
    if verdict.valid not in ("unknown", second.valid):
        words = {True: "valid", False: "invalid"}
        raise HarnessError(
            f"{file}: {words[bool(verdict.valid)]} by {_decider(verdict)}, but"
            f" {words[bool(second.valid)]} by {second.how}: one of them is wrong,"
            " please report it with the file"
        )
    return second.valid


def _decider(verdict: Verdict) -> str:
    return verdict.violation.by if verdict.violation is not None else verdict.how


def second_line(second: Verdict) -> str:
    """The second opinion, for people."""
    said = f"unknown ({second.cause})"
    if second.valid != "unknown":
        said = "valid" if second.valid else "invalid"
    cost = f"{second.elapsed_s:.3f} s, {second.memory_peak_bytes / 1e6:.1f} MB"
    return f"second opinion: {said} by {second.how}, in {cost}"
