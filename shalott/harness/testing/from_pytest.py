"""What the pytest plug-in asks of the harness: options as tests write them, and runs of them.

A test names the options of ``shalott test`` as Python's arguments. They are read by what reads the
command line, so that each option, default and refusal is the same (harness/cli/test.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import typer

from shalott.core.errors import UsageError
from shalott.core.plan import Plan, dump_plan
from shalott.harness.cli.commands import load_modules_named, run_typer
from shalott.harness.cli.options import with_options
from shalott.harness.cli.test import Series, shared_flags
from shalott.harness.report.results import violations
from shalott.harness.report.verdict_words import findings, headline
from shalott.harness.run.request import STORE, Request, read_tags
from shalott.harness.run.run import Outcome
from shalott.harness.run.session import Planner, perform, planner, planner_of_stored, progress
from shalott.harness.testing.pytest_plugin import Run
from shalott.nemesis.record import check_nemesis, nemesis_names, usual_nemeses

Value = str | int | float | bool | Path | None
OptionValue = Value | Sequence[Value] | Mapping[str, Value]
WITH_A_PLAN = ("load", "plan", "store", "tag", "test_count")  # the others say what a plan says


def run_options(
    options: Mapping[str, OptionValue], plan: Path | Plan | None, place: Path, *, shows: bool
) -> Iterator[Run]:
    """The runs that the options ask for, one after the other, until one is not valid.

    ``place``: where they are kept if no option says so; a plan that is no file is written there.
    ``shows``: whether their progress is told on standard error.

    Raises UsageError.
    """
    _check_thread()
    if plan is not None:
        options = {**options, "plan": _plan_file(plan, place)}
        if extra := sorted(name for name in options if name not in WITH_A_PLAN):
            raise UsageError(f"a plan says all of a run: leave out {', '.join(extra)}")
    request, series = read_options(options)
    store = series.store if series.store != STORE else place
    tags = read_tags(series.tag)
    with _warnings_only_warn():
        planned = _planner(request, series, store)
    for number in range(series.test_count):
        with _warnings_only_warn():
            drawn, context = planned(number)
            watch = progress() if shows else None
            outcome, _ = perform(drawn, store, context, tags=tags, watch=watch)
        ended = _ended(outcome, drawn.seed, context.command)
        yield ended
        if ended.valid is not True:
            return


def _planner(request: Request, series: Series, store: Path) -> Planner:
    if series.plan is not None:
        return planner_of_stored(series.plan, store)
    if series.node_count:
        request = dataclasses.replace(request, nodes=str(series.node_count))
    return planner(request, series.test_count, store)


def _check_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("shalott.run needs the main thread, where signals arrive: call it there")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "shalott.run has an event loop of its own, and this test runs in another:"
        " write the test as a plain function, without async"
    )


@contextmanager
def _warnings_only_warn() -> Iterator[None]:
    """A project may make errors of warnings: a library's in here is no failure of its run."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


def _plan_file(plan: Path | Plan, place: Path) -> Path:
    if isinstance(plan, Plan):
        content = dump_plan(plan)
        file = place / f"{plan.name}-{plan.seed}.plan.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file
    return Path(plan)


def read_options(options: Mapping[str, OptionValue]) -> tuple[Request, Series]:
    """The options as the command line reads them. Raises UsageError."""
    for name, why in (("junit", "pytest writes it with --junit-xml"), ("help", "see the command")):
        if name in options:
            raise UsageError(f"shalott.run takes no {name}: {why}")
    load_modules_named(_words({"load": options.get("load")}, ("load",), ()))
    flags = shared_flags()
    both_ways = [each.flag.name for each in flags if each.flag.kind == "flag"]
    repeated = [
        each.name
        for struct in (Request, Series)
        for each in dataclasses.fields(struct)
        if isinstance(each.default, tuple)
    ]
    read: list[tuple[Request, Series]] = []

    def test(request: Request, series: Series) -> None:
        read.append((request, series))

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command("test")(with_options(test, flags))
    run_typer(typer.main.get_command(app), _words(options, repeated, both_ways))
    return read[0]


def _words(
    options: Mapping[str, OptionValue], repeated: Sequence[str], both_ways: Sequence[str]
) -> list[str]:
    """The command line. ``repeated``: options that are given once for each of their values.
    ``both_ways``: switches that have a --no-."""
    words: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if value or flag in both_ways:
                words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, Mapping):
            words += [f"--{flag}={key}={_text(each)}" for key, each in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            texts = [_text(each) for each in value]
            words += [
                f"--{flag}={each}" for each in (texts if name in repeated else [",".join(texts)])
            ]
        elif value is not None:
            words.append(f"--{flag}={value}")
    return words


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _ended(outcome: Outcome, seed: int, command: str) -> Run:
    anomalies: dict[str, int] = {}
    for result in outcome.results:
        for anomaly in result.anomalies:
            anomalies[anomaly.kind] = anomalies.get(anomaly.kind, 0) + 1
        for kind in {anomaly.kind for anomaly in result.anomalies}:
            counted = int(result.counts.get(f"{kind}-count", 0))
            anomalies[kind] = max(anomalies[kind], counted)
    valid, said = outcome.valid, headline(outcome.results)
    if outcome.failures:
        valid = "unknown"
        said = f"Unknown: the harness failed, which is no verdict: {outcome.failures[0]}"
    lines = [f"{checker}: {sentence}" for _, checker, sentence in findings(outcome.results)]
    return Run(
        valid=valid,
        headline=said,
        anomalies=anomalies,
        broken=tuple(dict.fromkeys(each.kind for each in violations(outcome.results))),
        findings=tuple(dict.fromkeys(lines)),
        directory=outcome.directory.path,
        seed=seed,
        command=command,
        interrupted=outcome.interrupted,
    )


def nemeses_named(patterns: Sequence[str]) -> tuple[str, ...]:
    """The nemeses of a mark: names, several together as ``partition,kill``, patterns as
    ``partition-*``; the usual ones without any. Raises UsageError."""
    found: dict[str, None] = {}
    for pattern in patterns:
        matching = [name for name in nemesis_names() if fnmatch(name, pattern)]
        if not matching:
            for name in pattern.split(","):
                check_nemesis(name.strip(), "none", "all")
        found |= dict.fromkeys(matching or [pattern])
    return tuple(found) or usual_nemeses()
