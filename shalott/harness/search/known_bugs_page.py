"""docs/evidence/known-bugs.md: known bugs and loss windows, and what finding each costs.

Written from three things: the catalogue (broker/known_bugs.py), the scenarios that find its bugs
(harness/scenarios/catalogue.py), and what was measured when each scenario was run on a range
of seeds (``known-bugs.json`` beside the document). ``shalott bugs --measure`` does both;
``--document`` writes the document anew from what was measured before. Nothing in it is written by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from shalott.broker.known_bugs import CATALOGUE, KnownBug
from shalott.core.errors import StoreError
from shalott.harness.report.results import classes, violations
from shalott.harness.scenarios.catalogue import SCENARIOS, WINDOWS, scenario_of_bug
from shalott.harness.scenarios.scenario import Scenario
from shalott.harness.scenarios.swarm import Subject, draw_plan, plain_subject
from shalott.harness.search.door import Simulate
from shalott.harness.search.search import workloads_of

EVIDENCE = "evidence"  # the folder of the documents in which both files are
DOCUMENT, COSTS = f"{EVIDENCE}/known-bugs.md", f"{EVIDENCE}/known-bugs.json"
CONTROLS = 5  # seeds that are run with the switch off as well: the one that found it, and before
PLAIN_S = 120.0  # CPU time of a plain search

_HEAD = """\
# Known bugs: what a search must find

For readers who ask whether searches find bugs, and how soon.

Each bug below once lost messages, stuck or crashed in production, or is a rule of this
broker's own, undone. Each is a switch that is off by default (`shalott test --bug ID`), and has a
scenario by which a search must find it within a budget of seeds (`shalott search --bug ID`) and
report the anomaly that is named; with the switch off the same seeds must show nothing.
`tests/planted/` holds them to it.

This page is generated: `shalott bugs --measure --seeds {seeds}` runs every scenario and writes
it. "Found after" counts seeds from the first of the range, which no scenario was tuned to; "CPU s"
is what they took, all together, on one core. "Off" says how many of the last of these runs showed
any anomaly when they were repeated with the switch off (of a loss window: with what closes it),
but for those that are said to remain. "Plain" is the search that no scenario narrows, over every
workload of the system in turn, of the same seeds: after how many it reports that anomaly where it
has none with the switch off, and in how many CPU seconds; it ends after {plain:.0f}.

"""


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """What the search that is narrowed for nothing cost. ``found``: by the last of its runs."""

    found: bool
    runs: int
    cpu_s: float

    @property
    def words(self) -> str:
        return str(self.runs) if self.found else f"not in {self.runs}"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a search for one scenario cost. ``found_after``: seeds; None: it was not found."""

    seeds: str
    found_after: int | None
    seed: int | None
    cpu_s: float
    virtual_s: float
    controls: int  # runs with the switch off
    control_findings: int = 0  # of these, that showed what the scenario does not say remains
    plain: Plain | None = None  # of a bug


@dataclass(frozen=True, slots=True)
class Look:
    """One run of a scenario, and the classes of anomaly by which it is invalid."""

    kinds: tuple[str, ...]
    cpu_s: float
    virtual_s: float
    error: str | None


def look(subject: Subject, seed: int, simulate: Simulate) -> Look:
    """Run the seed's plan."""
    outcome = simulate(draw_plan(subject, seed))
    kinds = classes(violations(outcome.results)) if outcome.valid is False else ()
    return Look(tuple(kinds), outcome.wall_s, outcome.virtual_ns / 1e9, outcome.error)


def measure(
    scenario: Scenario, seeds: range, simulate: Simulate, *, controls: int = CONTROLS
) -> Cost:
    """Search from the first seed on until it is found, then repeat the last runs without the bug.

    Of ``seeds`` no more are tried than the scenario's budget allows.
    """
    cpu_s, virtual_s, tried = 0.0, 0.0, 0
    found = None
    for seed in seeds[: scenario.seed_budget]:
        one = look(scenario.subject(), seed, simulate)
        cpu_s, virtual_s, tried = cpu_s + one.cpu_s, virtual_s + one.virtual_s, tried + 1
        if scenario.anomaly in one.kinds:
            found = seed
            break
    repeated = list(seeds[:tried])[-controls:] if controls else []
    sound = [look(scenario.sound_subject(), s, simulate) for s in repeated]
    return Cost(
        seeds=f"{seeds[0]}-{seeds[-1]}",
        found_after=None if found is None else tried,
        seed=found,
        cpu_s=round(cpu_s, 1),
        virtual_s=round(virtual_s),
        controls=len(sound),
        control_findings=sum(not _is_clean(one, scenario) for one in sound),
    )


def measure_plain(scenario: Scenario, seeds: range, simulate: Simulate) -> Plain | None:
    """The plain search for a bug; None of a loss window, which settings of its scenario open."""
    if not scenario.bugs:
        return None
    system, profile = scenario.system, scenario.profile
    subjects = [plain_subject(system, profile, name) for name in workloads_of(system)]
    cpu_s, runs, found = 0.0, 0, False
    for seed in seeds:
        sound = replace(subjects[seed % len(subjects)], bugs=scenario.stage)
        one = look(replace(sound, bugs=(*scenario.bugs, *scenario.stage)), seed, simulate)
        cpu_s, runs = cpu_s + one.cpu_s, runs + 1
        if scenario.anomaly in one.kinds:
            found = scenario.anomaly not in look(sound, seed, simulate).kinds
        if found or cpu_s >= PLAIN_S:
            break
    return Plain(found=found, runs=runs, cpu_s=round(cpu_s, 1))


