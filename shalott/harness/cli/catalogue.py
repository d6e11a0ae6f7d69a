"""``shalott systems``, ``faults``, ``workloads``, ``checkers``, ``models``: what there is.

Without a name a list; with a name all that its record says (harness/cli/explain.py), who provides
it if it is not ours, and a command that uses it.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from shalott.checkers.checker import CHECKERS
from shalott.checkers.judge import JUDGES, JudgeRecord, find_judge
from shalott.checkers.models.outside import MODELS, ModelClass, class_name
from shalott.cluster.systems.record import SYSTEMS, SystemRecord
from shalott.core.doors import OWN, Provider
from shalott.harness.cli import explain
from shalott.harness.cli.markdown import WIDTH, refitted
from shalott.harness.cli.near_names import unknown
from shalott.harness.cli.options import LoadOption
from shalott.harness.run.request import Request
from shalott.nemesis.record import FAULTS, FaultRecord, members, usual_nemeses
from shalott.workloads.record import WORKLOADS, WorkloadRecord

NARROWEST = 40


@dataclass(frozen=True, slots=True)
class Entry:
    """``text``, ``more`` and ``example`` cost time, and are made of what is asked for alone.
    ``more``: what a page has elsewhere. ``example``: a command line; "" if there is none."""

    summary: str
    text: Callable[[], str]
    example: Callable[[], str]
    provider: Provider = Provider(OWN)
    more: Callable[[], str] = str

    @property
    def provided(self) -> str:
        """Who brings it, unless it is ours."""
        who = self.provider
        return "" if who.name == OWN else f"{who.name} {who.version}".rstrip()


@dataclass(frozen=True, slots=True)
class Kind:
    """``name``: of one of them. ``problems``: of plug-ins that can't be used."""

    name: str
    entries: Callable[[], Mapping[str, Entry]]
    problems: Callable[[], Iterable[str]]


def add_commands(app: typer.Typer) -> None:
    for command in (systems, faults, workloads, checkers, models):
        app.command()(command)


Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Tell all about this one.")]


def systems(name: Name = None, load: LoadOption = None) -> None:
    """List the systems that can be tested, or tell all about one."""
    show("systems", name)


def faults(name: Name = None, load: LoadOption = None) -> None:
    """List the faults that `--nemesis` takes, or tell all about one."""
    show("faults", name)


def workloads(name: Name = None, load: LoadOption = None) -> None:
    """List what clients can do, or tell all about one workload."""
    show("workloads", name)


def checkers(name: Name = None, load: LoadOption = None) -> None:
    """List what judges runs, or tell all about one checker."""
    show("checkers", name)


def models(name: Name = None, load: LoadOption = None) -> None:
    """List the models of `shalott check`, or tell all about one."""
    show("models", name)


def show(command: str, name: str | None) -> None:
    """Raises UsageError for a name that is not there."""
    kind = KINDS[command]
    entries = kind.entries()
    for problem in kind.problems():
        typer.echo(f"{problem}.", err=True)
    if name is None:
        typer.echo(listed(entries))
        if command == "faults":
            typer.echo(f"\n`--nemesis all` stands for {','.join(usual_nemeses())}.")
        typer.echo(f"\n`shalott {command} NAME` tells all about one.")
        return
    if name not in entries:
        raise unknown(kind.name, name, entries, f"shalott {command}")
    typer.echo(refitted(explained(entries[name]), columns()))


