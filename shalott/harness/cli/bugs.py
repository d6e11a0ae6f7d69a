"""`shalott bugs`: the catalogue of historical bugs as a table, or all about one of them.

A bug that a search can look for has a scenario (harness/scenarios/catalogue.py): the anomaly that
it must report, and within how many seeds. ``--original`` runs the ladder of RocketMQ's known bugs
on RocketMQ's own releases (harness/originals), ``--published`` what plug-ins say is published of
their systems (published.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import CATALOGUE, KnownBug, known_bug
from shalott.core.command_options import Argument, Option
from shalott.core.errors import UsageError
from shalott.harness.cli.options import LoadField, StoreField, with_options
from shalott.harness.cli.published import Shrinking, document_published, run_published
from shalott.harness.originals.document import DOCUMENT as LADDER_DOCUMENT
from shalott.harness.originals.document import LADDER, find_row, write_document
from shalott.harness.originals.evidence import Look, load_looks
from shalott.harness.originals.row import RELEASES, Row
from shalott.harness.originals.running import LadderRequest, run_in_store, run_ladder
from shalott.harness.published.running import REPEAT, FindingsRequest
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.catalogue import SCENARIOS, scenario_of, scenario_of_bug
from shalott.harness.search.door import Simulate
from shalott.harness.search.known_bugs_page import DOCUMENT, Cost, load_costs, measure_all, write
from shalott.harness.search.search import parse_seeds

CONFIDENCE = {
    "A": "the fix or the source was read",
    "B": "the issue was read",
    "C": "only the title is known",
    "own": "a rule of this broker's own, undone",
}


def add_commands(app: typer.Typer) -> None:
    app.command()(with_options(bugs))


@dataclass(frozen=True, slots=True, kw_only=True)
class BugsOptions:
    """What is listed, measured, run or written."""

    bug: Annotated[str | None, Argument("Tell all about this one: KB-RMQ-02.")] = None
    measure: Annotated[bool, Option("Run the scenarios; write docs/evidence/known-bugs.md.")] = (
        False
    )
    document: Annotated[
        bool, Option("Write docs/evidence/known-bugs.md from what was measured.")
    ] = False
    seeds: Annotated[str, Option("For --measure: how many, or a range.")] = "50000-50199"
    out: Annotated[Path, Option("The folder of the documents.")] = Path("docs")
    original: Annotated[
        bool, Option("Run RocketMQ's own releases; write docs/evidence/originals.md.")
    ] = False
    published: Annotated[bool, Option("Run what is published of systems, and write it down.")] = (
        False
    )
    newest: Annotated[bool, Option("On the newest release alone.")] = False
    row: Annotated[str | None, Option("Of --original: this row only.", ("--bug",))] = None
    repeat: Annotated[int | None, Option("Runs of each side of a row.")] = None
    version: Annotated[str, Option("On this release instead of the row's.")] = ""
    every: Annotated[bool, Option("Of --original: make runs that can't change the answer.")] = False
    shrink: Annotated[bool, Option("Of --published: report what was found by a minimal plan.")] = (
        False
    )
    budget: Annotated[int, Option("Of --shrink: runs at most.")] = 30
    time_limit: Annotated[str, Option("Of --shrink: no new run after so long: 1h.")] = ""
    load: LoadField = ()
    store: StoreField = Path("store")


def bugs(asked: BugsOptions) -> None:
    """List the historical bugs that `--bug` switches on, or tell all about one."""
    if asked.repeat is not None and asked.repeat < 1:
        raise UsageError(f"--repeat {asked.repeat}: give 1 or more")
    console, out = Console(), asked.out
    if asked.published:
        runs = FindingsRequest(
            repeat=REPEAT if asked.repeat is None else asked.repeat,
            version=asked.version,
            newest=asked.newest,
        )
        raise typer.Exit(
            document_published(out, console)
            if asked.document
            else run_published(
                asked.bug or asked.row,
                runs,
                out,
                asked.store,
                console,
                shrink=Shrinking(asked.budget, asked.time_limit) if asked.shrink else None,
            )
        )
    if asked.original and asked.document:
        document_originals(out, console)
    elif asked.original:
        ladder = LadderRequest(repeat=asked.repeat or 1, version=asked.version, every=asked.every)
        run_originals(asked.row or asked.bug, ladder, out, asked.store, console)
    elif asked.measure:
        measure_bugs(asked.bug, asked.seeds, out, simulate, console)
    elif asked.document:
        document_bugs(out, console)
    elif asked.bug is None:
        list_bugs(console)
    else:
        tell_bug(asked.bug, console)


def list_bugs(console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "conf.", "links", "anomaly", "seeds", "what it is"):
        table.add_column(heading, no_wrap=heading == "id", overflow="fold")
    for bug in CATALOGUE:
        links = "\n".join(short_link(link) for link in bug.links)
        anomaly, budget = _scenario(bug)
        table.add_row(bug.id, bug.confidence, links, anomaly, budget, Text(bug.title))
    console.print(table)
    console.print(
        "\nAll are off unless asked for: `shalott test --bug ID`. A search for one reports the"
        " anomaly within so many seeds: `shalott search --bug ID`. `shalott bugs ID` says more.",
        markup=False,
        highlight=False,
    )


def tell_bug(bug_id: str, console: Console) -> None:
    """One bug in full. Raises UsageError if there is no such bug."""
    try:
        bug = known_bug(bug_id)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, words in _facts(bug):
        table.add_row(name, Text(words))
    console.print(Text(f"{bug.id}  {bug.title}", style="bold"))
    console.print(table)


def measure_bugs(
    scenario_id: str | None, seeds: str, directory: Path, simulate: Simulate, console: Console
) -> None:
    """Measure one scenario, or all; docs/evidence/known-bugs.md then says so. Raises UsageError."""

    def tell(name: str, cost: Cost) -> None:
        after = "not found" if cost.found_after is None else f"found after {cost.found_after}"
        off = f"{cost.control_findings} of {cost.controls} with the switch off"
        plain = "" if cost.plain is None else f"; plain {cost.plain.words}"
        console.print(Text(f"{name}: {after}, {cost.cpu_s:.1f} CPU s; {off}{plain}"))

    ids = tuple(SCENARIOS) if scenario_id is None else (scenario_of(scenario_id).id,)
    measure_all(ids, parse_seeds(seeds), simulate, directory, tell)


def document_bugs(directory: Path, console: Console) -> None:
    """Write docs/evidence/known-bugs.md from what was measured before."""
    write(directory, load_costs(directory))
    console.print(Text(f"{directory / DOCUMENT} is written."))


def _scenario(bug: KnownBug) -> tuple[str, str]:
    """The anomaly and the seed budget of its scenario, if there is one."""
    scenario = scenario_of_bug(bug.id)
    return ("-", "-") if scenario is None else (scenario.anomaly, str(scenario.seed_budget))


def _facts(bug: KnownBug) -> list[tuple[str, str]]:
    anomaly, budget = _scenario(bug)
    return [
        ("switch", bug.switch),
        ("trigger", bug.trigger),
        ("symptom", bug.symptom),
        ("fix", bug.fix),
        ("confidence", f"{bug.confidence}: {CONFIDENCE[bug.confidence]}"),
        *(("link", link) for link in bug.links),
        ("anomaly", anomaly),
        ("seed budget", budget),
        ("use it", f"shalott test --bug {bug.id}"),
    ]


def short_link(link: str) -> str:
    """``rmq#2009`` for an issue or a pull request of RabbitMQ; others without their scheme."""
    owner, _, number = link.rpartition("/")
    if "rabbitmq/rabbitmq-server/" in owner and number.isdigit():
        return f"rmq#{number}"
    return link.removeprefix("https://")


