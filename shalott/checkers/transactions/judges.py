"""Judges of transactions: which consistency models a history of them rules out.

A verdict is about the models that were asked for (strict-serializable, unless it is said
otherwise). What else is seen is told in notes, with the weakest models that are violated and the
strongest that may hold.

Registers show little of the order of their versions. Where nothing is found, a second look assumes
what the model that was asked for implies (a strict serializable system is linearizable for each
key, and loses no update): a contradiction then proves that this model does not hold, though not
which weaker one. Elle leaves that to its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly, Result
from shalott.checkers.engine import Budget, lib, new_budget
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.shape import Shape
from shalott.checkers.transactions import lattice
from shalott.checkers.transactions.drawing import cycle_svg
from shalott.checkers.transactions.findings import finding, is_contested
from shalott.checkers.transactions.found import FOUND, Assumptions, Found, find_anomalies
from shalott.checkers.transactions.story import Teller, Told

if TYPE_CHECKING:
    from shalott.checkers.reading.entries import EntrySource

TOLD_MAX: Final = 8  # anomalies of one kind
DRAWN_MAX: Final = 3  # of them
EMPTY: Final = "empty-transaction-graph"

# What is assumed of registers where a model is asked for, and what a contradiction is called.
_SECOND_LOOK: Final = (
    ("strict-serializable", "linearizable_keys", "PL-SS-cycle-exists"),
    (
        "strong-snapshot-isolation",
        "linearizable_keys",
        "strong-snapshot-isolation-cycle-exists",
    ),
    (
        "strong-session-serializable",
        "sequential_keys",
        "strong-session-serializable-cycle-exists",
    ),
    (
        "strong-session-snapshot-isolation",
        "sequential_keys",
        "strong-session-snapshot-isolation-cycle-exists",
    ),
    ("serializable", "wfr_keys", "PL-3-cycle-exists"),
    ("snapshot-isolation", "wfr_keys", "PL-SI-cycle-exists"),
)
_WORDS: Final = {
    "G0": ("dirty write", "dirty writes"),
    "G1a": ("aborted read", "aborted reads"),
    "G1b": ("intermediate read", "intermediate reads"),
    "G1c": ("circle of writes and reads", "circles of writes and reads"),
    "internal": ("transaction that contradicts itself", "transactions that contradict themselves"),
    "lost-update": ("lost update", "lost updates"),
    "dirty-update": ("dirty update", "dirty updates"),
    "garbage-read": ("read of what none wrote", "reads of what none wrote"),
    "future-read": ("read of a later write", "reads of later writes"),
    "duplicate-elements": ("read with an element twice", "reads with elements twice"),
    "incompatible-order": ("key with two orders", "keys with two orders"),
    "cyclic-versions": ("key with versions in a circle", "keys with versions in a circle"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What must not be there."""

    models: tuple[str, ...]
    anomalies: tuple[str, ...]

    @classmethod
    def of(cls, consistency: str, anomalies: str) -> Asked:
        """Names with a plus between them. Raises UsageError."""
        return cls(
            tuple(lattice.model_named(name) for name in _split(consistency)),
            tuple(lattice.anomaly_named(name) for name in _split(anomalies)),
        )

    @property
    def ruled_out(self) -> frozenset[str]:
        return lattice.ruled_out_by(self.models) | lattice.that_imply(self.anomalies)

    @property
    def words(self) -> str:
        return " and ".join([*self.models, *(f"no {name}" for name in self.anomalies)])


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split("+") if name.strip()]


