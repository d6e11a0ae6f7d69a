"""Explain: what there is to say of a system, a fault, a workload, a checker, a model.

Each kind has a function from its record to Markdown. `shalott systems NAME` and its like print it
(harness/cli/catalogue.py), and the pages of docs/reference are all of a kind, one after the other
(harness/cli/reference.py): one text. Pages say nothing of what else is installed: for them what a
text lists of other kinds is ``OURS`` alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from shalott.checkers.checker import CHECKERS, Checker, CheckerRecord
from shalott.checkers.consumers.consumer_checkers import PROMISES as CONSUMER_PROMISES
from shalott.checkers.groups.group_checkers import PROMISES as GROUP_PROMISES
from shalott.checkers.judge import JUDGES, JudgeOfRuns, JudgeRecord, find_judge
from shalott.checkers.models import meanings_of
from shalott.checkers.models.model import REQUIRED, default_text, options_of
from shalott.checkers.models.outside import ModelClass, class_name
from shalott.cluster.capabilities import MOST
from shalott.cluster.system import System
from shalott.cluster.systems.record import SYSTEMS, SystemRecord
from shalott.core.doors import OWN, Door, Record, loaded_modules
from shalott.core.errors import UsageError
from shalott.core.parameters import Flag, NoParameters, flags_of, to_plan
from shalott.core.plan import Plan
from shalott.harness.cli.markdown import code, item, sentence, wrapped
from shalott.harness.run.backends import make_system
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.nemesis.record import FAULTS, FaultRecord
from shalott.workloads.record import WORKLOADS, WorkloadRecord

ONE_WAY = "-one-way"  # how the names of faults of one direction end
WORLDS = ("sim", "docker", "ssh", "local")
JUDGED: Mapping[str, str] = {
    "total-queue": "what became of every message of the queues: lost, recovered, duplicated,"
    " phantom, unexpected, corrupted, too early, redelivered without the flag. The promise is"
    " `--delivery`.",
    "fifo-order": "the first deliveries of a queue come in the order of its enqueues.",
    "linearizability": "every object of the run behaves as one that does one operation at a time"
    " (Herlihy & Wing 1990).",
    "locks": "every lock can be had again after the heal; one that cannot has lost its message.",
    "consumer-fates": "nothing that was acknowledged to a publisher is lost; nothing is delivered"
    " that was not sent; dead letters died of what they say.",
    "log": "every acknowledged message is in the log of every node at one place, in order.",
    "reads": "no read misses what was acknowledged before it began, where reads are linearizable.",
    "elections": "epochs rise, no deposed master acknowledges, and nodes hear what controllers"
    " decided.",
    "i1-acked-on-members": "what is acknowledged is at that time on every member of the"
    " SyncStateSet, or on as many nodes as the settings ask for.",
    "i2-master-from-set": "a master comes out of the SyncStateSet as it was before.",
    "i3-master-has-acked": "a new master's log holds all that was acknowledged before.",
    "i4-one-master-an-epoch": "one master an epoch.",
}
"""The checkers of our workloads that have no record of their own: what they judge."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a text may speak of: all that is here, or the package's own."""

    only_ours: bool = False

    def of(self, door: Door[Record]) -> tuple[Record, ...]:
        if not self.only_ours:
            return door.records()
        return tuple(door.find(name) for name in door.names() if door.provider_of(name).name == OWN)


OURS = Known(only_ours=True)
ALL = Known()

# -- parameters ------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def parameter_text(flag: Flag) -> str:
    """A parameter of a system, workload or fault, as a flag of the command line."""
    if flag.kind == "flag":
        name, typed = f"--{flag.name}`, `--no-{flag.name}", ""
        default = f"--{'' if flag.default else 'no-'}{flag.name}"
    else:
        name, typed = f"--{flag.name}", f" {flag.type_name}"
        default = "" if flag.default is None else flag.typed(flag.default)
    told = f" (`{default}`)" if default else ""
    missing = [choice for choice in flag.choices if choice not in flag.help]
    choices = f" One of {', '.join(flag.choices)}." if missing else ""
    return item(f"`{name}`{typed}{told}: {sentence(flag.help)}{choices}".rstrip(": "))


