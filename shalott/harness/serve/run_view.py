"""One run: what it was, what was found, its files, and the commands that go on from here."""

from __future__ import annotations

import shlex

import msgspec

from shalott.checkers.checker import Result
from shalott.core.errors import UsageError
from shalott.core.json_value import Json, JsonObject
from shalott.harness.report.meta import Tested
from shalott.harness.report.results import RunResults, notes_that_apply, read_results
from shalott.harness.run.store import PLAN, REPORT, RESULTS
from shalott.harness.serve.cached_table import VERDICTS, Runs
from shalott.harness.serve.evidence import Why, why_of
from shalott.harness.serve.history_view import parquet_rows
from shalott.harness.serve.node_files import ListedFile, listed
from shalott.harness.serve.request import Query, Refused, RunPath, StoreFiles, is_live
from shalott.harness.serve.runs_page import RunRow, cells, row_view

MINIMAL = "minimal.json"  # what `shalott shrink` writes beside a plan
PLANS = (PLAN, MINIMAL)
JSON_MAX = 8 << 20
FAULTS_MAX = 1000  # listed of a plan
ANOMALIES_MAX = 20  # told of a checker
SIM = "sim"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    line: str


class CheckerView(msgspec.Struct, frozen=True, kw_only=True):
    checker: str
    verdict: str
    counts: dict[str, object]
    anomalies: tuple[str, ...]  # sentences
    left_out: int
    notes: tuple[str, ...]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """``row``: what the table says of it. ``kept``: its directory is there; else the table is all
    that is left of it. ``why`` it is not valid; ``remarks``: what the run says of itself."""

    run: str
    kept: bool
    live: bool
    verdict: str
    headline: str
    row: RunRow | None
    facts: tuple[tuple[str, str], ...] = ()
    checkers: tuple[CheckerView, ...] = ()
    commands: tuple[Command, ...] = ()
    files: tuple[ListedFile, ...] = ()
    more_files: bool = False
    has_report: bool = False
    plans: tuple[str, ...] = ()
    operations: int | None = None
    notes: tuple[str, ...] = ()
    why: Why = Why()
    remarks: tuple[str, ...] = ()


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """``text``: indented, of any version; ``faults``: a line each, as far as they can be
    read."""

    run: str
    file: str
    others: tuple[str, ...]
    version: str
    text: str
    faults: tuple[dict[str, object], ...]


def run_view(places: StoreFiles, runs: Runs, query: Query, store: str) -> RunView:
    """Raises Refused."""
    name = query.file_name("run")
    try:
        place = places.run(name)
    except Refused:
        row = row_of(runs, name)
        if row is None:
            raise
        gone = "Its directory is gone; this is what the table of runs has kept of it."
        return RunView(
            run=row.run,
            kept=False,
            live=False,
            verdict=row.verdict,
            headline=row.headline,
            row=row,
            notes=(gone,),
        )
    return _kept(places, place, row_of(runs, place.name), store)


def row_of(runs: Runs, name: str) -> RunRow | None:
    number = runs.places.get(name)
    if number is None:
        return None
    (row,) = runs.rows([number])
    return row_view(row, cells(runs)[number].as_py())


def _kept(places: StoreFiles, place: RunPath, row: RunRow | None, store: str) -> RunView:
    results, notes = results_of(places, place)
    files, more = places.files(place)
    names = [file.name for file in files]
    plans = tuple(name for name in PLANS if name in names)
    plan = read_json(places, place, PLAN) if PLAN in plans else None
    live = is_live(place)
    return RunView(
        run=place.name,
        kept=True,
        live=live,
        verdict=_verdict(results, row),
        headline=results.headline if results else row.headline if row else _unfinished(live),
        row=row,
        facts=tuple(_facts(results, plan)),
        checkers=tuple(map(_told, results.results)) if results else (),
        commands=tuple(_commands(f"{store.rstrip('/')}/{place.name}", results, plan, plans)),
        files=tuple(listed(place, file) for file in files),
        more_files=more,
        has_report=REPORT in names,
        plans=plans,
        operations=parquet_rows(places, place),
        notes=notes + tuple(results.failures if results else ()),
        why=why_of(places, place, results),
        remarks=notes_that_apply(results.notes, results.results) if results else (),
    )


def results_of(places: StoreFiles, place: RunPath) -> tuple[RunResults | None, tuple[str, ...]]:
    """The verdict, or a sentence that says why it can't be read; neither where there is none."""
    if not (place.path / RESULTS).is_file():
        return None, ()
    try:
        with places.opened(place, RESULTS):  # it is inside
            return read_results(place.path / RESULTS), ()
    except Refused as refused:
        return None, (f"{RESULTS}: {refused.sentence}",)
    except (UsageError, RecursionError) as error:
        return None, (str(error).replace(f"{place.path}/", ""),)


