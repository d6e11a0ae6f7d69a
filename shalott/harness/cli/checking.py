"""`shalott check`: files to verdicts, and verdicts to lines, JSON and a page that draws them.

What is heavy is loaded when it is needed: Arrow for Parquet, the explanation for what is invalid.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.checking import (
    CheckInterrupted,
    Verdict,
    check,
    make_model,
    memory_left,
)
from shalott.checkers.models import BUILT_IN, BUILT_IN_MODELS, Model, meanings_of
from shalott.checkers.models.model import REQUIRED, Option, options_of
from shalott.checkers.monitors.monitor_choice import choose_monitor
from shalott.checkers.reading import read_history
from shalott.checkers.reading.history_files import STANDARD_INPUT
from shalott.core.errors import UnreadableHistory, UsageError
from shalott.core.parameters import parse_bytes, parse_duration_ms
from shalott.harness.cli.second_opinion import agreed, ask_porcupine, prepare_engine, second_line

if TYPE_CHECKING:
    from shalott.checkers.linearizability.explanation import Explanation

EXIT: Final = {True: 0, False: 1, "unknown": 2}
EXIT_UNREAD: Final = 254  # as for a mistake on the command line
_SHOWN_MAX: Final = 12  # operations listed with a violation
_LATEST: Final = "latest"

Echo = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What the command line asked for, as it was written."""

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


@dataclass(frozen=True, slots=True)
class Checked:
    """One file, and what was found out about it."""

    file: str
    history: ConcurrentHistory
    verdict: Verdict
    explanation: Explanation | None  # of what is invalid
    object_history: ConcurrentHistory | None
    second: Verdict | None = None  # Porcupine's, if both were asked


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
        for line in _json_lines(checked) if request.as_json else _lines(checked):
            echo(line)
        if checked.explanation is not None:
            drawn.append(checked)
        valid = agreed(file, checked.verdict, checked.second)
        worst = min(worst, valid, key=(False, "unknown", True).index)
        if checked.verdict.cause == "cancelled":
            break
    if request.report is not None:
        _draw(request.report, drawn, echo, quiet=request.as_json)
    return EXIT_UNREAD if unread and worst is not False else EXIT[worst]


def _refusal(request: CheckRequest, file: str, error: Exception) -> str:
    """One bad file among others does not keep them from being checked."""
    if request.as_json:
        return json.dumps({"file": file, "valid": "unknown", "error": str(error)})
    return f"{file}: NOT CHECKED: {error}"


def locate(file: str, store: Path) -> Path:
    """A file, a run's directory, a run of the store by its name, or the latest of all."""
    path = Path(file)
    if file == STANDARD_INPUT or path.exists():
        return path
    for candidate in (store / file, store / file / _LATEST):
        if candidate.is_dir() and (candidate / _LATEST).exists():
            continue
        if candidate.is_dir():
            return candidate.resolve()
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


def load_models(modules: Iterable[str]) -> None:
    """Loads each. Raises UsageError: there is no such module, or it takes another model's name."""
    modules = tuple(modules)
    if not modules:
        return
    from shalott.checkers.models.outside import MODELS  # most checks need none
    from shalott.core.doors import load_module

    for module in modules:
        load_module(module)
    MODELS.names()


def _by(request: CheckRequest, model: Model) -> Any:
    monitor = choose_monitor(model)
    if request.monitor in ("auto", "general"):
        return request.monitor
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


# --- telling --------------------------------------------------------------------------------------


def _lines(checked: Checked) -> Iterator[str]:
    verdict, history = checked.verdict, checked.history
    explanation = checked.explanation
    cut = f" up to {history.cut}, where the file is cut off" if history.cut else ""
    if explanation is not None:
        yield f"{checked.file}: INVALID{cut}: {explanation.reason}"
        yield from _operations(explanation)
    elif verdict.violation is not None:
        of = f"key {verdict.violation.key}: " if verdict.violation.key else ""
        yield f"{checked.file}: INVALID: {of}{verdict.violation.reason}"
    elif verdict.valid == "unknown":
        progress = f": {verdict.progress}" if verdict.progress else ""
        yield f"{checked.file}: unknown ({verdict.cause}){cut}{progress}"
    else:
        yield f"{checked.file}: valid{cut}"
    yield f"  {_counted(history, verdict)}"
    cost = f"{verdict.elapsed_s:.3f} s, {verdict.memory_peak_bytes / 1e6:.1f} MB"
    if verdict.violation is not None:
        yield f"  decided by: {verdict.violation.by}, in {cost}"
    elif verdict.how:
        yield f"  decided by: {verdict.how}, in {cost}"
    else:
        yield f"  not decided in {cost}"
    if checked.second is not None:
        yield f"  {second_line(checked.second)}"
    for why in verdict.passed_over:
        yield f"  passed over by {why}"
    for note in history.notes:
        yield f"  note: {note}"


