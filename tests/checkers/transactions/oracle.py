"""Which isolation levels a small history of transactions keeps, by definition and by trying all.

Nothing here knows of cycles in graphs of transactions, which is what the engine looks for. There
are two decisions, from two kinds of definition, and tests hold them against each other.

*By states* (Crooks et al., "Seeing is believing", PODC 2017; Bernstein et al. 1987): an order of
commits and the states between them. Serializable: each transaction saw the state that it was
applied to. Snapshot isolation: each saw some earlier one, and nothing that it wrote was written by
another between there and its commit (Berenson et al. 1995: first committer wins). Strong: the
snapshot has all that was done before its client asked; strong session: all that its own process had
done. A state is executed operation by operation.

*By visibility* (Cerone, Bernardi and Gotsman, CONCUR 2015; Adya 1999): an order of commits, which
orders the versions of each key (AR), and for each transaction those whose writes it sees (VIS).
The axioms, with Adya's phenomena for the levels below:

    read uncommitted   PL-1   the versions of all keys can be ordered as one order of transactions
    read committed     PL-2   and all reads come from committed, final, earlier versions
    cursor stability   PL-CS  and no version lies between what it read of a key and what it wrote
    consistent view    PL-2+  and nothing that it depends on overwrote what it read
    update serializable PL-3U and those that write, with any one that only reads, are serializable
    read atomic               INT, EXT
    update atomic             INT, EXT, NOCONFLICT
    causal                    INT, EXT, TRANSVIS
    parallel SI               INT, EXT, TRANSVIS, NOCONFLICT
    prefix                    INT, EXT, PREFIX
    SI, serializable          INT, EXT, PREFIX, NOCONFLICT; INT, EXT, TOTALVIS

A list is a chain of versions in the manner of Elle (Kingsbury and Alvaro, PVLDB 2020): each append
makes a version of its own, that has all versions before it. So a list read is right if it is the
chain up to its last element, in every level; elements of aborted transactions may stand in what
reads at PL-1 saw.

An ``info`` transaction happened or not, both are tried, and so is every order. Values are unique
for each key.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.checkers.transactions.histories import History, Semantics, Transaction

Order = Literal["any", "session", "realtime"]
ORDERS: tuple[Order, ...] = ("any", "session", "realtime")
State = dict[str, Hashable]

# By name, as Elle has them: what must hold, and which order of clients' transactions is kept.
STATE_LEVELS: dict[str, tuple[str, Order]] = {
    "serializable": ("serial", "any"),
    "strong-session-serializable": ("serial", "session"),
    "strict-serializable": ("serial", "realtime"),
    "snapshot-isolation": ("snapshot", "any"),
    "strong-session-snapshot-isolation": ("snapshot", "session"),
    "strong-snapshot-isolation": ("snapshot", "realtime"),
}
VISIBILITY_LEVELS: dict[str, tuple[str, Order]] = {
    "read-uncommitted": ("uncommitted", "any"),
    "strong-session-read-uncommitted": ("uncommitted", "session"),
    "strong-read-uncommitted": ("uncommitted", "realtime"),
    "read-committed": ("committed", "any"),
    "strong-session-read-committed": ("committed", "session"),
    "strong-read-committed": ("committed", "realtime"),
    "cursor-stability": ("cursor", "any"),
    "consistent-view": ("view", "any"),
    "update-serializable": ("updates", "any"),
    "read-atomic": ("atomic", "any"),
    "update-atomic": ("update-atomic", "any"),
    "causal-cerone": ("causal", "any"),
    "parallel-snapshot-isolation": ("parallel", "any"),
    "prefix": ("prefix", "any"),
    "snapshot-isolation": ("snapshot", "any"),
    "strong-session-snapshot-isolation": ("snapshot", "session"),
    "strong-snapshot-isolation": ("snapshot", "realtime"),
    "repeatable-read": ("serial", "any"),  # there are no predicates
    "serializable": ("serial", "any"),
    "strong-session-serializable": ("serial", "session"),
    "strict-serializable": ("serial", "realtime"),
}
LEVELS: tuple[str, ...] = tuple({**VISIBILITY_LEVELS, **STATE_LEVELS})


def levels_kept(history: History, semantics: Semantics) -> frozenset[str]:
    """All levels that the history keeps; serializability and SI as states have them."""
    by_visibility = kept_by_visibility(history, semantics)
    return (by_visibility - set(STATE_LEVELS)) | kept_by_states(history, semantics)


def keeps_order(first: Transaction, second: Transaction, order: Order) -> bool:
    """Whether ``first`` must have taken effect before ``second``, if both did. A transaction that
    has not returned may take effect at any time after its call, also behind its process's next."""
    if order == "any" or first.ret is None or first.ret >= second.call:
        return False
    return order == "realtime" or first.process == second.process


