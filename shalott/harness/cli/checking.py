"""`shalott check`: files to verdicts, by our engine, by Porcupine, or by both, which must agree.

What is heavy is loaded when it is needed: Arrow for Parquet, the explanation for what is invalid,
Porcupine (checkers/porcupine) where it is asked.

The command reads its own arguments: typer would load pydantic to do so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.checking import (
    CheckInterrupted,
    Verdict,
    check,
    make_model,
    memory_left,
)
from shalott.checkers.linearizability.running_check import By
from shalott.checkers.models import BUILT_IN, Model
from shalott.checkers.monitors.monitor_choice import choose_monitor
from shalott.checkers.reading import read_history
from shalott.checkers.reading.history_files import STANDARD_INPUT
from shalott.core.errors import HarnessError, UnreadableHistory, UsageError
from shalott.core.parameters import parse_bytes, parse_duration_ms
from shalott.core.run_id import is_run_id
from shalott.harness.cli.check_lines import (
    Checked,
    Echo,
    describe_models,
    draw,
    json_lines,
    load_models,
    verdict_lines,
)

EXIT: Final = {True: 0, False: 1, "unknown": 2}
EXIT_UNREAD: Final = 254  # as for a mistake on the command line
_LATEST: Final = "latest"
ENGINES: Final = ("shalott", "porcupine", "both")


@dataclass(frozen=True, slots=True)
class CheckRequest:
    files: tuple[str, ...]
    model: str
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


def check_files(request: CheckRequest, echo: Echo) -> int:
    """Checks one file after the other; the exit code is the worst verdict's.

    A file that can't be read is told among the verdicts of the others, and makes the exit code 254
    unless one of them is invalid. Raises UsageError: what was asked for is not possible, or the
    only file can't be read. Raises HarnessError: the two engines disagree.
    """
    if not request.files:
        raise UsageError("which history? shalott check FILE --model NAME")
    model = _model(request)
    _limits(request)  # a mistake is told before anything is read
    if request.engine != "shalott":
        prepare_engine(request)
    _by(request, model)
    worst: bool | str = True
    drawn: list[Checked] = []
    unread = 0
    for file in request.files:
        try:
            checked = _check(request, file, model)
        except (UsageError, MemoryError) as error:
            if len(request.files) == 1:
                raise
            echo(_refusal(request, file, error))
            unread += 1
            continue
        for line in json_lines(checked) if request.as_json else verdict_lines(checked):
            echo(line)
        if checked.explanation is not None:
            drawn.append(checked)
        valid = agreed(file, checked.verdict, checked.second)
        worst = min(worst, valid, key=(False, "unknown", True).index)
        if checked.verdict.cause == "cancelled":
            break
    if request.report is not None:
        draw(request.report, drawn, echo, quiet=request.as_json)
    return EXIT_UNREAD if unread and worst is not False else EXIT[worst]


def _refusal(request: CheckRequest, file: str, error: Exception) -> str:
    """One bad file among others does not keep them from being checked."""
    if request.as_json:
        return json.dumps({"file": file, "valid": "unknown", "error": str(error)})
    return f"{file}: NOT CHECKED: {error}"


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


# --- what was asked for ---------------------------------------------------------------------------


def _model(request: CheckRequest) -> Model:
    load_models(request.load)
    if not request.model:
        raise UsageError(
            f"which model? --model {', '.join(BUILT_IN)}: see `shalott check --models`"
        )
    if not request.failed_cas:
        return make_model(request.model)
    model = request.model.rstrip(":")
    joint = "," if "=" in model.rpartition(":")[2] else ":"
    return make_model(f"{model}{joint}failed_cas={request.failed_cas}")


def _by(request: CheckRequest, model: Model) -> By:
    monitor = choose_monitor(model)
    if request.monitor == "auto":
        return "auto"
    if request.monitor == "general":
        return "general"
    if monitor is not None and request.monitor in ("monitor", monitor.name):
        return "monitor"
    own = "" if monitor is None else f", {monitor.name}"
    raise UsageError(
        f"no monitor {request.monitor!r} for {request.model}: there are auto, general{own}"
    )


def _limits(request: CheckRequest) -> tuple[float | None, int]:
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


# --- checking -------------------------------------------------------------------------------------


def _check(request: CheckRequest, file: str, model: Model) -> Checked:
    began = time.monotonic()
    by = _by(request, model)
    history = read_history(
        locate(file, request.store), dialect=request.dialect, keyed=request.keyed
    )
    seconds, most_bytes = _limits(request)
    left_s = None if seconds is None else max(0.001, seconds - (time.monotonic() - began))
    if request.engine == "porcupine":
        return Checked(
            file, history, ask_porcupine(history, model, seconds, most_bytes), None, None
        )
    try:
        verdict = check(
            history, model, time_limit_s=left_s, memory_limit_bytes=memory_left(most_bytes),
            threads=request.threads or None, by=by, find_prefix=True,
        )  # fmt: skip
    except CheckInterrupted as interrupted:
        verdict = interrupted.verdict
    second = None
    if request.engine == "both" and verdict.cause != "cancelled":
        second = ask_porcupine(history, model, seconds, most_bytes)
    if verdict.violation is None or (second is not None and second.valid is True):
        return Checked(file, history, verdict, None, None, second)
    from shalott.checkers.linearizability.explain import explain_verdict

    explanation, object_history = explain_verdict(history, verdict, model)
    return Checked(file, history, verdict, explanation, object_history, second)


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


STORE = Path("store")

DESCRIPTION = (
    "Is a history linearizable? Exit code 0: yes, 1: no, 2: it could not be decided. A FILE is a"
    " Parquet history, Jepsen's EDN, our JSON lines, a log of Jepsen's or Violin's, any of them"
    " compressed by gzip, - for standard input, a run's directory or name, or `latest`."
)
# names, type or None for a switch, default, help
OPTIONS: tuple[tuple[tuple[str, ...], type | None, object, str], ...] = (
    (
        ("--model", "-m"),
        str,
        "",
        "what it should be: NAME or PACKAGE.MODULE:CLASS, then :OPTION=VALUE,...",
    ),
    (("--load",), list, [], "a module whose models may be named; may be given again"),
    (("--models",), None, False, "list the models"),
    (("--time-limit",), str, "", "unknown after so long: 60s, 2m; for each file"),
    (("--memory-limit",), str, "", "unknown beyond: 2GB; else 3/4 of what is free"),
    (("--threads",), int, 0, "keys checked at once; 0: one for each CPU"),
    (("--monitor",), str, "auto", "auto; general: only the search; or a monitor's name"),
    (("--engine",), str, "shalott", "who decides: shalott, porcupine, or both, which must agree"),
    (("--failed-cas",), str, "", "checked: its value must have differed; or ignored"),
    (("--keyed",), None, False, "values are [key value], as jepsen.independent has them"),
    (("--dialect",), str, "auto", "how to read it, where its content does not tell"),
    (("--report",), Path, None, "draw what is invalid into this HTML file"),
    (("--json",), None, False, "the verdicts as JSON, a line each"),
    (("--store",), Path, STORE, "where runs are kept"),
)


class _Parser(argparse.ArgumentParser):
    """Complains as every other command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}: see `shalott check --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("shalott check", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("files", nargs="*", metavar="FILE", help="histories, or runs")
    for names, kind, default, text in OPTIONS:
        if kind is None:
            parser.add_argument(*names, action="store_true", help=text)
        elif kind is list:
            parser.add_argument(*names, action="append", default=default, help=text, metavar="...")
        else:
            parser.add_argument(*names, type=kind, default=default, help=text, metavar="...")
    return parser


def run_check(arguments: Sequence[str]) -> int:
    """``shalott check ARGUMENTS``: the exit code. Raises UsageError."""
    try:
        asked = _parser().parse_args(list(arguments))
    except SystemExit:  # --help was answered
        return 0
    if asked.models:
        for line in describe_models(asked.load):
            _echo(line)
        return 0
    request = CheckRequest(
        files=tuple(asked.files), model=asked.model, time_limit=asked.time_limit,
        memory_limit=asked.memory_limit, threads=asked.threads, monitor=asked.monitor,
        failed_cas=asked.failed_cas, keyed=asked.keyed, dialect=asked.dialect,
        report=asked.report, as_json=asked.json, store=asked.store, load=tuple(asked.load),
        engine=asked.engine,
    )  # fmt: skip
    try:
        return check_files(request, _echo)
    except KeyboardInterrupt:
        sys.stderr.write("shalott: interrupted before there was a verdict\n")
        return 2


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