def columns() -> int:
    """What a terminal has. What is no terminal gets the lines that the pages have."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))


def listed(entries: Mapping[str, Entry]) -> str:
    width = max(map(len, entries), default=0)
    return "\n".join(
        f"{name:<{width}}  {entry.summary}{entry.provided and f' (of {entry.provided})'}"
        for name, entry in entries.items()
    )


def explained(entry: Entry) -> str:
    parts = [entry.text(), *filter(None, [entry.more()])]
    if entry.provided:
        parts.append(f"Provided by {entry.provided}.")
    if example := entry.example():
        parts.append(f"Example:\n\n    {example}")
    return "\n\n".join(parts)


# -- what there is of each kind --------------------------------------------------------------------


def _systems() -> Mapping[str, Entry]:
    found = {}
    for record in SYSTEMS.records():
        provider = SYSTEMS.provider_of(record.name)
        example = partial(_run_of, record, provider)
        found[record.name] = Entry(
            record.summary,
            partial(explain.system_text, record),
            example,
            provider,
            more=partial(explain.faults_text, record),
        )
    return found


def _faults() -> Mapping[str, Entry]:
    found = {}
    for name in explain.groups():
        example = partial(_run_with, name, members(name)[0], OURS)
        summary = f"any of {len(members(name))} faults, drawn each time"
        found[name] = Entry(summary, partial(explain.group_text, name), example)
    for record in FAULTS.records():
        provider = FAULTS.provider_of(record.name)
        example = partial(_run_with, record.name, record, provider)
        found[record.name] = Entry(
            record.summary, partial(explain.fault_text, record), example, provider
        )
    return found


def _workloads() -> Mapping[str, Entry]:
    found = {}
    for record in WORKLOADS.records():
        provider = WORKLOADS.provider_of(record.name)
        example = partial(_run_with_workload, record, provider)
        found[record.name] = Entry(
            record.summary, partial(explain.workload_text, record), example, provider
        )
    return found


def _checkers() -> Mapping[str, Entry]:
    found = {}
    for record in CHECKERS.records():
        provider = CHECKERS.provider_of(record.name)
        example = partial(_run_of, SYSTEMS.find(Request().system), provider)
        found[record.name] = Entry(
            record.summary, partial(explain.checker_text, record), example, provider
        )
    for workload in WORKLOADS.records():
        provider = WORKLOADS.provider_of(workload.name)
        example = partial(_run_with_workload, workload, provider)
        for checker in explain.checkers_of(workload):
            summary = f"judges the workload {workload.name}"
            text = partial(explain.own_checker_text, checker)
            found.setdefault(checker.name, Entry(summary, text, example, provider))
    return found


def _models() -> Mapping[str, Entry]:
    found = {}
    for made_by in MODELS.records():
        name = class_name(made_by)
        provider = MODELS.provider_of(name)
        summary = explain.first_sentence(made_by.__doc__ or "")
        example = partial(_check_with, name, made_by, provider)
        text, more = partial(explain.model_text, made_by), partial(explain.model_more, made_by)
        found[name] = Entry(summary, text, example, provider, more)
    for name in JUDGES:
        judge = find_judge(name)
        text = partial(explain.judge_text, judge)
        more = partial(explain.judge_more, judge)
        example = partial(_judge_with, judge)
        found[name] = Entry(f"a judge: {judge.summary}", text, example, more=more)
    return found


KINDS: Mapping[str, Kind] = {
    "systems": Kind("system", _systems, SYSTEMS.problems),
    "faults": Kind("fault", _faults, FAULTS.problems),
    "workloads": Kind("workload", _workloads, WORKLOADS.problems),
    "checkers": Kind("checker", _checkers, CHECKERS.problems),
    "models": Kind("model", _models, MODELS.problems),
}

# -- examples --------------------------------------------------------------------------------------

OURS = Provider(OWN)
NEAREST = ("sim", "local", "docker", "ssh")  # the worlds, what needs least first
# What flags of faults are told that have no default (FaultRecord.must_tell).
TOLD: Mapping[str, str] = {"--upgrade-to": "broker"}
SHORT = ("--time-limit", "30")


def _places() -> Iterator[tuple[str, SystemRecord]]:
    """Every world with every system that runs there: what needs least first, then what is the
    default."""
    records = sorted(SYSTEMS.records(), key=lambda record: record.name != Request().system)
    for world in NEAREST:
        yield from ((world, record) for record in records if world in record.worlds)


def _run_of(system: SystemRecord, provider: Provider) -> str:
    if system.places is not None:
        return _test(provider, "--compose", "compose.yaml", "--client", "./client")
    world = next(world for world, record in _places() if record is system)
    return _test(provider, "--system", system.name, "--cluster", world)


def _run_with_workload(record: WorkloadRecord, provider: Provider) -> str:
    for world, system in _places():
        if record.fits(system.speaks):
            words = ("--system", system.name, "--workload", record.name)
            return _test(provider, *words, "--cluster", world)
    return ""


def _run_with(name: str, record: FaultRecord, provider: Provider) -> str:
    flags = [flag for flag in record.must_tell.values() if flag in TOLD]
    told = [word for flag in flags for word in (flag, TOLD[flag])]
    possible = explain.asked_of(record)
    for world, system in _places():
        if system.name in possible and not explain.lacks(record, world):
            words = ("--system", system.name, "--cluster", world, "--nemesis", name)
            return _test(provider, *words, *told)
    return ""


def _test(provider: Provider, *words: str) -> str:
    load = ("--load", provider.name) if provider.is_module else ()
    return shlex.join(["shalott", "test", *load, *words, *SHORT])


def _judge_with(judge: JudgeRecord) -> str:
    return f"shalott check history.edn --model {judge.name}"


def _check_with(name: str, made_by: ModelClass, provider: Provider) -> str:
    """Of a history of one operation that did not come back."""
    meanings = explain.operations_of(made_by)
    if not meanings:
        return ""
    line = f"{{:process 0, :type :invoke, :f :{next(iter(meanings))}, :value nil}}"
    load = ("--load", provider.name) if provider.is_module else ()
    return f"echo '{line}' | {shlex.join(['shalott', 'check', '-', *load, '--model', name])}"
