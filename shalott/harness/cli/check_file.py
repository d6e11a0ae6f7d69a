"""One history of `shalott check`: read, given to the model or judge that it wants, and judged.

What is heavy is loaded when it is needed: Arrow for Parquet, the explanation for what is invalid,
judges and shapes where they are asked, Porcupine (checkers/porcupine).
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shalott.checkers.history.concurrent import FORM, ConcurrentHistory
from shalott.checkers.linearizability.checking import CheckInterrupted, Verdict, check, memory_left
from shalott.checkers.linearizability.drains import DRAINED
from shalott.checkers.linearizability.readings import by_clock, judge_readings
from shalott.checkers.models import BUILT_IN, Model, meanings_of
from shalott.checkers.reading import read_history
from shalott.checkers.reading.history_files import file_of, unpacked
from shalott.core.errors import UnreadableHistory, UsageError
from shalott.harness.cli.check_lines import Checked, Judged
from shalott.harness.cli.check_request import (
    CheckRequest,
    ask_porcupine,
    decided_by,
    given_options,
    limits_of,
    locate,
    model_of,
)

if TYPE_CHECKING:
    from shalott.checkers.wanted import Wanted

_NOTED_BYTES: Final = 1 << 20
_KEYED = "values are [key value], as those of jepsen.independent: each key was judged alone"


def judge_file(request: CheckRequest, file: str) -> Checked | Judged:
    """Raises UsageError: it can't be read, or is none of the model's, or it is not known which
    model it wants; MemoryError."""
    path = locate(file, request.store)
    if path.is_dir():
        path = file_of(path)
    specification = request.model
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    if not specification:
        found = _wanted(path, file)
        specification, others = found.name, found.others
        if found.keyed and not request.keyed:
            request, notes = replace(request, keyed=True), (_KEYED,)
    if is_judge(specification):
        return _judged(request, file, path, specification)
    checked = _checked(request, file, path, specification, notes)
    if checked.verdict.valid is False and others:
        checked = _as_others(request, checked, path, others)
    return replace(checked, guessed=not request.model, others=others)


def is_judge(specification: str) -> bool:
    name = specification.partition(":")[0]
    if not specification or name in BUILT_IN:
        return False
    from shalott.checkers.judge import JUDGES

    return name in JUDGES


def _wanted(path: Path, file: str) -> Wanted:
    """Raises UsageError: nothing fits, or several that have nothing in common."""
    from shalott.checkers.wanted import shape_of_file, wanted

    with unpacked(path) as plain:
        shape = shape_of_file(plain)
    found = wanted(shape)
    if found.name:
        return found
    seen = ", ".join(shape.fs) or "no operations"
    fits = (
        f"they may be meant for {' or '.join(found.others)}"
        if found.others
        else ("no model or judge has those: see `shalott models`")
    )
    raise UsageError(f"which model? {file} has {seen}: {fits}; --model NAME says it")


# --- linearizability ------------------------------------------------------------------------------


def _checked(
    request: CheckRequest, file: str, path: Path, specification: str, notes: tuple[str, ...]
) -> Checked:
    began = time.monotonic()
    model = model_of(request, specification)
    by = decided_by(request, model)
    history = _read(request, path, model)
    history = replace(history, notes=(*history.notes, *notes)) if notes else history
    seconds, most_bytes = limits_of(request)
    if request.engine == "porcupine":
        return Checked(
            file, history, ask_porcupine(history, model, seconds, most_bytes), None, None
        )
    models: list[tuple[Model, ConcurrentHistory]] = []

    def checked(read: ConcurrentHistory, as_model: Model) -> Verdict:
        left_s = None if seconds is None else max(0.001, seconds - (time.monotonic() - began))
        try:
            return check(
                read, as_model, time_limit_s=left_s, memory_limit_bytes=memory_left(most_bytes),
                threads=request.threads or None, by=by, find_prefix=not models,
            )  # fmt: skip
        except CheckInterrupted as interrupted:
            return interrupted.verdict
        finally:
            models.append((as_model, read))

    def in_order_of(clock: str) -> ConcurrentHistory | None:
        if clock == "index":
            return by_clock(
                read_history(path, dialect=request.dialect, keyed=request.keyed, by_index=True)
            )
        return by_clock(history)

    verdict = judge_readings(
        history, model, checked, given=given_options(request, specification), orders=in_order_of
    )
    second = None
    if request.engine == "both" and verdict.cause != "cancelled":
        second = ask_porcupine(history, model, seconds, most_bytes)
    is_told = verdict.violation is None or verdict.violation.word == DRAINED
    if is_told or (second is not None and second.valid is True):
        return Checked(file, history, verdict, None, None, second)
    from shalott.checkers.linearizability.explain import explain_verdict

    explanation, object_history = explain_verdict(history, verdict, model)
    return Checked(file, history, verdict, explanation, object_history, second)


def _read(request: CheckRequest, path: Path, model: Model) -> ConcurrentHistory:
    """Read again as keyed if it is, by what its reads asked for: [key nil]."""
    history = read_history(path, dialect=request.dialect, keyed=request.keyed)
    if request.keyed or not _asks_by_key(history, model):
        return history
    try:
        keyed = read_history(path, dialect=request.dialect, keyed=True)
    except UnreadableHistory:
        hint = "reads ask for [key nil], but other values are no [key value]: is it keyed?"
        return replace(history, notes=(*history.notes, hint))
    return replace(keyed, notes=(*keyed.notes, _KEYED))


def _asks_by_key(history: ConcurrentHistory, model: Model) -> bool:
    if not history.argument.forms or history.key.names != ("",):
        return False
    asking = [name for name, each in (meanings_of(model) or {}).items()
              if each.result and not each.argument]  # fmt: skip
    rows = history.f.among(tuple(asking))
    if not rows.any() or (history.argument.kind[rows] != FORM).any():
        return False
    forms = {int(number): None for number in history.argument.number[rows]}
    return all(_is_key_alone(history.argument.forms[number]) for number in forms)


def _is_key_alone(value: Hashable) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[1] is None


def _as_others(
    request: CheckRequest, checked: Checked, path: Path, others: tuple[str, ...]
) -> Checked:
    """It was guessed what the history wants: is it valid as what else fits?"""
    for name in others:
        try:
            other = _checked(request, checked.file, path, name, ())
        except UsageError:
            continue
        if other.verdict.valid is True:
            verdict = replace(
                checked.verdict,
                valid="unknown",
                cause="it depends on the model",
                progress=f"it is valid as {name}; --model NAME says what it is",
            )
            return replace(checked, verdict=verdict)
    return checked


# --- judges ---------------------------------------------------------------------------------------


def _judged(request: CheckRequest, file: str, path: Path, specification: str) -> Judged:
    from shalott.checkers.judge import Limits, find_judge, make_judge, merged
    from shalott.checkers.reading.entries import EntrySource
    from shalott.checkers.reading.keyed_entries import sources_by_key

    for option, is_given in (
        ("--monitor", request.monitor != "auto"),
        ("--engine", request.engine != "shalott"),
        ("--failed-cas", bool(request.failed_cas)),
    ):
        if is_given:
            raise UsageError(f"{option} is of models, and {specification} is a judge: leave it out")
    seconds, most_bytes = limits_of(request)
    judge = make_judge(specification)
    began, cpu = time.monotonic(), time.process_time()
    source = EntrySource.of_path(path)
    limits = Limits(seconds, memory_left(most_bytes))
    if request.keyed and not find_judge(judge.name).by_key:
        found = {key: judge.judge(each, limits) for key, each in sources_by_key(source).items()}
        result = merged(judge.name, found)
    else:
        result = judge.judge(source, limits)
    notes = dict.fromkeys((*source.notes, *_notes_on_order(path), *([_KEYED] * request.keyed)))
    return Judged(
        file,
        specification,
        result,
        tuple(notes),
        source.cut,
        time.monotonic() - began,
        time.process_time() - cpu,
        guessed=not request.model,
    )


def _notes_on_order(path: Path) -> tuple[str, ...]:
    """What is odd about processes, times and indexes; of a large file it is not looked for."""
    if path.stat().st_size > _NOTED_BYTES:
        return ()
    try:
        return read_history(path).notes
    except (UnreadableHistory, UsageError):
        return ()
