"""What `shalott check` was asked: files, a model or a judge, limits, and who decides."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.checking import (
    CheckInterrupted,
    Verdict,
    make_model,
    memory_left,
)
from shalott.checkers.linearizability.running_check import By
from shalott.checkers.models import Model, model_name
from shalott.checkers.monitors.monitor_choice import choose_monitor
from shalott.checkers.reading.history_files import STANDARD_INPUT
from shalott.core.errors import HarnessError, UnreadableHistory, UsageError
from shalott.core.parameters import parse_bytes, parse_duration_ms
from shalott.core.run_id import is_run_id

_LATEST: Final = "latest"
ENGINES: Final = ("shalott", "porcupine", "both")


@dataclass(frozen=True, slots=True)
class CheckRequest:
    files: tuple[str, ...]
    model: str = ""  # or a judge; "": what the history wants
    time_limit: str = ""
    memory_limit: str = ""
    threads: int = 0
    monitor: str = "auto"
    failed_cas: str = ""
    keyed: bool = False
    dialect: str = "auto"
    report: Path | None = None
    as_json: bool = False
    store: Path = Path("store")
    load: tuple[str, ...] = ()  # modules whose models may be named
    engine: str = "shalott"  # or porcupine, or both
    jobs: int = 1  # files that are judged at once


def locate(file: str, store: Path) -> Path:
    """A file, a run's directory, a run of the store by its name or short id, or the latest of
    all."""
    path = Path(file)
    if file == STANDARD_INPUT or path.exists():
        return path
    for candidate in (store / file, store / file / _LATEST):
        if candidate.is_dir() and (candidate / _LATEST).exists():
            continue
        if candidate.is_dir():
            return candidate.resolve()
    if is_run_id(file):
        from shalott.harness.run.store import Store

        if (found := Store(store).of_id(file)) is not None:
            return found
    if file == _LATEST:
        raise UsageError(f"there is no run yet in {store}: name a file, or --store")
    raise UnreadableHistory(f"cannot read {file}: there is no such file, nor a run of {store}")


# --- the model, and limits ------------------------------------------------------------------------


def model_of(request: CheckRequest, specification: str) -> Model:
    """Raises UsageError: there is no such model, or it has no such options."""
    if not request.failed_cas:
        return make_model(specification)
    model = specification.rstrip(":")
    joint = "," if "=" in model.rpartition(":")[2] else ":"
    return make_model(f"{model}{joint}failed_cas={request.failed_cas}")


def given_options(request: CheckRequest, specification: str) -> tuple[str, ...]:
    """The names of the options that say how the history is meant."""
    options = specification.rpartition(":")[2] if "=" in specification else ""
    names = [each.partition("=")[0] for each in options.split(",") if each]
    return (*names, "failed_cas") if request.failed_cas else tuple(names)


def decided_by(request: CheckRequest, model: Model) -> By:
    monitor = choose_monitor(model)
    if request.monitor == "auto":
        return "auto"
    if request.monitor == "general":
        return "general"
    if monitor is not None and request.monitor in ("monitor", monitor.name):
        return "monitor"
    own = "" if monitor is None else f", {monitor.name}"
    asked = request.model or model_name(model)
    raise UsageError(f"no monitor {request.monitor!r} for {asked}: there are auto, general{own}")


def limits_of(request: CheckRequest) -> tuple[float | None, int]:
    """(seconds, bytes of the whole process)"""
    if request.threads < 0:
        raise UsageError(f"--threads {request.threads}: give a number of threads, or 0")
    seconds = None
    if request.time_limit:
        seconds = parse_duration_ms("--time-limit", request.time_limit) / 1000
    if request.memory_limit:
        return seconds, parse_bytes("--memory-limit", request.memory_limit)
    return seconds, _free_bytes() * 3 // 4


def _free_bytes() -> int:
    """What this machine could still give, without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# --- who decides ----------------------------------------------------------------------------------


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
    """What is known after one or two verdicts: that of the one that decided.

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