# -- on RocketMQ's own releases -------------------------------------------------------------------


def run_originals(
    bug: str | None, asked: LadderRequest, directory: Path, store: Path, console: Console
) -> None:
    """Run what is missing of one row, or of all, and write the document. Raises UsageError."""
    rows = LADDER if bug is None else (_row_with_plan(bug),)
    if asked.version and asked.version not in RELEASES:
        raise UsageError(f"--version {asked.version}: there are {', '.join(RELEASES)}")

    def tell(row: Row, look: Look) -> None:
        found = "found" if look.found else f"void: {look.void}" if look.void else "not found"
        where = f"{look.side} on {look.release}, load {look.load:.1f}"
        console.print(Text(f"{row.id}: {found} ({where}); {', '.join(look.classes) or 'valid'}"))

    run_plan = partial(run_in_store, store_root=store)
    write_document(directory, run_ladder(rows, asked, run_plan, directory, tell))
    console.print(Text(f"{directory / LADDER_DOCUMENT} is written."))


def document_originals(directory: Path, console: Console) -> None:
    """Write docs/evidence/originals.md from what was run before."""
    write_document(directory, load_looks(directory))
    console.print(Text(f"{directory / LADDER_DOCUMENT} is written."))


def _row_with_plan(bug: str) -> Row:
    row = find_row(bug)
    if row.same_as:
        return find_row(row.same_as)
    if row.setup is None:
        raise UsageError(f"{row.id} has no plan: it waits for {row.waits_for}")
    return row