# --- one judgement --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Judgement:
    name: str
    asked: Asked
    source: EntrySource
    assumed: Assumptions
    budget: Budget
    notes: list[str] = field(default_factory=list)

    def result(self) -> Result:
        try:
            found = find_anomalies(self.source, self.assumed, self.budget)
            return self._of(found)
        except (MemoryError, TimeoutError) as stopped:
            return Result(
                checker=self.name, valid="unknown", notes=(f"It was not decided: {stopped}.",)
            )

    def _of(self, found: Found) -> Result:
        counts, told, broken = self._broken(found, self.assumed)
        doubts = self._doubts(found)
        if broken and found.view.contested and self.assumed.object != "sets":
            seeming, assumed = broken, replace(self.assumed, contested_ignored=True)
            certain = find_anomalies(self.source, assumed, self.budget)
            counts, told, broken = self._broken(certain, assumed)
            (self.notes if broken else doubts).append(self._contested(found, seeming - broken))
        valid: bool | str = False if broken else "unknown" if doubts else True
        self._note_what_else(found, counts, broken)
        violated = lattice.violated_by(counts)
        return Result(
            checker=self.name,
            valid=valid,
            counts=_counted(found, counts),
            anomalies=tuple(_anomalies(told, counts)),
            notes=(*(doubts if valid == "unknown" else ()), *self.notes),
            detail={
                "asked": [*self.asked.models, *self.asked.anomalies],
                "broken": sorted(broken),
                "anomaly-types": [name for name in _in_order(counts) if name in broken],
                "seen": list(_in_order(counts)),
                "violated": list(lattice.weakest(violated)),
                "also-violated": sorted(violated - {*lattice.weakest(violated)}),
                "may-hold": list(lattice.strongest(lattice.not_ruled_out(violated))),
            },
            headline=f"nothing in {found.view.txns:,} transactions rules out {self.asked.words}",
            words={kind: _words_of(kind) for kind in broken},
        )

    def _broken(
        self, found: Found, assumed: Assumptions
    ) -> tuple[dict[str, int], list[Told], set[str]]:
        """What there is of each kind, what breaks what was asked for, told, and its kinds."""
        counts = found.counts()
        told = list(_told(found, Teller(found, self.source.show), self.asked.ruled_out))
        broken = {name for name in counts if name in self.asked.ruled_out}
        if not broken:
            told = self._second_look(assumed)
            broken = {each.kind for each in told}
            counts |= {name: len([t for t in told if t.kind == name]) for name in broken}
        return counts, told, broken

    def _second_look(self, known: Assumptions) -> list[Told]:
        if known.object != "registers":
            return []
        for model, assumption, name in _SECOND_LOOK:
            if name not in self.asked.ruled_out:
                continue
            assumed = replace(
                known,
                unwritten_ignored=True,
                wfr_keys=True,
                no_lost_updates=True,
                sequential_keys=assumption == "sequential_keys",
                linearizable_keys=assumption == "linearizable_keys",
            )
            found = find_anomalies(self.source, assumed, self.budget)
            against = lattice.ruled_out_by((model,))
            told = list(_told(found, Teller(found, self.source.show), against))
            if told:
                first = told[0]
                why = (
                    f"This order of versions is that of a {model} system, which loses no update"
                    f" ({first.kind})"
                )
                summary = f"no order of versions makes it {model}: {first.summary}"
                sentences = (*first.sentences, why)
                return [replace(first, kind=name, summary=summary, sentences=sentences)]
        return []

    def _doubts(self, found: Found) -> list[str]:
        """Why it can't be valid."""
        doubts = []
        view = found.view
        if not view.txns:
            doubts.append("There is no transaction in it.")
        elif not (view.edges or (_needs_order(self.asked) and view.order_edges)):
            doubts.append(
                "Nothing is known of any order of its transactions"
                f" ({EMPTY}): none read what another one wrote."
            )
        if count := view.found_count[lib.SHL_FOUND_CONTESTED]:
            first = next(each for each in found.findings() if is_contested(each))
            version = self.source.show(found.version(first.version))
            key = self.source.show(found.key(first.key))
            doubts.append(
                f"{count:,} reads found a value that several transactions may have written, such as"
                f" {version} in {key}: who wrote it can't be told."
            )
        stopped = {
            lattice.CYCLE_EXISTS[kind][level]
            for kind, level in found.stopped()
            if f"{kind}{lattice.LEVELS[level]}" in self.asked.ruled_out
        }
        if stopped:
            doubts.append("The search for cycles was stopped: some may be there.")
        return doubts

    def _contested(self, found: Found, seeming: set[str]) -> str:
        """Elle refuses such histories."""
        keys = self._contested_keys(found)
        if not seeming:
            return f"nothing was concluded from {keys}"
        version = found.view.contested_version
        key = self.source.show(found.key(found.view.version[version].key))
        value = self.source.show(found.version(version))
        return (
            f"{found.view.contested:,} values were written more than once to their key, such as"
            f" {value} to {key}: what seems to be {', '.join(_in_order(seeming))} may be no more"
            f" than that. Undecided is what concerns {keys}."
        )

    def _contested_keys(self, found: Found) -> str:
        """All of them, if they are few."""
        keys = [self.source.show(key) for key in found.contested_keys()]
        more = found.view.contested_keys - len(keys)
        named = ", ".join(keys) + (f" and {more:,} more" if more else "")
        one = found.view.contested_keys == 1
        return f"{'key' if one else 'keys'} {named}, to which a value was written more than once"

    def _note_what_else(self, found: Found, counts: dict[str, int], broken: set[str]) -> None:
        view = found.view
        violated = lattice.violated_by(counts)
        if violated:
            may_hold = lattice.strongest(lattice.not_ruled_out(violated))
            self.notes.append(
                f"violated: {', '.join(lattice.weakest(violated))} and all that is stronger; may"
                f" hold: {', '.join(may_hold) or 'none'}"
            )
        if others := [f"{name} ({counts[name]:,})" for name in _in_order(counts)
                      if name not in broken]:  # fmt: skip
            self.notes.append(f"also seen, but allowed by what was asked: {', '.join(others)}")
        if view.unwritten and self.assumed.object == "registers":
            self.notes.append(self._unwritten(found))
        if view.skipped:
            self.notes.append(
                f"{view.skipped:,} entries are no transactions of {WHAT[self.assumed.object]}: they"
                f" were left out, the first in line {view.first_skipped_line}"
            )
        if not view.has_calls and view.txns:
            self.notes.append("it has no invocations, so nothing is known of the order of time")

    def _unwritten(self, found: Found) -> str:
        view = found.view
        version = view.unwritten_version
        key = self.source.show(found.key(view.version[version].key))
        value = self.source.show(found.version(version))
        many = f"; {view.unwritten:,} reads are of such values" if view.unwritten > 1 else ""
        taken = (
            "it was taken for what the key held at first"
            if self.assumed.unwritten_initial
            else "where the key may have held it at first, nothing was concluded from it"
            " (initial=unwritten takes it for that)"
        )
        return f"no transaction wrote the {value} that was read of {key}{many}: {taken}"


