"""`shalott check`: files to verdicts, by our engine, by Porcupine, or by both, which must agree.

What is heavy is loaded when it is needed. The command reads its own arguments: typer would load
pydantic to do so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from shalott.core.errors import HarnessError, UsageError
from shalott.harness.cli.check_batch import histories
from shalott.harness.cli.check_file import is_judge, judge_file
from shalott.harness.cli.check_lines import (
    Checked,
    Echo,
    Judged,
    describe_models,
    draw,
    json_line,
    lines_of,
    load_models,
    one_line,
)
from shalott.harness.cli.check_request import (
    CheckRequest,
    agreed,
    decided_by,
    limits_of,
    locate,
    model_of,
    prepare_engine,
)

__all__ = ["DESCRIPTION", "OPTIONS", "STORE", "CheckRequest", "check_files", "locate", "run_check"]

EXIT: Final = {True: 0, False: 1, "unknown": 2}
EXIT_UNREAD: Final = 254  # as for a mistake on the command line


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of one file."""

    lines: tuple[str, ...]
    valid: bool | str
    unread: bool = False
    is_last: bool = False
    failure: HarnessError | None = None  # two engines disagree
    drawn: Checked | Judged | None = None


def check_files(request: CheckRequest, echo: Echo) -> int:
    """Judges one file after the other; the exit code is the worst verdict's.

    A file that can't be read is told among the verdicts of the others, and makes the exit code 254
    unless one of them is invalid. Raises UsageError: what was asked for is not possible, or the
    only file can't be read. Raises HarnessError: the two engines disagree.
    """
    if not request.files:
        raise UsageError("which history? shalott check FILE --model NAME")
    _refuse_mistakes(request)
    files = list(histories(request.files))
    if not files:
        raise UsageError(f"there is no history in {', '.join(request.files)}")
    is_alone = files == list(request.files) and len(files) == 1
    worst: bool | str = True
    drawn: list[Checked | Judged] = []
    unread = 0
    for told in _told(request, files, is_alone):
        for line in told.lines:
            echo(line)
        if told.failure is not None:
            raise told.failure
        worst = min(worst, told.valid, key=(False, "unknown", True).index)
        unread += told.unread
        if told.drawn is not None:
            drawn.append(told.drawn)
        if told.is_last:
            break
    if request.report is not None:
        draw(request.report, drawn, echo, quiet=request.as_json)
    return EXIT_UNREAD if unread and worst is not False else EXIT[worst]


def _refuse_mistakes(request: CheckRequest) -> None:
    """Before anything is read. Raises UsageError."""
    load_models(request.load)
    limits_of(request)
    if request.jobs < 1:
        raise UsageError(f"--jobs {request.jobs}: give a number of files, 1 or more")
    if request.engine != "shalott":
        prepare_engine(request)
    if is_judge(request.model):
        from shalott.checkers.judge import make_judge

        make_judge(request.model)
    elif request.model:
        decided_by(request, model_of(request, request.model))


def _told(request: CheckRequest, files: Sequence[str], is_alone: bool) -> Iterator[Told]:
    if request.jobs == 1 or len(files) == 1 or request.report is not None:
        for file in files:
            yield _tell(request, file, is_alone)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(request.jobs, len(files))) as pool:
        yield from pool.map(_tell_shortly, [request] * len(files), files)


def _tell_shortly(request: CheckRequest, file: str) -> Told:
    """In a process of its own, which sends back no more than lines."""
    load_models(request.load)
    return replace(_tell(request, file, is_alone=False), drawn=None)


def _tell(request: CheckRequest, file: str, is_alone: bool) -> Told:
    """Raises UsageError and MemoryError if no other file would be told of."""
    try:
        found = judge_file(request, file)
    except (UsageError, MemoryError) as error:
        if is_alone:
            raise
        return Told((_refusal(request, file, error),), True, unread=True)
    if request.as_json:
        lines: tuple[str, ...] = (json_line(found),)
    else:
        lines = tuple(lines_of(found)) if is_alone else (one_line(found),)
    if not isinstance(found, Checked):
        is_drawn = found.result.valid is False and request.report is not None
        return Told(lines, found.result.valid, drawn=found if is_drawn else None)
    try:
        valid = agreed(file, found.verdict, found.second)
    except HarnessError as failure:
        return Told(lines, "unknown", failure=failure)
    is_last = found.verdict.cause == "cancelled"
    is_drawn = found.explanation is not None and request.report is not None
    return Told(lines, valid, is_last=is_last, drawn=found if is_drawn else None)


def _refusal(request: CheckRequest, file: str, error: Exception) -> str:
    """One bad file among others does not keep them from being checked."""
    if request.as_json:
        return json.dumps({"file": file, "valid": "unknown", "error": str(error)})
    told = str(error).removeprefix(f"{file}: ")
    return " ".join(f"{file}: NOT CHECKED: {told}".split())


STORE = Path("store")

DESCRIPTION = (
    "Is a history linearizable, or what a judge promises? Exit code 0: yes, 1: no, 2: undecided. A"
    " FILE is a history (EDN, JSON, Parquet, logs; gzip, too), - for standard input, a run, or a"
    " directory: a line for each history in it."
)
# names, type or None for a switch, default, help
OPTIONS: tuple[tuple[tuple[str, ...], type | None, object, str], ...] = (
    (
        ("--model", "-m"),
        str,
        "",
        "a model or judge: NAME or PACKAGE.MODULE:CLASS, then :OPTION=VALUE,...; else what fits",
    ),
    (("--load",), list, [], "a module whose models may be named; may be given again"),
    (("--models",), None, False, "list the models and judges"),
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
    (("--jobs",), int, 1, "files judged at once"),
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
        engine=asked.engine, jobs=asked.jobs,
    )  # fmt: skip
    try:
        return check_files(request, _echo)
    except KeyboardInterrupt:
        sys.stderr.write("shalott: interrupted before there was a verdict\n")
        return 2


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