def _section(name: str, summary: str, lines: Sequence[str], struct: type[msgspec.Struct]) -> str:
    parameters = "\n".join(parameter_text(flag) for flag in flags_of(struct))
    return "\n\n".join(
        [
            f"## {name}",
            wrapped(sentence(summary)),
            "\n".join(lines),
            *([f"Parameters:\n\n{parameters}"] if parameters else []),
        ]
    )


# -- systems ---------------------------------------------------------------------------------------


def system_text(record: SystemRecord, known: Known = ALL) -> str:
    """A system: what it is, where it runs, its profiles, promises, faults and parameters."""
    fitting = [each.name for each in known.of(WORKLOADS) if each.fits(record.speaks)]
    others = code(name for name in fitting if name != record.workload)
    lines = [
        item(f"Workloads: `{record.workload}` (default){others and ', '}{others}."),
        item(f"Worlds: {code(record.worlds)}. Protocols: {code(record.speaks)}."),
    ]
    if record.layouts is not None:
        lines.append(item(f"Layouts: {code(('together', *record.layouts.names))}."))
    for name in record.profiles:
        lines.append(item(f"Profile `{name}` sets: {_settings(record, name)}."))
    name = "safe" if "safe" in record.profiles else next(iter(record.profiles))
    lines.append(item(f"Under `{name}` it promises: {_promises(record, name)}."))
    lines += [item(f"Its manual admits {told}.") for told in documented_texts(record)]
    lines.append(item(f"Faults: {_all_but(fault_names(record, known), known)}."))
    return _section(record.name, record.summary, lines, record.parameters)


def fault_names(system: SystemRecord, known: Known) -> list[str]:
    """The faults that the system can be asked for, in a world where it runs."""
    return [
        fault.name
        for fault in known.of(FAULTS)
        if (not fault.asks if system.places else system.name in asked_of(fault, known))
        and any(not lacks(fault, world) for world in system.worlds)
    ]


def _all_but(names: Sequence[str], known: Known) -> str:
    others = code(each.name for each in known.of(FAULTS) if each.name not in names)
    return f"all but {others}" if others else "all"


def faults_text(record: SystemRecord) -> str:
    """The same by their names."""
    return item(f"Faults that fit: {', '.join(fault_names(record, ALL))}.")


def _settings(record: SystemRecord, profile: str) -> str:
    chosen = record.profiles[profile]
    parameters = {**to_plan(record.parameters()), **chosen.parameters}
    told = {**chosen.parameters, **chosen.settings(parameters)}
    return code(f"{name}={_typed(value)}" for name, value in told.items()) or "nothing"


def _typed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _promises(record: SystemRecord, profile: str) -> str:
    if record.places is not None:
        return "what its workload judges"  # there is no plan without a user's own file
    plan = sample_plan(record, profile=profile)
    promises, found = record.promises(plan), []
    if promises.keeps_acknowledged:
        found.append("what is acknowledged is on the disks of all nodes that may be master next")
    if promises.copies > 1:
        found.append(f"{promises.copies} copies of what is acknowledged")
    if promises.by_set:
        found.append("acknowledgements wait for the SyncStateSet, and masters come out of it")
    if promises.fresh_reads:
        found.append("no read misses what was acknowledged before it began")
    if closed := record.closes(plan):
        windows = ", ".join(sorted(closed, key=lambda name: (len(name), name)))
        found.append(f"the windows of loss {windows} are closed")
    if record.stays_up:
        found.append("no process crashes, and a node ends only if it is ended")
    return "; ".join(found) or "nothing that a checker goes by"