# -- by states -------------------------------------------------------------------------------------


def kept_by_states(history: History, semantics: Semantics) -> frozenset[str]:
    decide = {"serial": _some_serial_order, "snapshot": _some_order_of_snapshots}
    happened = [each for each in history if each.type != "fail"]
    return frozenset(
        level
        for level, (what, order) in STATE_LEVELS.items()
        if decide[what](happened, semantics, order)
    )


def execute(transaction: Transaction, seen: State, semantics: Semantics) -> State | None:
    """What it leaves of the keys that it wrote, if it reads ``seen`` and its own writes; None if
    it can't have seen what it says."""
    own = dict(seen)
    nothing = () if semantics == "list-append" else None
    for f, key, value in transaction.mops:
        there = own.get(key, nothing)
        if f == "r" and transaction.type == "ok" and there != value:
            return None
        if f == "w":
            own[key] = value
        if f == "append":
            own[key] = (*_elements(there), value)
    return {key: own[key] for key in transaction.writes}


def _elements(value: Hashable) -> tuple[Hashable, ...]:
    assert isinstance(value, tuple)
    return value


def _write(transaction: Transaction, before: State) -> State:
    """The state after its commit: writes go to what is there then, whatever it read."""
    after = dict(before)
    for f, key, value in transaction.mops:
        if f == "w":
            after[key] = value
        if f == "append":
            after[key] = (*_elements(after.get(key, ())), value)
    return after


def _may_come(history: History, at: int, done: Sequence[int], order: Order) -> bool:
    """Whether all that must come before it is done. What crashed comes before nothing."""
    return all(
        other in done or not keeps_order(history[other], history[at], order)
        for other in range(len(history))
        if other != at
    )


def _is_enough(history: History, done: Sequence[int]) -> bool:
    return all(at in done for at, each in enumerate(history) if each.type == "ok")


def _some_serial_order(history: History, semantics: Semantics, order: Order) -> bool:
    tried: set[tuple[frozenset[int], Hashable]] = set()

    def goes_on(done: tuple[int, ...], state: State) -> bool:
        if _is_enough(history, done):
            return True
        been = (frozenset(done), frozenset(state.items()))
        if been in tried:
            return False
        tried.add(been)
        for at, transaction in enumerate(history):
            if at in done or not _may_come(history, at, done, order):
                continue
            written = execute(transaction, state, semantics)
            if written is not None and goes_on((*done, at), {**state, **written}):
                return True
        return False

    return goes_on((), {})


def _some_order_of_snapshots(history: History, semantics: Semantics, order: Order) -> bool:
    def goes_on(done: tuple[int, ...], states: tuple[State, ...]) -> bool:
        """``states[n]`` is what the first n commits left."""
        if _is_enough(history, done):
            return True
        return any(
            _has_snapshot(history, at, done, states, semantics, order)
            and goes_on((*done, at), (*states, _write(history[at], states[-1])))
            for at in range(len(history))
            if at not in done and _may_come(history, at, done, order)
        )

    return goes_on((), ({},))


def _has_snapshot(
    history: History,
    at: int,
    done: Sequence[int],
    states: Sequence[State],
    semantics: Semantics,
    order: Order,
) -> bool:
    """Whether the transaction can commit next, after ``done``, with one of the states as its
    snapshot."""
    transaction = history[at]
    for start in range(len(states)):
        missed = done[start:]
        if any(keeps_order(history[other], transaction, order) for other in missed):
            continue
        if any(history[other].writes.keys() & transaction.writes.keys() for other in missed):
            continue
        if execute(transaction, states[start], semantics) is not None:
            return True
    return False


# -- by visibility ---------------------------------------------------------------------------------

INITIAL = -1  # the writer of what every key has at first


@dataclass(frozen=True, slots=True)
class Execution:
    """One way in which it may have been: those that committed, in the order of their commits.

    ``writers``: for each key those that wrote it, in that order. ``reads``: for each transaction
    what it read of others: (key, whose version).
    """

    history: History
    semantics: Semantics
    order: tuple[int, ...]
    writers: dict[str, list[int]]
    reads: dict[int, list[tuple[str, int]]]

    def behind(self, key: str, writer: int) -> list[int]:
        """Those whose versions of the key come after this one's."""
        chain = self.writers.get(key, [])
        return chain if writer == INITIAL else chain[chain.index(writer) + 1 :]


