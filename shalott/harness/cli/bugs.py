"""`shalott bugs`: the catalogue of historical bugs as a table, or all about one of them.

A bug that a search can look for has a scenario (harness/scenarios/catalogue.py): the anomaly
that it must report, and within how many seeds.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shalott.broker.base.errors import ConfigError
from shalott.broker.known_bugs import CATALOGUE, KnownBug, known_bug
from shalott.core.errors import UsageError
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


def list_bugs(console: Console) -> None:
    """A row for each bug, in the order of the catalogue."""
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
    """Measure one scenario, or all; docs/known-bugs.md then says so. Raises UsageError."""

    def tell(name: str, cost: Cost) -> None:
        after = "not found" if cost.found_after is None else f"found after {cost.found_after}"
        off = f"{cost.control_findings} of {cost.controls} with the switch off"
        console.print(Text(f"{name}: {after}, {cost.cpu_s:.1f} CPU s; {off}"))

    ids = tuple(SCENARIOS) if scenario_id is None else (scenario_of(scenario_id).id,)
    measure_all(ids, parse_seeds(seeds), simulate, directory, tell)


def document_bugs(directory: Path, console: Console) -> None:
    """Write docs/known-bugs.md from what was measured before."""
    write(directory, load_costs(directory))
    console.print(Text(f"{directory / DOCUMENT} is written."))


def _scenario(bug: KnownBug) -> tuple[str, str]:
    """The anomaly and the seed budget of its scenario, if somebody wrote one."""
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
