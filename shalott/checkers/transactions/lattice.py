"""Consistency models of transactions, and the anomalies that each rules out.

What an anomaly is evidence against follows from three tables: which anomaly is also another one
(``IMPLIED``), which model implies another one (``MODELS``), and which anomalies a model rules out
beyond those of the models that it implies (``RULED_OUT``). The facts are Elle's
(elle.consistency-model) and of the papers named there:

- Adya 1999, and Adya, Liskov, O'Neil 2000 (PL-1 to PL-3, G0 to G2)
- Bailis et al. 2013 (highly available transactions)
- Berenson et al. 1995, Cerone, Bernardi, Gotsman 2015, Cerone & Gotsman 2018 (snapshots)
- Daudjee & Salem 2006 (sessions), Zuikeviciute & Pedone, Bernstein et al.

One fact is not Elle's: parallel snapshot isolation rules out cycles with one rw (Cerone & Gotsman,
theorem of PSI: no cycle of ww and wr edges with at most one rw).

Names are the friendly ones; Adya's (PL-2.99) are known too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from shalott.core.errors import UsageError

Table = Mapping[str, tuple[str, ...]]

STRICT: Final = "strict-serializable"
LEVELS: Final = ("", "-process", "-realtime")

# By level (data, process, realtime) each of these implies the others on its right.
_OF_EACH_LEVEL: Final = {
    "G0": ("G1c",),
    "G1c": ("G1",),
    "G1": (),
    "G-single-item": ("G-single", "G-nonadjacent-item"),
    "G-single": ("G-nonadjacent",),
    "G-nonadjacent-item": ("G-nonadjacent", "G2-item"),
    "G-nonadjacent": ("G2",),
    "G2-item": ("G2",),
    "G2": (),
}
_OTHERS: Final = {
    "G1a": ("G1",),
    "G1b": ("G1",),
    "G-single": ("G-SIb",),
    "G-SIa": ("G-SI",),
    "G-SIb": ("G-SI",),
    "incompatible-order": ("G1a",),  # one of the two orders was never that of what committed
    "future-read": ("G1c",),  # a cycle of one transaction
    "dirty-update": ("G1a",),
    "garbage-read": ("G1a",),
    "lost-update": ("write-skew", "G2-item"),
    "write-skew": ("G2",),
}


def _implied() -> dict[str, tuple[str, ...]]:
    found = dict(_OTHERS)
    for name, implied in _OF_EACH_LEVEL.items():
        for at, level in enumerate(LEVELS):
            weaker = tuple(f"{name}{LEVELS[at + 1]}" for _ in LEVELS[at + 1 : at + 2])
            same = tuple(f"{each}{level}" for each in implied)
            found[f"{name}{level}"] = (*found.get(f"{name}{level}", ()), *same, *weaker)
    return found


IMPLIED: Final[Table] = _implied()

MODELS: Final[Table] = {
    "strict-serializable": (
        "serializable",
        "strong-session-serializable",
        "strong-snapshot-isolation",
        "session-serializable",
        "linearizable",
    ),
    "strong-session-serializable": ("serializable", "strong-session-snapshot-isolation"),
    "strong-snapshot-isolation": ("strong-session-snapshot-isolation", "strong-read-committed"),
    "strong-session-snapshot-isolation": ("snapshot-isolation", "strong-session-read-committed"),
    "serializable": (
        "repeatable-read",
        "snapshot-isolation",
        "update-serializable",
        "view-serializable",
    ),
    "snapshot-isolation": (
        "forward-consistent-view",
        "monotonic-atomic-view",
        "monotonic-snapshot-read",
        "parallel-snapshot-isolation",
        "prefix",
    ),
    "parallel-snapshot-isolation": ("causal-cerone", "update-atomic"),
    "prefix": ("causal-cerone",),
    "causal-cerone": ("read-atomic",),
    "update-atomic": ("read-atomic",),
    "read-atomic": ("monotonic-atomic-view",),
    "repeatable-read": ("cursor-stability", "monotonic-atomic-view"),
    "update-serializable": ("forward-consistent-view",),
    "forward-consistent-view": ("consistent-view",),
    "consistent-view": ("cursor-stability", "monotonic-view"),
    "monotonic-view": ("read-committed",),
    "monotonic-snapshot-read": ("read-committed",),
    "monotonic-atomic-view": ("read-committed",),
    "cursor-stability": ("read-committed",),
    "strong-read-committed": ("strong-session-read-committed", "strong-read-uncommitted"),
    "strong-session-read-committed": ("read-committed", "strong-session-read-uncommitted"),
    "strong-read-uncommitted": ("strong-session-read-uncommitted",),
    "strong-session-read-uncommitted": ("read-uncommitted",),
    "read-committed": ("read-uncommitted",),
    "read-uncommitted": (),
    "view-serializable": (),
    "session-serializable": ("1SR",),
    "1SR": (),
    "linearizable": ("sequential",),
    "sequential": ("causal",),
    "causal": ("writes-follow-reads", "PRAM"),
    "PRAM": ("monotonic-reads", "monotonic-writes", "read-your-writes"),
    "writes-follow-reads": (),
    "monotonic-reads": (),
    "monotonic-writes": (),
    "read-your-writes": (),
}

RULED_OUT: Final[Table] = {
    "read-uncommitted": ("G0", "duplicate-elements", "cyclic-versions", "PL-1-cycle-exists"),
    "read-committed": ("G1", "PL-2-cycle-exists"),
    "cursor-stability": ("G1", "G-cursor", "lost-update"),
    "monotonic-view": ("G1", "G-monotonic"),
    "monotonic-snapshot-read": ("G1", "G-MSR"),
    "consistent-view": ("G1", "G-single"),
    "forward-consistent-view": ("G1", "G-SIb"),
    "update-serializable": ("G1", "G-update"),
    "repeatable-read": ("G1", "G2-item", "lost-update", "PL-2.99-cycle-exists"),
    "read-atomic": ("internal", "G1a", "future-read"),
    "update-atomic": ("lost-update",),
    "causal-cerone": ("internal", "G1a"),
    "prefix": ("internal", "G1a"),
    "parallel-snapshot-isolation": ("internal", "G1a", "G1", "G-single"),
    "snapshot-isolation": ("internal", "G1", "G-SI", "G-nonadjacent", "PL-SI-cycle-exists"),
    "serializable": ("internal", "G1", "G2", "predicate-read-miss", "PL-3-cycle-exists"),
    "strong-session-read-uncommitted": ("G0-process", "strong-session-PL-1-cycle-exists"),
    "strong-session-read-committed": ("G1c-process", "strong-session-PL-2-cycle-exists"),
    "strong-read-uncommitted": ("G0-realtime", "strong-PL-1-cycle-exists"),
    "strong-read-committed": ("G1c-realtime", "strong-PL-2-cycle-exists"),
    "strong-session-snapshot-isolation": (
        "internal",
        "G1-process",
        "G-nonadjacent-process",
        "strong-session-snapshot-isolation-cycle-exists",
    ),
    "strong-snapshot-isolation": (
        "internal",
        "G1-realtime",
        "G-nonadjacent-realtime",
        "strong-snapshot-isolation-cycle-exists",
    ),
    "strong-session-serializable": (
        "G1-process",
        "G2-process",
        "strong-session-serializable-cycle-exists",
    ),
    "strict-serializable": ("G1", "G1c-realtime", "G2-realtime", "PL-SS-cycle-exists"),
}

_OTHER_NAMES: Final = {
    "PL-1": "read-uncommitted",
    "PL-2": "read-committed",
    "PL-CS": "cursor-stability",
    "PL-2L": "monotonic-view",
    "PL-MSR": "monotonic-snapshot-read",
    "PL-2+": "consistent-view",
    "PL-FCV": "forward-consistent-view",
    "PL-2.99": "repeatable-read",
    "PL-SI": "snapshot-isolation",
    "PL-3U": "update-serializable",
    "PL-3": "serializable",
    "conflict-serializable": "serializable",
    "PL-SS": STRICT,
    "strong-serializable": STRICT,
    "strong-session-PL-1": "strong-session-read-uncommitted",
    "strong-session-PL-2": "strong-session-read-committed",
    "strong-PL-1": "strong-read-uncommitted",
    "strong-PL-2": "strong-read-committed",
}
# What a stopped search leaves: that there is such a cycle, by the kind that was searched.
CYCLE_EXISTS: Final = {
    "G0": ("PL-1", "strong-session-PL-1", "strong-PL-1"),
    "G1c": ("PL-2", "strong-session-PL-2", "strong-PL-2"),
    "G-single-item": ("PL-SI", "strong-session-snapshot-isolation", "strong-snapshot-isolation"),
    "G-nonadjacent-item": (
        "PL-SI",
        "strong-session-snapshot-isolation",
        "strong-snapshot-isolation",
    ),
    "G2-item": ("PL-2.99", "strong-session-serializable", "PL-SS"),
}
TRANSACTIONAL: Final = tuple(RULED_OUT)  # models that a history of transactions tells something of
ANOMALIES: Final = frozenset(
    {*IMPLIED, *(each for several in RULED_OUT.values() for each in several)}
)


def model_named(name: str) -> str:
    """The friendly name. Raises UsageError: there is no such model."""
    bare = name.removeprefix(":")
    known = {each.lower(): each for each in MODELS}
    known |= {other.lower(): friendly for other, friendly in _OTHER_NAMES.items()}
    if bare.lower() not in known:
        raise UsageError(f"no consistency model {name!r}: there are {', '.join(MODELS)}")
    return known[bare.lower()]


def anomaly_named(name: str) -> str:
    known = {each.lower(): each for each in ANOMALIES}
    if name.removeprefix(":").lower() not in known:
        raise UsageError(f"no anomaly {name!r}: there are {', '.join(sorted(ANOMALIES))}")
    return known[name.removeprefix(":").lower()]


def _reached(table: Table, begin: Iterable[str]) -> frozenset[str]:
    found, ahead = set[str](), list(begin)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += table.get(name, ())
    return frozenset(found)


@cache
def _turned(which: str) -> Table:
    table = {"implied": IMPLIED, "models": MODELS}[which]
    found: dict[str, tuple[str, ...]] = {}
    for name, targets in table.items():
        for target in targets:
            found[target] = (*found.get(target, ()), name)
    return found


def implied_by(anomalies: Iterable[str]) -> frozenset[str]:
    """These anomalies, and what they are as well."""
    return _reached(IMPLIED, anomalies)


def that_imply(anomalies: Iterable[str]) -> frozenset[str]:
    return _reached(_turned("implied"), anomalies)


def ruled_out_by(models: Iterable[str]) -> frozenset[str]:
    """Every anomaly that is evidence against one of the models."""
    weaker = _reached(MODELS, models)
    return that_imply(each for model in weaker for each in RULED_OUT.get(model, ()))


def violated_by(anomalies: Iterable[str]) -> frozenset[str]:
    """Every model that does not hold where these anomalies are."""
    all_of_them = implied_by(anomalies)
    broken = (model for model, ruled_out in RULED_OUT.items() if all_of_them & {*ruled_out})
    return _reached(_turned("models"), broken)


def weakest(models: frozenset[str]) -> tuple[str, ...]:
    """Those that imply no other of them."""
    return tuple(sorted(m for m in models if not (_reached(MODELS, MODELS[m]) & models)))


def strongest(models: frozenset[str]) -> tuple[str, ...]:
    """Those that no other of them implies."""
    above = _turned("models")
    return tuple(sorted(m for m in models if not (_reached(above, above.get(m, ())) & models)))


def not_ruled_out(violated: frozenset[str]) -> frozenset[str]:
    """Models of transactions that may hold."""
    return frozenset(TRANSACTIONAL) - violated
