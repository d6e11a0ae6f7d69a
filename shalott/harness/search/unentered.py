"""Which functions of the broker no run of a search came to, and which of them have a reason.

A search that learns names what it never entered, for there it can't find anything. What no search
is to enter stands in REASONS; a search that enters it all the same says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shalott import broker
from shalott.harness.search.probes import feature, functions_in
from shalott.harness.search.unentered_reasons import REASONS, Reason

PREFIX = f"{broker.__name__}."


@dataclass(frozen=True, slots=True)
class Reach:
    """``unentered`` and ``outdated``: names of functions, as module:class:function without the
    package. ``explained``: how many were not entered for a reason."""

    unentered: tuple[str, ...]
    explained: int
    outdated: tuple[str, ...]


def reach_of(seen: Container[int], search: str) -> Reach:
    """``seen``: features. ``search``: its system and profile, as "dledger/safe"."""
    unentered, outdated, explained = list[str](), list[str](), 0
    names = (search, search.partition("/")[0])
    reasons = [one for one in REASONS if not any(name in one.but for name in names)]
    for name in _used(seen):
        is_explained = any(covers(one, name) for one in reasons)
        if feature(PREFIX + name) in seen:
            outdated += [name] if is_explained else []
        elif is_explained:
            explained += 1
        else:
            unentered.append(name)
    return Reach(tuple(unentered), explained, tuple(outdated))


def covers(reason: Reason, name: str) -> bool:
    """Whether the function has one of its names, or stands below one."""
    return any(is_below(name, one) for one in names_of(reason))


def is_below(name: str, other: str) -> bool:
    return name == other or name.startswith((f"{other}.", f"{other}:"))


@cache
def names_of(reason: Reason) -> tuple[str, ...]:
    """``a:b|c`` is ``a:b`` and ``a:c``."""
    parts = (each.partition(":") for each in reason.names.split())
    return tuple(module + colon + one for module, colon, each in parts for one in each.split("|"))


def functions() -> Iterator[tuple[Path, str, list[str]]]:
    """By package and module the names of its functions."""
    root = Path(broker.__path__[0])
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        names = functions_in(path.read_text(encoding="utf-8"), module)
        yield path.parent, module, names


def _used(seen: Container[int]) -> Iterator[str]:
    """Functions of modules that were imported, of packages of which some were entered: a single
    one may be another feature of the same number."""
    entered: Counter[Path] = Counter()
    found: list[tuple[Path, str]] = []
    for package, module, names in functions():
        if feature(PREFIX + module) in seen:
            found += [(package, name) for name in names]
            entered[package] += sum(feature(PREFIX + name) in seen for name in names)
    return (name for package, name in found if entered[package] > 1)