def read_json(places: StoreFiles, place: RunPath, name: str) -> Json:
    """A file's JSON; None if it can't be read."""
    try:
        with places.opened(place, name) as file:
            found: Json = msgspec.json.decode(file.read(JSON_MAX))
            return found
    except (Refused, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _unfinished(live: bool) -> str:
    return "It is under way." if live else "It has no verdict."


def _verdict(results: RunResults | None, row: RunRow | None) -> str:
    if results is None:
        return row.verdict if row else "no verdict"
    return _word(results.valid)


def _word(valid: bool | str) -> str:
    text = str(valid).lower() if isinstance(valid, bool) else valid
    return VERDICTS.get(text, "no verdict")


def _told(result: Result) -> CheckerView:
    return CheckerView(
        checker=result.checker,
        verdict=_word(result.valid),
        counts={name: count for name, count in result.counts.items() if count},
        anomalies=tuple(each.summary for each in result.anomalies[:ANOMALIES_MAX]),
        left_out=max(0, len(result.anomalies) - ANOMALIES_MAX),
        notes=tuple(result.notes),
    )


def _facts(results: RunResults | None, plan: Json) -> list[tuple[str, str]]:
    """What the run's page tells in a few words; of a plan only what is where it should be."""
    facts = []
    for name, path in (
        ("system", ("system", "name")),
        ("profile", ("system", "profile")),
        ("workload", ("workload", "name")),
        ("cluster", ("cluster", "backend")),
        ("nodes", ("cluster", "nodes")),
        ("rate asked (1/s)", ("workload", "rate_hz")),
        ("clients", ("workload", "concurrency")),
        ("known bugs", ("system", "bugs")),
        ("seed", ("seed",)),
    ):
        value = inner(plan, path)
        if value not in (None, [], ""):
            facts.append(
                (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            )
    if results:
        facts.append(("took", f"{results.elapsed_ns / 1e9:.1f} s"))
        tested = results.tested
        facts += [("commit", _commit(tested)), ("image", tested.image)]
    return [(name, value[:300]) for name, value in facts]


def _commit(tested: Tested) -> str:
    """Short, with the state of its tree; where it is not known, why."""
    commit = tested.commit
    return f"{commit[:12]} ({tested.tree})" if commit.isalnum() else commit


def inner(value: Json, path: tuple[str, ...]) -> Json:
    """What stands at a path of a decoded JSON; None where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _commands(
    directory: str, results: RunResults | None, plan: Json, plans: tuple[str, ...]
) -> list[Command]:
    found = []
    simulated = inner(plan, ("cluster", "backend")) == SIM
    quoted = shlex.quote(f"{directory}/{PLAN}")
    if results and results.command:
        found.append(Command(what="repeat it as it was asked for", line=results.command))
    if PLAN in plans and simulated:
        found.append(Command(what="replay it, event by event", line=f"shalott replay {quoted}"))
        if results and results.valid is False:
            found.append(Command(what="make its plan minimal", line=f"shalott shrink {quoted}"))
    elif PLAN in plans:
        found.append(Command(what="run its plan again", line=f"shalott test --plan {quoted}"))
        if results and results.valid is False:
            line = f"shalott shrink {quoted}"
            found.append(Command(what="make its plan minimal, in the simulation", line=line))
    if MINIMAL in plans:
        minimal = shlex.quote(f"{directory}/{MINIMAL}")
        found.append(Command(what="replay the minimal plan", line=f"shalott replay {minimal}"))
    line = f"shalott analyze {shlex.quote(directory)}"
    return [*found, Command(what="judge it again", line=line)]


def plan_view(places: StoreFiles, query: Query) -> PlanView:
    """Raises Refused."""
    place = places.run(query.file_name("run"))
    name = query.one_of("file", PLANS)
    with places.opened(place, name) as file:
        data = file.read(JSON_MAX)
    plan = read_json(places, place, name)
    try:
        text = msgspec.json.format(data, indent=2).decode("utf-8", "replace")
    except (msgspec.MsgspecError, RecursionError, ValueError):
        text = data.decode("utf-8", "replace")
    faults = inner(plan, ("faults",))
    version = inner(plan, ("version",))
    return PlanView(
        run=place.name,
        file=name,
        others=tuple(each for each in PLANS if each != name and (place.path / each).is_file()),
        version="unknown" if version is None else str(version)[:50],
        text=text,
        faults=tuple(_fault(each) for each in faults[:FAULTS_MAX] if isinstance(each, dict))
        if isinstance(faults, list)
        else (),
    )


def _fault(told: JsonObject) -> dict[str, object]:
    """What is shown of one; plans of other versions may hold more."""
    return {name: told.get(name, "") for name in ("id", "at_ms", "duration_ms", "kind", "target")}