def kept_by_visibility(history: History, semantics: Semantics) -> frozenset[str]:
    happened = [each for each in history if each.type != "fail"]
    kept: set[str] = set()
    written = {
        (key, value) for each in history for key in each.writes for value in each.writes[key]
    }
    if not all(_comes_from_somewhere(each, semantics, written) for each in happened):
        return frozenset()
    for order in _orders(happened):
        if len(kept) == len(VISIBILITY_LEVELS):
            break
        orders = [what for what in ORDERS if _is_kept(happened, order, what)]
        wanted = {
            level: what
            for level, what in VISIBILITY_LEVELS.items()
            if level not in kept and what[1] in orders
        }
        if not wanted or not _versions_agree(history, happened, order, semantics):
            continue
        kept |= {level for level, (what, _) in wanted.items() if what == "uncommitted"}
        execution = _execution(happened, order, semantics)
        if execution is not None:
            kept |= {
                level
                for level, (what, kept_order) in wanted.items()
                if what != "uncommitted" and CHECKS[what](execution, kept_order)
            }
    return frozenset(kept)


def _orders(happened: History) -> Iterator[tuple[int, ...]]:
    """Every order of every set of transactions that may have committed."""
    certain = [at for at, each in enumerate(happened) if each.type == "ok"]
    crashed = [at for at, each in enumerate(happened) if each.type == "info"]
    for count in range(len(crashed) + 1):
        for some in itertools.combinations(crashed, count):
            yield from itertools.permutations((*certain, *some))


def _is_kept(happened: History, order: Sequence[int], what: Order) -> bool:
    return what == "any" or not any(
        keeps_order(happened[later], happened[earlier], what)
        for earlier, later in itertools.combinations(order, 2)
    )


def _comes_from_somewhere(
    transaction: Transaction, semantics: Semantics, written: set[tuple[str, Hashable]]
) -> bool:
    """Whether each value that it read was written, and stands once in a list."""
    if transaction.type != "ok":
        return True
    for f, key, value in transaction.mops:
        if f == "r":
            values = _read_values(value, semantics)
            if len(set(values)) < len(values) or any((key, each) not in written for each in values):
                return False
    return True


def _read_values(value: Hashable, semantics: Semantics) -> tuple[Hashable, ...]:
    if semantics == "list-append":
        return _elements(value)
    return () if value is None else (value,)


def _chain(happened: History, order: Sequence[int], key: str) -> list[Hashable]:
    """The key's versions in the order of the commits, those within a transaction too."""
    return [value for at in order for value in happened[at].writes.get(key, ())]


def _versions_agree(
    history: History, happened: History, order: Sequence[int], semantics: Semantics
) -> bool:
    """Whether each list that was read is the chain up to its last element, without what aborted."""
    if semantics == "rw-register":
        return True
    committed = {id(happened[at]) for at in order}
    aborted = {
        (key, value)
        for each in history
        if id(each) not in committed
        for key, values in each.writes.items()
        for value in values
    }
    for transaction in happened:
        if transaction.type != "ok":
            continue
        for f, key, value in transaction.mops:
            if f == "r":
                seen = [each for each in _elements(value) if (key, each) not in aborted]
                if seen != _chain(happened, order, key)[: len(seen)]:
                    return False
    return True


def _execution(happened: History, order: tuple[int, ...], semantics: Semantics) -> Execution | None:
    """None if something was read that is not committed, not final, or committed later."""
    writers: dict[str, list[int]] = {}
    of: dict[tuple[str, Hashable], tuple[int, bool]] = {}  # -> who, whether it is its last
    for at in order:
        for key, values in happened[at].writes.items():
            writers.setdefault(key, []).append(at)
            of |= {(key, value): (at, value == values[-1]) for value in values}
    reads: dict[int, list[tuple[str, int]]] = {}
    for place, at in enumerate(order):
        reads[at] = []
        if happened[at].type != "ok":
            continue
        before = set(order[:place])
        own: set[tuple[str, Hashable]] = set()
        for f, key, value in happened[at].mops:
            if f != "r":
                own.add((key, value))
                continue
            values = _read_values(value, semantics)
            for version in values:
                who, _ = of.get((key, version), (INITIAL, True))
                if who == at and (key, version) not in own:
                    return None  # it read what it wrote later
                if who != at and who not in before:
                    return None
            who, is_last = of[key, values[-1]] if values else (INITIAL, True)
            if who != at:
                if not is_last:
                    return None
                reads[at].append((key, who))
    return Execution(happened, semantics, order, writers, reads)


