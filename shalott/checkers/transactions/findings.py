"""Anomalies that need no cycle, told: what one read or write has to do with another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shalott.checkers.engine import CData
from shalott.checkers.transactions.found import CONTESTED, NONE, SOURCES
from shalott.checkers.transactions.story import Teller, Told


def is_contested(found: CData) -> bool:
    """No anomaly: a value that several transactions may have written."""
    return bool(found.kind == CONTESTED)


def finding(teller: Teller, kind: str, found: CData) -> Told:
    transactions = tuple(at for at in (found.txn, *_other_transactions(kind, found)) if at != NONE)
    claim = _CLAIMS[kind](teller, found)
    sentences = tuple(
        teller.named(at, f"T{number}") for number, at in enumerate(transactions, start=1)
    )
    places = tuple(teller.found.place(at) for at in transactions)
    return Told(kind, claim, (*sentences, claim), transactions, places)


def _other_transactions(kind: str, found: CData) -> tuple[int, ...]:
    of_two = ("G1a", "G1b", "dirty-update", "lost-update")
    has_two = kind in of_two or (kind == "incompatible-order" and found.branch != NONE)
    return (found.other,) if has_two else ()


def _key_of(teller: Teller, found: CData) -> str:
    return teller.show(teller.found.key(found.key))


def _version_of(teller: Teller, version: int) -> str:
    return teller.show(teller.found.version(version))


def _duplicate_elements(teller: Teller, found: CData) -> str:
    read = teller.mop(teller.found.mop(found.mop))
    element = _version_of(teller, found.version)
    return f"T1 read {read}, which holds {element} more than once"


def _cyclic_versions(teller: Teller, found: CData) -> str:
    key = _key_of(teller, found)
    one, other = _version_of(teller, found.version), _version_of(teller, found.other_version)
    if teller.found.object != "registers":
        return _own_order(teller, found, key)
    sources = ", ".join(name for bit, name in SOURCES.items() if found.place & bit)
    return (
        f"versions of {key} come in a circle: {one} before {other}, and {other} before {one},"
        f" by what is assumed ({sources})"
    )


def _own_order(teller: Teller, found: CData, key: str) -> str:
    later, earlier = _version_of(teller, found.version), _version_of(teller, found.other_version)
    if teller.found.view.version[found.other_version].at == NONE:
        return (
            f"T1 appended {earlier} to {key}, and then {later}; a read shows {later}, and none"
            f" {earlier}"
        )
    return f"T1 appended {earlier} to {key}, and then {later}; reads show them the other way"


def _internal(teller: Teller, found: CData) -> str:
    read, earlier = teller.found.mop(found.mop), teller.found.mop(found.other)
    did = "read" if earlier.f == "r" else "wrote"
    return f"T1 {did} {teller.mop(earlier)}, and read {teller.mop(read)} behind it"


def _garbage_read(teller: Teller, found: CData) -> str:
    read = teller.mop(teller.found.mop(found.mop))
    return f"T1 read {read}, where no transaction wrote {_version_of(teller, found.version)}"


def _g1a(teller: Teller, found: CData) -> str:
    read = teller.mop(teller.found.mop(found.mop))
    return f"T1 read {read}, where {_version_of(teller, found.version)} is of T2, which failed"


def _g1b(teller: Teller, found: CData) -> str:
    read = teller.mop(teller.found.mop(found.mop))
    version = _version_of(teller, found.version)
    return f"T1 read {read}, where {version} was not the last that T2 wrote to the key"


def _dirty_update(teller: Teller, found: CData) -> str:
    failed, behind = _version_of(teller, found.version), _version_of(teller, found.other_version)
    return (
        f"{_key_of(teller, found)} holds the {failed} of T2, which failed, and behind it the"
        f" {behind} of T1, which was committed on top of it"
    )


def _future_read(teller: Teller, found: CData) -> str:
    version = _version_of(teller, found.version)
    return f"T1 read {version} in {_key_of(teller, found)}, which only itself wrote, later"


def _incompatible_order(teller: Teller, found: CData) -> str:
    if found.branch == NONE:
        return _own_order(teller, found, _key_of(teller, found))
    one = teller.value(teller.found.list_of(found.branch))
    other = teller.value(teller.found.list_of(found.other_branch))
    return (
        f"T1 read {_key_of(teller, found)} as {one}, and T2 as {other}: neither is how the other"
        " one began"
    )


def _lost_update(teller: Teller, found: CData) -> str:
    version = _version_of(teller, found.version)
    what = f"with {version}" if found.version != NONE else "as it was at first"
    if teller.found.object != "registers" and found.version != NONE:
        what += " at its end"
    return (
        f"T1 and T2 both read {_key_of(teller, found)} {what}, and both wrote it: the update of"
        " one was made without that of the other"
    )


_CLAIMS: Final[dict[str, Callable[[Teller, CData], str]]] = {
    "duplicate-elements": _duplicate_elements,
    "cyclic-versions": _cyclic_versions,
    "internal": _internal,
    "garbage-read": _garbage_read,
    "G1a": _g1a,
    "dirty-update": _dirty_update,
    "G1b": _g1b,
    "future-read": _future_read,
    "incompatible-order": _incompatible_order,
    "lost-update": _lost_update,
}