WHAT: Final = {
    "lists": "lists (r, append)",
    "registers": "registers (r, w)",
    "sets": "sets (r, add)",
}


def _needs_order(asked: Asked) -> bool:
    """Whether edges of processes or of time are of use."""
    return any(name.endswith(("-process", "-realtime")) for name in asked.ruled_out)


def _in_order(counts: Iterable[str]) -> list[str]:
    """The worst first: what needs no cycle, then cycles, of data before those of time."""
    plain = [name for name in FOUND if name in counts]
    bases = ("G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")
    cycles = [f"{base}{level}" for level in lattice.LEVELS for base in bases]
    known = [*plain, *(name for name in cycles if name in counts)]
    return [*known, *(name for name in counts if name not in known)]


def _told(found: Found, teller: Teller, ruled_out: frozenset[str]) -> Iterable[Told]:
    """The first of each kind that is ruled out."""
    told: dict[str, list[Told]] = {}
    for each in found.findings():
        if is_contested(each) or FOUND[each.kind] not in ruled_out:
            continue
        of_kind = told.setdefault(FOUND[each.kind], [])
        if len(of_kind) < TOLD_MAX:
            of_kind.append(finding(teller, FOUND[each.kind], each))
    for cycle in sorted(found.cycles(), key=lambda cycle: len(cycle.steps)):
        of_kind = told.setdefault(cycle.name, [])
        if cycle.name in ruled_out and len(of_kind) < TOLD_MAX:
            of_kind.append(teller.cycle(cycle))
    drawn = {kind: [_drawn(each, at, teller) for at, each in enumerate(of_kind)]
             for kind, of_kind in told.items()}  # fmt: skip
    return [each for kind in _in_order(drawn) for each in drawn[kind]]


def _drawn(told: Told, at: int, teller: Teller) -> Told:
    return replace(told, drawing=cycle_svg(told, teller)) if at < DRAWN_MAX else told