def _counted(history: ConcurrentHistory, verdict: Verdict) -> str:
    crashed = int(np.count_nonzero(history.ret == NEVER))
    keys = f" on {verdict.keys} keys" if verdict.keys != 1 else ""
    return (
        f"{len(history)} operations{keys}, {crashed} of them crashed, read as {history.dialect},"
        f" checked against {verdict.model}"
    )


def _operations(explanation: Explanation) -> Iterator[str]:
    """The stuck operation and what proves it, as the file has them."""
    wanted = [shown for shown in explanation.operations if shown.role != "context"]
    weight = {"stuck": 0, "witness": 1, "concurrent": 2}
    chosen = sorted(wanted, key=lambda shown: weight.get(shown.role, 3))[:_SHOWN_MAX]
    places = explanation.place_name
    for shown in sorted(chosen, key=lambda shown: shown.call):
        role = "" if shown.role == "earlier" else f"   ({shown.role})"
        yield f"    {places} {shown.place}: process {shown.process}: {shown.text}{role}"
    if len(wanted) > len(chosen):
        yield f"    and {len(wanted) - len(chosen)} more: --report FILE.html draws them"
    if explanation.prefix_count:
        of = f"{explanation.prefix_count} of {explanation.operation_count} operations"
        if explanation.prefix_is_shortest:
            yield f"  the shortest invalid prefix has {of}"
        else:
            yield f"  an invalid prefix has {of}; there was no time to rule out a shorter one"


def _json_lines(checked: Checked) -> Iterator[str]:
    verdict, history = checked.verdict, checked.history
    content = {
        "file": checked.file,
        "dialect": history.dialect,
        "crashed": int(np.count_nonzero(history.ret == NEVER)),
        "notes": list(history.notes),
        "cut": history.cut,
        **asdict(verdict),
    }
    if checked.second is not None:
        content["second_opinion"] = asdict(checked.second)
    if verdict.violation is not None and checked.explanation is not None:
        places = history.place.tolist()
        content["violation"] |= {
            "reason": checked.explanation.reason,
            "place": history.place_name,
            "places": [places[row] for row in verdict.violation.operations],
            "operations_shown": [
                {"place": shown.place, "process": shown.process, "text": shown.text,
                 "type": shown.type, "role": shown.role}
                for shown in checked.explanation.operations
            ],
        }  # fmt: skip
    yield json.dumps(content)


def _draw(path: Path, drawn: list[Checked], echo: Echo, *, quiet: bool) -> None:
    if not drawn:
        if not quiet:
            echo(f"{path} is not written: nothing is invalid")
        return
    from shalott.checkers.linearizability.timeline import timeline_page

    parts = [
        (checked.explanation, checked.object_history)
        for checked in drawn
        if checked.explanation is not None
    ]
    try:
        path.write_text(timeline_page(parts), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    if not quiet:
        echo(f"{path} is written")


def describe_models(modules: Iterable[str] = ()) -> Iterator[str]:
    """A few lines for each model: ours, those of what is installed, those of loaded modules.

    Raises UsageError: a module can't be loaded.
    """
    from shalott.checkers.models.outside import MODELS

    load_models(modules)
    for name in dict.fromkeys((*BUILT_IN, *MODELS.names())):
        made_by: Any = BUILT_IN.get(name) or MODELS.find(name)
        options = options_of(made_by)
        yield name
        yield f"    {' '.join((inspect.getdoc(made_by) or '').split())}".rstrip()
        if name not in BUILT_IN:
            yield f"    of: {MODELS.provider_of(name).name}"
        if known := _fs_of(made_by):
            yield f"    f: {', '.join(known)}"
        if options:
            yield f"    options: {', '.join(map(_option_text, options))}"
    for problem in MODELS.problems():
        yield f"note: {problem}"


def _fs_of(made_by: Any) -> tuple[str, ...]:
    """What a model's class says of them; one of somebody else's may need options to be made."""
    found = getattr(made_by, "meanings", None)
    if made_by in BUILT_IN_MODELS:
        found = meanings_of(made_by())
    return tuple(found) if isinstance(found, Mapping) else ()


def _option_text(option: Option) -> str:
    return f"{option.name}={'...' if option.default is REQUIRED else option.default}"