def documented_texts(record: SystemRecord) -> list[str]:
    """The ways of loss that its manual admits, each with the profiles that leave it open."""
    found: dict[str, list[str]] = {}
    for profile in record.profiles if record.places is None else ():
        for loss in record.documented_losses(sample_plan(record, profile=profile)):
            profiles = found.setdefault(f"`{loss.name}` ([{loss.text}]({loss.manual}))", [])
            profiles += [profile] if profile not in profiles else []
    return [f"{told}, under {code(profiles)}" for told, profiles in found.items()]


def sample_plan(record: SystemRecord, *, profile: str = "", workload: str = "") -> Plan:
    """A plan of the system without faults."""
    chosen = profile or next(iter(record.profiles))
    request = Request(system=record.name, profile=chosen, workload=workload, nemesis="none")
    return make_plan(request, backend=record.worlds[0], seed=1)


# -- faults ----------------------------------------------------------------------------------------


def fault_text(record: FaultRecord, known: Known = ALL) -> str:
    """A fault: what it does, how much, where it can be made and of which system it can be asked."""
    said = [f"`{record.name}`: {sentence(record.summary)}"]
    both_ways = record.name.removesuffix(ONE_WAY)
    if both_ways != record.name and FAULTS.has(both_ways):
        return item(f"{said[0]} Else as `{both_ways}`.")
    if record.amount is not None:
        drawn = ", ".join(map(number, record.amount.choices))
        bounds = f"{number(record.amount.least)} to {number(record.amount.most)}"
        said.append(f"Amount in {record.amount.unit}: drawn from {drawn}; {bounds}.")
    if flags := flags_of(record.parameters):
        told = code(f"{flag.field}={flag.typed(flag.default)}" for flag in flags)
        said.append(f"Parameters: {told}.")
    worlds = [world for world in WORLDS if not lacks(record, world)]
    only = "" if len(worlds) == len(WORLDS) else f"; only in {code(worlds)}"
    said.append(f"Needs {code(record.needs)}{only}.")
    if record.asks:
        said.append(f"Only of {code(asked_of(record, known))}.")
    if record.target:
        said.append(f"Target: `{record.target}`.")
    return item(" ".join(said))


def group_text(name: str, known: Known = ALL) -> str:
    """A name that stands for several faults."""
    members = (each.name for each in known.of(FAULTS) if each.group == name)
    return item(f"Group `{name}`: one of {code(members)}.")


def groups(known: Known = ALL) -> list[str]:
    return list(dict.fromkeys(each.group for each in known.of(FAULTS) if each.group))


def lacks(record: FaultRecord, world: str) -> list[str]:
    """What keeps the fault from being made there."""
    return [need for need in record.needs if need not in MOST[world]]


def asked_of(record: FaultRecord, known: Known = ALL) -> Sequence[str]:
    """The systems that it can be asked of."""
    return [
        name
        for name, system in _systems(known, loaded_modules()).items()
        if all(isinstance(system, protocol) for protocol in record.asks)
    ]


@cache
def _systems(known: Known, modules: Sequence[str]) -> Mapping[str, System]:
    """What those that are there after ``modules`` were loaded can be asked."""
    found: dict[str, System] = {}
    for record in known.of(SYSTEMS):
        if record.places is not None:
            continue  # it is a user's file
        try:
            found[record.name] = make_system(sample_plan(record))
        except Exception:  # a plug-in's code must not keep ours from being explained
            if known.only_ours:
                raise
    return found


# -- workloads, checkers, models -------------------------------------------------------------------


def workload_text(record: WorkloadRecord, known: Known = ALL, like: str = "") -> str:
    """A workload: which systems it fits, what judges it, its parameters, unless they are those of
    another one (``like``)."""
    systems = code(each.name for each in known.of(SYSTEMS) if record.fits(each.speaks))
    lines = [item(f"Systems: {systems or f'plug-ins that speak {code(record.needs)}'}.")]
    if systems:
        checkers = code(each.name for each in checkers_of(record, known))
        lines.append(item(f"Checkers of its own: {checkers}."))
    if like:
        lines.append(item(f"Parameters: those of `{like}`."))
    struct = NoParameters if like else record.parameters
    return _section(record.name, record.summary, lines, struct)