def _is_clean(control: Look, scenario: Scenario) -> bool:
    """Whether it came to its end and showed nothing but what remains."""
    return control.error is None and set(control.kinds) <= set(scenario.remains)


def measure_all(
    ids: Sequence[str],
    seeds: range,
    simulate: Simulate,
    directory: Path,
    tell: Callable[[str, Cost], None],
) -> None:
    """Measure the scenarios of ``ids``, and write both files after each. Raises StoreError."""
    costs = load_costs(directory)
    for scenario_id in ids:
        scenario = SCENARIOS[scenario_id]
        cost = measure(scenario, seeds, simulate)
        cost = msgspec.structs.replace(cost, plain=measure_plain(scenario, seeds, simulate))
        costs[scenario_id] = cost
        write(directory, costs)
        tell(scenario_id, cost)


# -- the files -------------------------------------------------------------------------------------


def load_costs(directory: Path) -> dict[str, Cost]:
    """What was measured; {} if nothing was. Raises StoreError."""
    path = directory / COSTS
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Cost])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def write(directory: Path, costs: Mapping[str, Cost]) -> None:
    """Both files, without costs of what is no scenario any more. Raises StoreError."""
    known = {name: costs[name] for name in sorted(costs) if name in SCENARIOS}
    try:
        (directory / EVIDENCE).mkdir(parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(known), indent=1)
        (directory / COSTS).write_bytes(data + b"\n")
        (directory / DOCUMENT).write_text(render(known), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write into {directory}: {error.strerror}") from error


def render(costs: Mapping[str, Cost]) -> str:
    seeds = next((cost.seeds for cost in costs.values()), "50000-50199")
    lines = [*_bug_table(costs), "", "## Loss windows", ""]
    lines += [
        "The windows that RabbitMQ documents ([loss-windows.md](loss-windows.md)), and those that",
        "RocketMQ's defaults open (W-), are no bugs to switch on: each is opened by settings or",
        "client guarantees, and closed by others.",
        "",
        *_window_table(costs),
    ]
    for bug in CATALOGUE:
        lines += ["", *_about(bug)]
    return _HEAD.format(seeds=seeds, plain=PLAIN_S) + "\n".join(lines) + "\n"


_HEADINGS = (
    *("id", "what it is", "anomaly", "budget", "found after", "CPU s", "off"),
    *("plain after", "CPU s"),
)


def _bug_table(costs: Mapping[str, Cost]) -> Iterator[str]:
    yield from _table_head()
    for bug in CATALOGUE:
        yield _row(f"[{bug.id}](#{bug.id.lower()})", bug.title, scenario_of_bug(bug.id), costs)


def _window_table(costs: Mapping[str, Cost]) -> Iterator[str]:
    yield from _table_head()
    for window in WINDOWS:
        yield _row(window.id, window.title, window, costs)


def _table_head() -> Iterator[str]:
    yield "| " + " | ".join(_HEADINGS) + " |"
    yield "|" + " --- |" * len(_HEADINGS)


def _row(name: str, title: str, scenario: Scenario | None, costs: Mapping[str, Cost]) -> str:
    cells = [name, title]
    cells += ["-", "-"] if scenario is None else [scenario.anomaly, str(scenario.seed_budget)]
    cells += _measured(costs.get(scenario.id) if scenario is not None else None)
    return "| " + " | ".join(cells) + " |"


def _measured(cost: Cost | None) -> list[str]:
    if cost is None:
        return ["not measured", "-", "-", "-", "-"]
    after = "not found" if cost.found_after is None else str(cost.found_after)
    off = f"{cost.control_findings} of {cost.controls}"
    return [after, f"{cost.cpu_s:.1f}", off, *_plainly(cost.plain)]


def _plainly(plain: Plain | None) -> list[str]:
    if plain is None:
        return ["-", "-"]
    return [plain.words, f"{plain.cpu_s:.1f}"]


def _about(bug: KnownBug) -> Iterator[str]:
    yield f"## {bug.id}"
    yield ""
    yield f"{bug.title} (`{bug.switch}`, confidence {bug.confidence})."
    yield ""
    yield f"- Trigger: {bug.trigger}."
    yield f"- Symptom: {bug.symptom}."
    yield f"- Fix: {bug.fix}."
    scenario = scenario_of_bug(bug.id)
    if scenario is not None and scenario.stage:
        yield f"- Its search also has {' and '.join(scenario.stage)} on, with the switch off too."
    for kind, why in scenario.remains.items() if scenario is not None else ():
        yield f"- With the switch off `{kind}` remains: {why}."
    if bug.links:
        yield f"- Links: {', '.join(f'<{link}>' for link in bug.links)}"
