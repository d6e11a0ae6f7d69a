"""``shalott check``, which reads its own arguments: typer would load pydantic to do so."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from shalott.core.errors import UsageError
from shalott.harness.cli.check_lines import describe_models
from shalott.harness.cli.checking import CheckRequest, check_files

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