def _anomalies(told: list[Told], counts: dict[str, int]) -> Iterable[Anomaly]:
    for each in told:
        detail: dict[str, object] = {"argument": list(each.sentences), "of": counts[each.kind]}
        if each.drawing:
            detail["drawing"] = each.drawing
        yield Anomaly(
            kind=each.kind,
            summary=each.summary,
            operations=each.places[:OPERATIONS_MAX],
            detail=detail,
        )


def _counted(found: Found, counts: dict[str, int]) -> dict[str, int | float]:
    kinds = [int(found.view.type_count[at]) for at in range(3)]
    counted: dict[str, int | float] = {
        "transaction-count": int(found.view.txns),
        "ok-count": kinds[0],
        "failed-count": kinds[1],
        "crashed-count": kinds[2],
        "key-count": int(found.view.keys),
    }
    return counted | {f"{name}-count": counts[name] for name in _in_order(counts)}


def _words_of(kind: str) -> tuple[str, str]:
    one, several = _WORDS.get(kind, (f"cycle {kind}", f"cycles {kind}"))
    return f"there is a {one}", f"there are {{n}} {several}"


# --- the judges -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionJudge:
    name: str
    asked: Asked
    assumed: Assumptions

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        budget = new_budget(
            time_limit_s=limits.time_limit_s, memory_limit_bytes=limits.memory_limit_bytes
        )
        return _Judgement(self.name, self.asked, source, self.assumed, budget).result()


def list_append(consistency: str = lattice.STRICT, anomalies: str = "") -> TransactionJudge:
    """[:append k v], [:r k [v ...]]: see the module. Several names have a plus between them."""
    asked = Asked.of(consistency, anomalies)
    return TransactionJudge("list-append", asked, Assumptions(object="lists"))


def rw_register(
    consistency: str = lattice.STRICT,
    anomalies: str = "",
    wfr_keys: bool = False,
    sequential_keys: bool = False,
    linearizable_keys: bool = False,
    initial: str = "nil",
) -> TransactionJudge:
    """[:w k v], [:r k v]. ``wfr_keys``, ``sequential_keys``, ``linearizable_keys``: what may be
    assumed of the order of a key's versions, as in Elle. ``initial``: "nil", or "unwritten": a
    value that no transaction wrote is what the key held at first."""
    one_of("initial", initial, "nil", "unwritten")
    assumed = Assumptions(
        object="registers",
        wfr_keys=wfr_keys,
        sequential_keys=sequential_keys,
        linearizable_keys=linearizable_keys,
        unwritten_initial=initial == "unwritten",
    )
    return TransactionJudge("rw-register", Asked.of(consistency, anomalies), assumed)


def add_read(consistency: str = lattice.STRICT, anomalies: str = "") -> TransactionJudge:
    """[:add k v], [:r k #{v ...}]: sets that grow."""
    asked = Asked.of(consistency, anomalies)
    return TransactionJudge("add-read", asked, Assumptions(object="sets"))


def _wants(*writes: str) -> Callable[[Shape], bool]:
    allowed = {"r", "read", *writes}

    def wants(shape: Shape) -> bool:
        if not shape.has("txn"):
            return False  # long-fork writes and reads micro-operations as well
        return {*writes} & {*shape.mops} != set() and {*shape.mops} <= allowed

    return wants


_ELLE: Final = "Kingsbury and Alvaro, PVLDB 2020"


def _record(
    make: Callable[..., TransactionJudge], what: str, source: str, writes: tuple[str, ...]
) -> JudgeRecord:
    return JudgeRecord(
        name=make.__name__.replace("_", "-"),
        summary=f"transactions that {what} keep a consistency model",
        make=make,
        promise="No anomaly among the transactions rules out the consistency models asked for.",
        source=f"{source}; Adya 1999",
        fs=("txn",),
        wants=_wants(*writes),
    )


LIST_APPEND = _record(
    list_append, "read lists and append to them", f"elle.list-append; {_ELLE}", ("append",)
)
RW_REGISTER = _record(
    rw_register, "read and write registers", f"elle.rw-register; {_ELLE}", ("w", "write")
)
ADD_READ = _record(add_read, "read sets and add to them", f"{_ELLE} (sets)", ("add",))
