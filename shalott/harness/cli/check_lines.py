"""What `shalott check` says: verdicts as lines for people, as JSON, and as a page that draws them;
and the list of models.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.checking import Verdict
from shalott.checkers.models import BUILT_IN, BUILT_IN_MODELS, meanings_of
from shalott.checkers.models.model import Option, default_text, options_of
from shalott.core.errors import UsageError

if TYPE_CHECKING:
    from shalott.checkers.checker import Result
    from shalott.checkers.linearizability.explanation import Explanation
    from shalott.checkers.models.outside import ModelClass

_SHOWN_MAX: Final = 12  # operations listed with a violation

Echo = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Checked:
    file: str
    history: ConcurrentHistory
    verdict: Verdict
    explanation: Explanation | None  # of what is invalid
    object_history: ConcurrentHistory | None
    second: Verdict | None = None  # Porcupine's, if both were asked
    guessed: bool = False  # nothing said which model it is
    others: tuple[str, ...] = ()  # models that fit, too, and promise more

    @property
    def reason(self) -> str:
        """Why it is invalid."""
        found = self.verdict.violation
        if found is None:
            return ""
        reason = found.reason if self.explanation is None else self.explanation.reason
        return f"key {found.key}: {reason}" if found.key else reason

    @property
    def notes(self) -> tuple[str, ...]:
        guessed: tuple[str, ...] = ()
        if self.guessed:
            others = f"; {' or '.join(self.others)} would promise more" if self.others else ""
            guessed = (f"its operations want the model {self.verdict.model}{others}",)
        return (*guessed, *self.history.notes, *self.verdict.notes)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge found."""

    file: str
    specification: str  # of the judge
    result: Result
    source_notes: tuple[str, ...]
    cut: str
    elapsed_s: float
    cpu_s: float
    guessed: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        guessed = (f"its operations want the judge {self.specification}",) if self.guessed else ()
        return (*guessed, *self.source_notes, *self.result.notes)


def lines_of(found: Checked | Judged) -> Iterator[str]:
    return verdict_lines(found) if isinstance(found, Checked) else judged_lines(found)


def json_line(found: Checked | Judged) -> str:
    return json.dumps(_content(found) if isinstance(found, Checked) else _judged_content(found))


def one_line(found: Checked | Judged) -> str:
    """Of one file among many: ``FILE: VERDICT: MODEL: why``."""
    if isinstance(found, Checked):
        said, model, why = _said(found), found.verdict.model, found.reason
        if found.verdict.valid == "unknown":
            why = _undecided(found)
        elif found.verdict.valid is True:
            why = _counted_shortly(found.history, found.verdict)
    else:
        said, model, why = _WORDS[found.result.valid], found.specification, _summary(found)
    notes = [note for note in found.notes if not note.startswith("its operations want")]
    line = f"{found.file}: {said}: {model}: {why}"
    return " ".join("; note: ".join([line, *notes]).split())


_WORDS: Final = {True: "valid", False: "INVALID", "unknown": "unknown"}


def _said(checked: Checked) -> str:
    return _WORDS[checked.verdict.valid]


def _undecided(checked: Checked) -> str:
    verdict = checked.verdict
    parts = [verdict.cause, verdict.progress]
    if verdict.readings or verdict.cause == "it depends on the model":
        parts.append(f"INVALID, because {checked.reason}")
    parts += _reading_lines(verdict)
    return "; ".join(filter(None, parts))


def _reading_lines(verdict: Verdict) -> list[str]:
    if not verdict.readings:
        return []
    said = "valid" if verdict.readings[-1].valid is True else "not decided"
    words = ", and ".join(each.words for each in verdict.readings)
    options = ", ".join(each.option for each in verdict.readings)
    return [f"{said} if {words} ({options})"]


def _counted_shortly(history: ConcurrentHistory, verdict: Verdict) -> str:
    crashed = int(np.count_nonzero(history.ret == NEVER))
    keys = f" on {verdict.keys} keys" if verdict.keys != 1 else ""
    cut = f", up to {history.cut}, where the file is cut off" if history.cut else ""
    return f"{len(history)} operations{keys}, {crashed} of them crashed{cut}"


def verdict_lines(checked: Checked) -> Iterator[str]:
    verdict, history = checked.verdict, checked.history
    explanation = checked.explanation
    cut = f" up to {history.cut}, where the file is cut off" if history.cut else ""
    if explanation is not None and verdict.valid == "unknown":
        yield f"{checked.file}: unknown ({verdict.cause}){cut}: {verdict.progress}".rstrip(": ")
        yield f"  INVALID, because {checked.reason}"
        yield from _operations(explanation)
        for line in _reading_lines(verdict):
            yield f"  {line}"
    elif explanation is not None:
        yield f"{checked.file}: INVALID{cut}: {checked.reason}"
        yield from _operations(explanation)
    elif verdict.valid is False:
        yield f"{checked.file}: INVALID: {checked.reason}"
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
        yield f"  {_second_line(checked.second)}"
    for why in verdict.passed_over:
        yield f"  passed over by {why}"
    for note in checked.notes:
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