def _reads_itself_right(transaction: Transaction, semantics: Semantics) -> bool:
    """INT: behind a read or a write of a key it reads that again, with what it wrote since."""
    if transaction.type != "ok":
        return True
    known: dict[str, Hashable] = {}
    added: dict[str, tuple[Hashable, ...]] = {}  # to a list that it has not read
    for f, key, value in transaction.mops:
        if f == "w":
            known[key] = value
        elif f == "append" and key in known:
            known[key] = (*_elements(known[key]), value)
        elif f == "append":
            added[key] = (*added.get(key, ()), value)
        else:
            if key in known and known[key] != value:
                return False
            own = added.pop(key, ())
            if own and _elements(value)[-len(own) :] != own:
                return False
            known[key] = value
    return True


def _sees(
    execution: Execution,
    kept: Order,
    *,
    conflicts: bool = False,
    closed: Literal["", "transitive", "prefix", "total"] = "",
) -> bool:
    """INT and EXT with the smallest visible sets that the other axioms allow. What is seen besides
    can only make a read wrong: EXT asks that a read's version is the last that is seen."""
    happened, order = execution.history, execution.order
    visible: dict[int, set[int]] = {}
    for place, at in enumerate(order):
        transaction, before = happened[at], order[:place]
        if not _reads_itself_right(transaction, execution.semantics):
            return False
        seen = {who for _, who in execution.reads[at] if who != INITIAL}
        seen |= {other for other in before if keeps_order(happened[other], transaction, kept)}
        if conflicts:
            wrote = transaction.writes.keys()
            seen |= {other for other in before if happened[other].writes.keys() & wrote}
        if closed == "transitive":
            for other in tuple(seen):
                seen |= visible[other]
        if closed == "prefix":
            seen = set(before[: 1 + max((before.index(other) for other in seen), default=-1)])
        if closed == "total":
            seen = set(before)
        visible[at] = seen
        if any(set(execution.behind(key, who)) & seen for key, who in execution.reads[at]):
            return False
    return True


def _keeps_cursors(execution: Execution, kept: Order) -> bool:
    """Adya's G-cursor: what it read of a key that it wrote is what it overwrote."""
    for at in execution.order:
        for key, who in execution.reads[at]:
            chain = execution.writers.get(key, [])
            if at in chain and any(
                chain.index(other) < chain.index(at) for other in execution.behind(key, who)
            ):
                return False
    return True


def _has_a_view(execution: Execution, kept: Order) -> bool:
    """Adya's G-single: nothing that it depends on wrote what it did not see. It depends on those
    whose versions it read or overwrote, and on what these depend on."""
    depends: dict[int, set[int]] = {}
    for at in execution.order:
        direct = {who for _, who in execution.reads[at] if who != INITIAL}
        for key in execution.history[at].writes:
            chain = execution.writers[key]
            direct |= set(chain[: chain.index(at)])
        depends[at] = direct.union(*(depends[other] for other in direct))
        for key, who in execution.reads[at]:
            if depends[at] & set(execution.behind(key, who)):
                return False
    return True


def _updates_are_serial(execution: Execution, kept: Order) -> bool:
    """Adya's No-Update-Conflict-Misses."""
    writers = {at for at in execution.order if execution.history[at].writes}
    return all(_is_serial(execution, writers | {at}) for at in execution.order)


def _is_serial(execution: Execution, some: set[int]) -> bool:
    """Whether some order of these reads and writes the versions as they were."""

    def comes_first(at: int, left: set[int]) -> bool:
        chains = [execution.writers[key] for key in execution.history[at].writes]
        if any(set(chain[: chain.index(at)]) & left for chain in chains):
            return False
        return not any(who in left for _, who in execution.reads[at]) and not any(
            at in execution.behind(key, who)
            for other in left - {at}
            for key, who in execution.reads[other]
        )

    left = set(some)
    while left:
        first = next((at for at in left if comes_first(at, left)), None)
        if first is None:
            return False
        left.remove(first)
    return True


CHECKS: dict[str, Callable[[Execution, Order], bool]] = {
    "committed": lambda execution, kept: True,
    "cursor": _keeps_cursors,
    "view": _has_a_view,
    "updates": _updates_are_serial,
    "atomic": _sees,
    "update-atomic": lambda execution, kept: _sees(execution, kept, conflicts=True),
    "causal": lambda execution, kept: _sees(execution, kept, closed="transitive"),
    "parallel": lambda execution, kept: _sees(execution, kept, conflicts=True, closed="transitive"),
    "prefix": lambda execution, kept: _sees(execution, kept, closed="prefix"),
    "snapshot": lambda execution, kept: _sees(execution, kept, conflicts=True, closed="prefix"),
    "serial": lambda execution, kept: _sees(execution, kept, closed="total"),
}