def checkers_of(record: WorkloadRecord, known: Known = ALL) -> list[Checker]:
    """What judges it on the systems that it fits, but for the checkers that every run has."""
    general, found = CHECKERS.names(), dict[str, Checker]()
    for system in known.of(SYSTEMS):
        if not record.fits(system.speaks):
            continue
        profile = "safe" if "safe" in system.profiles else ""
        try:
            plan = sample_plan(system, profile=profile, workload=record.name)
        except UsageError:  # it fits with other parameters than the default ones
            continue
        found |= {each.name: each for each in record.checkers(plan) if each.name not in general}
    return list(found.values())


def checker_text(record: CheckerRecord) -> str:
    """A checker that judges runs of any workload."""
    return item(
        f"`{record.name}`: {sentence(record.summary)} {sentence(record.promise)}"
        f" Source: {record.source}."
    )


def own_checker_text(checker: Checker) -> str:
    """A workload's own checker."""
    promises = {each.name: (each.promise, each.source) for each in CONSUMER_PROMISES}
    promises |= {each.name: (each.promise, each.source) for each in GROUP_PROMISES}
    if checker.name in promises:
        promise, source = promises[checker.name]
        return item(f"`{checker.name}`: {sentence(promise)} Source: {source}.")
    if isinstance(checker, JudgeOfRuns) and checker.name in JUDGES:
        record = find_judge(checker.name)
        return item(f"`{checker.name}`: {sentence(record.summary)} Source: {record.source}.")
    if checker.name in JUDGED:
        return item(f"`{checker.name}`: {JUDGED[checker.name]}")
    return item(f"`{checker.name}`: {sentence(first_sentence(type(checker).__doc__ or ''))}")


def first_sentence(docstring: str) -> str:
    """As a line of a list has it, without the full stop."""
    told = " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split()).replace("``", "`")
    return told.split(". ")[0].rstrip(".") or "it says nothing of itself"


def own_checkers(known: Known = ALL) -> Mapping[str, Checker]:
    """Of all workloads, by name."""
    found: dict[str, Checker] = {}
    for record in known.of(WORKLOADS):
        found |= {checker.name: checker for checker in checkers_of(record, known)}
    return found


def model_text(made_by: ModelClass) -> str:
    """A model in a sentence, with its options."""
    said = f"`{class_name(made_by)}`: {sentence(first_sentence(made_by.__doc__ or ''))}"
    if options := options_of(made_by):
        told = code(
            each.name if each.default is REQUIRED else f"{each.name}={default_text(each)}"
            for each in options
        )
        said += f" Options: {told}."
    return item(said)


def model_more(made_by: ModelClass) -> str:
    """All of what it says of itself, and the operations that it reads."""
    told = inspect.cleandoc(made_by.__doc__ or "").replace("``", "`")
    said = sentence(" ".join(told.split()))
    if meanings := operations_of(made_by):
        said += f" Operations: {code(meanings)}."
    return wrapped(said)


def judge_text(judge: JudgeRecord) -> str:
    return item(f"`{judge.name}`: {sentence(judge.summary)}")


def judge_more(judge: JudgeRecord) -> str:
    """What it promises, who says so, the operations that it reads, its options."""
    said = f"{sentence(judge.promise)} After {judge.source}. Operations: {code(judge.fs)}."
    if options := options_of(judge.make):
        said += f" Options: {code(f'{each.name}={default_text(each)}' for each in options)}."
    return wrapped(said)


def operations_of(made_by: ModelClass) -> Sequence[str]:
    """The names of the operations that the model reads, if it says so."""
    meanings = getattr(made_by, "meanings", None)
    if isinstance(meanings, property):  # it depends on the options
        needs_options = any(each.default is REQUIRED for each in options_of(made_by))
        meanings = () if needs_options else meanings_of(made_by())
    return tuple(meanings or ())