def _content(checked: Checked) -> dict[str, object]:
    verdict, history = checked.verdict, checked.history
    content: dict[str, object] = {
        "file": checked.file,
        "dialect": history.dialect,
        "crashed": int(np.count_nonzero(history.ret == NEVER)),
        "cut": history.cut,
        **asdict(replace(verdict, judged=None)),
        "notes": list(checked.notes),
    }
    del content["judged"]
    if checked.second is not None:
        content["second_opinion"] = asdict(replace(checked.second, judged=None))
    if verdict.violation is not None and checked.explanation is not None:
        places = (verdict.judged or history).place.tolist()
        content["violation"] = asdict(verdict.violation) | {
            "reason": checked.explanation.reason,
            "place": history.place_name,
            "places": [places[row] for row in verdict.violation.operations],
            "operations_shown": [
                {"place": shown.place, "process": shown.process, "text": shown.text,
                 "type": shown.type, "role": shown.role}
                for shown in checked.explanation.operations
            ],
        }  # fmt: skip
    return content


def _second_line(second: Verdict) -> str:
    said = f"unknown ({second.cause})"
    if second.valid != "unknown":
        said = "valid" if second.valid else "invalid"
    cost = f"{second.elapsed_s:.3f} s, {second.memory_peak_bytes / 1e6:.1f} MB"
    return f"second opinion: {said} by {second.how}, in {cost}"


# --- judges ---------------------------------------------------------------------------------------


def judged_lines(judged: Judged) -> Iterator[str]:
    result = judged.result
    cut = f" up to {judged.cut}, where the file is cut off" if judged.cut else ""
    yield f"{judged.file}: {_WORDS[result.valid]}{cut}: {_summary(judged)}"
    for anomaly in result.anomalies[:_SHOWN_MAX]:
        rows = ", ".join(map(str, anomaly.operations[:_SHOWN_MAX]))
        yield f"    {anomaly.kind}: {anomaly.summary}" + (f" (at {rows})" if rows else "")
        if anomaly is result.anomalies[0]:
            yield from (f"        {sentence}" for sentence in anomaly.detail.get("argument", ()))
    if len(result.anomalies) > _SHOWN_MAX:
        yield f"    and {len(result.anomalies) - _SHOWN_MAX} more: --json has them all"
    if result.counts:
        yield f"  {', '.join(f'{name} {number}' for name, number in result.counts.items())}"
    yield f"  judged as {judged.specification}, in {judged.elapsed_s:.3f} s"
    for note in judged.notes:
        yield f"  note: {note}"


def _summary(judged: Judged) -> str:
    result = judged.result
    if not result.anomalies:
        return result.headline or next(iter(result.notes), "") or judged.specification
    more = len(result.anomalies) - 1
    first = result.anomalies[0]
    return f"{first.kind}: {first.summary}" + (f" (and {more} more)" if more else "")


def _judged_content(judged: Judged) -> dict[str, object]:
    built: dict[str, object] = msgspec.to_builtins(judged.result)
    return {
        "file": judged.file,
        "judge": judged.specification,
        "cut": judged.cut,
        "elapsed_s": judged.elapsed_s,
        "cpu_s": judged.cpu_s,
        **built,
        "notes": list(judged.notes),
    }


def draw(path: Path, drawn: list[Checked | Judged], echo: Echo, *, quiet: bool) -> None:
    if not drawn:
        if not quiet:
            echo(f"{path} is not written: nothing is invalid")
        return
    from shalott.harness.cli.check_page import check_page

    try:
        path.write_text(check_page(drawn), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    if not quiet:
        echo(f"{path} is written")


# -- models ----------------------------------------------------------------------------------------


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


def describe_models(modules: Iterable[str] = ()) -> Iterator[str]:
    """A few lines for each model: ours, those of what is installed, those of loaded modules.

    Raises UsageError: a module can't be loaded.
    """
    from shalott.checkers.judge import JUDGES, find_judge
    from shalott.checkers.models.outside import MODELS

    load_models(modules)
    for name in dict.fromkeys((*BUILT_IN, *MODELS.names())):
        made_by: ModelClass = BUILT_IN.get(name) or MODELS.find(name)
        options = options_of(made_by)
        yield name
        yield f"    {' '.join((inspect.getdoc(made_by) or '').split())}".rstrip()
        if name not in BUILT_IN:
            yield f"    of: {MODELS.provider_of(name).name}"
        if known := _fs_of(made_by):
            yield f"    f: {', '.join(known)}"
        if options:
            yield f"    options: {', '.join(map(_option_text, options))}"
    for name in JUDGES:
        judge = find_judge(name)
        yield name
        yield f"    {judge.summary}: {judge.promise}"
        yield f"    f: {', '.join(judge.fs)}"
        if options := options_of(judge.make):
            yield f"    options: {', '.join(map(_option_text, options))}"
        yield f"    after: {judge.source}"
    for problem in MODELS.problems():
        yield f"note: {problem}"


def _fs_of(made_by: ModelClass) -> tuple[str, ...]:
    """What a model's class says of them; one that is not ours may need options."""
    found = getattr(made_by, "meanings", None)
    if made_by in BUILT_IN_MODELS:
        found = meanings_of(made_by())
    return tuple(found) if isinstance(found, Mapping) else ()


def _option_text(option: Option) -> str:
    return f"{option.name}={default_text(option)}"
