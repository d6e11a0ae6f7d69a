"""What `shalott check` says: verdicts as lines for people, as JSON, and as a page that draws them;
and the list of models.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.linearizability.checking import Verdict
from shalott.checkers.models import BUILT_IN, BUILT_IN_MODELS, meanings_of
from shalott.checkers.models.model import REQUIRED, Option, options_of
from shalott.core.errors import UsageError

if TYPE_CHECKING:
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


def verdict_lines(checked: Checked) -> Iterator[str]:
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
        yield f"  {_second_line(checked.second)}"
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


def json_lines(checked: Checked) -> Iterator[str]:
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


def _second_line(second: Verdict) -> str:
    said = f"unknown ({second.cause})"
    if second.valid != "unknown":
        said = "valid" if second.valid else "invalid"
    cost = f"{second.elapsed_s:.3f} s, {second.memory_peak_bytes / 1e6:.1f} MB"
    return f"second opinion: {said} by {second.how}, in {cost}"


def draw(path: Path, drawn: list[Checked], echo: Echo, *, quiet: bool) -> None:
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
    for problem in MODELS.problems():
        yield f"note: {problem}"


def _fs_of(made_by: ModelClass) -> tuple[str, ...]:
    """What a model's class says of them; one that is not ours may need options."""
    found = getattr(made_by, "meanings", None)
    if made_by in BUILT_IN_MODELS:
        found = meanings_of(made_by())
    return tuple(found) if isinstance(found, Mapping) else ()


def _option_text(option: Option) -> str:
    return f"{option.name}={'...' if option.default is REQUIRED else option.default}"
