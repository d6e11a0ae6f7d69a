"""Doors: how systems, workloads, faults, checkers and models enter from outside the package.

A thing that a user may add is one record, such as a ``WorkloadRecord``. It is found in two ways:

- an *entry point* of its door's group (``shalott.workloads``, say) in an installed distribution:
  the entry point names a record, or a tuple of records;
- ``--load package.module``: every record that stands at the top of that module is found.

The package's own records come through the same doors: they are entry points of the distribution
``shalott``. A record knows nothing of who provides it; a door does, and a plan keeps it
(``Plan.requires``), so that a stored plan can say what it needs where it can't be run.

As in Jepsen a test map may hold any client or nemesis; since plans are data here, the record's
name stands in the plan, and the door finds the record again, in worker processes too.
"""

from __future__ import annotations

import dataclasses
import importlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from shalott.core.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Record = TypeVar("Record")

OWN = "shalott"  # the distribution that the package's own records come from
GROUPS = "shalott."  # how the names of the doors' groups of entry points begin


@dataclass(frozen=True, slots=True)
class Provider:
    """Who brings a record: an installed distribution, or a module that was loaded by name."""

    name: str
    version: str = ""  # of a distribution; modules that are loaded have none
    is_module: bool = False

    def how_to_get(self) -> str:
        """What a user does who lacks it."""
        if self.is_module:
            return f"give --load {self.name}, from a directory where Python finds it"
        version = f"=={self.version}" if self.version else ""
        return f"install it with: pip install '{self.name}{version}'"


class Requirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str  # system, workload, fault, checker, model
    name: str
    provider: str
    version: str = ""
    is_module: bool = False

    def who(self) -> Provider:
        return Provider(self.provider, self.version, self.is_module)


_loaded: dict[str, ModuleType] = {}  # by name, in the order in which they were asked for


def load_module(name: str) -> None:
    """Import ``name`` and offer its records at every door; the working directory is looked at too.

    Raises UsageError if there is no such module, or it can't be imported.
    """
    if name not in _loaded:
        _loaded[name] = import_named(name, f"--load {name}")


def import_named(name: str, asked: str) -> ModuleType:
    """The module ``name``, from the working directory too. ``asked`` begins what is complained.

    Raises UsageError: there is no such module, or it can't be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a stranger's module may fail in any way
        raise UsageError(f"{asked}: {_first_line(error)}") from error


def loaded_modules() -> tuple[str, ...]:
    """What was loaded by name: a worker process loads the same."""
    return tuple(_loaded)


def typed_command(*words: str) -> str:
    """``shalott WORDS`` as a user types it who has what was loaded here."""
    loads = (word for name in loaded_modules() for word in ("--load", name))
    return shlex.join(["shalott", *words, *loads])


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Record]):
    record: Record
    provider: Provider


class Door(Generic[Record]):
    """Where records of one kind are found by name.

    ``accepts`` says whether a value is such a record, ``name_of`` how it is called. A module's
    records are those that stand in it under a public name; ``is_own`` may exclude what a module has
    merely imported.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        *,
        accepts: Callable[[object], bool],
        name_of: Callable[[Record], str],
        is_own: Callable[[object, ModuleType], bool] = lambda value, module: True,
    ) -> None:
        self.kind = kind
        self.group = group
        self._accepts = accepts
        self._name_of = name_of
        self._is_own = is_own
        self._installed: dict[str, _Entry[Record]] | None = None
        self._from_modules: dict[str, dict[str, _Entry[Record]]] = {}
        self._offered: dict[str, _Entry[Record]] = {}
        self._broken: dict[str, str] = {}  # entry point -> why it can't be used
        self._gathered: Mapping[str, _Entry[Record]] | None = None
        self._gathered_for: tuple[bool, tuple[str, ...], int] = (True, (), 0)

    def offer(self, record: Record) -> None:
        """Have a record found in this process: for programs that use the harness as a library.

        It takes the place of one that was offered under the same name. Worker processes and stored
        plans don't find it: they need an entry point or a module.
        """
        name = self._name_of(record)
        self._offered[name] = _Entry(record, Provider("this process"))
        self._gathered = None

    def withdraw(self, name: str) -> None:
        """Undo ``offer``; nothing happens if there was none."""
        self._offered.pop(name, None)
        self._gathered = None

    def names(self) -> tuple[str, ...]:
        """Of all that is there, the package's own first, each provider's in its own order."""
        return tuple(self._entries())

    def records(self) -> tuple[Record, ...]:
        return tuple(entry.record for entry in self._entries().values())

    def find(self, name: str) -> Record:
        """Raises UsageError, naming what there is, and why what is installed can't be used."""
        return self._entry(name).record

    def has(self, name: str) -> bool:
        return name in self._entries()

    def provider_of(self, name: str) -> Provider:
        """Raises UsageError as ``find`` does."""
        return self._entry(name).provider

    def requirement(self, name: str) -> Requirement:
        """What a plan notes of a record that it uses."""
        provider = self.provider_of(name)
        return Requirement(
            kind=self.kind,
            name=name,
            provider=provider.name,
            version=provider.version,
            is_module=provider.is_module,
        )

    def problems(self) -> tuple[str, ...]:
        """One sentence for each installed entry point that can't be used."""
        self._entries()
        return tuple(self._broken.values())

    def _entry(self, name: str) -> _Entry[Record]:
        entries = self._entries()
        if name in entries:
            return entries[name]
        if not self._installed:
            raise UsageError(
                f"there is no {self.kind}, since {OWN} is not installed: pip install -e . in its"
                " checkout, or pip install the wheel"
            )
        broken = f" ({'; '.join(self._broken.values())})" if self._broken else ""
        raise UsageError(
            f"unknown {self.kind} {name}: choose one of {', '.join(sorted(entries))}{broken}"
        )

    def _entries(self) -> Mapping[str, _Entry[Record]]:
        # Drawing a plan asks thousands of times: what was gathered stands until a module or a
        # record comes or goes.
        asked = (self._installed is None, tuple(_loaded), len(self._from_modules))
        if self._gathered is None or asked != self._gathered_for:
            self._gathered = self._gather()
            self._gathered_for = (False, tuple(_loaded), len(self._from_modules))
        return self._gathered

    def _gather(self) -> Mapping[str, _Entry[Record]]:
        if self._installed is None:
            self._installed = {}
            for entry_point, provider in _entry_points(self.group):
                self._take_entry_point(entry_point, provider, self._installed)
        for name, module in _loaded.items():
            if name not in self._from_modules:
                found = self._from_modules[name] = {}
                provider = Provider(name, is_module=True)
                for value in self._in_module(module):
                    self._take(value, provider, found)
        merged = dict(self._installed)
        for found in (*self._from_modules.values(), self._offered):
            for name, entry in found.items():
                self._check_free(name, entry, merged)
                merged.setdefault(name, entry)  # what a module merely imports is not its own
        return merged

    def _take_entry_point(
        self, entry_point: EntryPoint, provider: Provider, into: dict[str, _Entry[Record]]
    ) -> None:
        try:
            value = entry_point.load()
        except (Exception, SystemExit) as error:  # a plug-in's code must not keep ours from running
            self._broken[entry_point.name] = (
                f"{provider.name}'s {self.kind} {entry_point.name} can't be used:"
                f" {_first_line(error)}"
            )
            return
        for record in value if isinstance(value, tuple | list) else (value,):
            if not self._accepts(record):
                self._broken[entry_point.name] = (
                    f"{provider.name}'s entry point {entry_point.name} of {self.group} is no"
                    f" {self.kind} record"
                )
                continue
            if wrong := _misfit(record):
                self._broken[entry_point.name] = (
                    f"{provider.name}'s {self.kind} {entry_point.name} can't be used: {wrong}"
                )
                continue
            self._take(record, provider, into)

    def _take(self, record: Record, provider: Provider, into: dict[str, _Entry[Record]]) -> None:
        name, entry = self._name_of(record), _Entry(record, provider)
        if wrong := _misfit(record):
            raise UsageError(f"the {self.kind} {name!r} of {provider.name} can't be used: {wrong}")
        self._check_free(name, entry, into)
        into.setdefault(name, entry)

    def _check_free(
        self, name: str, entry: _Entry[Record], taken: Mapping[str, _Entry[Record]]
    ) -> None:
        """Two providers of one name would make a plan mean two things. Raises UsageError."""
        other = taken.get(name)
        if other is not None and other.record is not entry.record:
            raise UsageError(
                f"the {self.kind} {name} is provided by {other.provider.name} and by"
                f" {entry.provider.name}: give one of them another name"
            )

    def _in_module(self, module: ModuleType) -> Iterator[Record]:
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            several = value if isinstance(value, tuple | list) else (value,)
            for record in several:
                if self._accepts(record) and self._is_own(record, module):
                    yield record


def door_of_records(kind: str, group: str, record: type[Record]) -> Door[Record]:
    """A door for instances of a class that has a ``name``."""

    def name_of(value: Record) -> str:
        return str(getattr(value, "name"))  # noqa: B009 - every record class has one

    return Door(kind, group, accepts=lambda value: isinstance(value, record), name_of=name_of)


def check_requirements(requires: Iterable[Requirement], doors: Iterable[Door[object]]) -> list[str]:
    """Whether all that a plan uses is here; modules that it was made with are loaded if they can.

    Returns one sentence for each provider that is here in another version. Raises UsageError with
    one sentence that says what to install.
    """
    by_kind = {door.kind: door for door in doors}
    notes: dict[str, None] = {}
    for needed in requires:
        door, who = by_kind.get(needed.kind), needed.who()
        if door is None:
            raise UsageError(
                f"the plan needs a {needed.kind}, and this version knows no such thing"
            )
        if not door.has(needed.name) and who.is_module:
            try:
                load_module(who.name)
            except UsageError:
                pass  # said below, with what to do
        if not door.has(needed.name):
            raise UsageError(
                f"the plan needs the {needed.kind} {needed.name} of {who.name}, which is not here:"
                f" {who.how_to_get()}"
            )
        here = door.provider_of(needed.name)
        if (here.name, here.version) != (who.name, who.version):
            notes[
                f"The plan was made with {_named(who)}, and {_named(here)} provides its"
                f" {needed.kind} {needed.name} here."
            ] = None
    return list(notes)


def _named(provider: Provider) -> str:
    return f"{provider.name} {provider.version}".rstrip()


# What the annotations of records' fields begin with, and what such a value is.
_KINDS: Mapping[str, type] = {
    "str": str,
    "bool": bool,
    "tuple[": tuple,
    "Callable[": Callable,  # type: ignore[dict-item]
    "Mapping[": Mapping,
    "type[": type,
}


def _misfit(record: object) -> str:
    """Which field of a record, a dataclass, is of another type than it says; "" if none is."""
    if isinstance(record, type) or not dataclasses.is_dataclass(record):
        return ""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        told = str(field.type)
        wanted = next((kind for begin, kind in _KINDS.items() if told.startswith(begin)), object)
        if not isinstance(value, wanted) and not (value is None and "None" in told):
            return f"{field.name} is to be {told}, not {type(value).__name__}"
    return ""


def _entry_points(group: str) -> tuple[tuple[EntryPoint, Provider], ...]:
    """Of every installed distribution, our own first; a distribution found twice counts once."""
    return tuple(pair for pair in _offered_entry_points() if pair[0].group == group)


@cache
def _offered_entry_points() -> tuple[tuple[EntryPoint, Provider], ...]:
    """Those of all doors.

    Names and versions are read of distributions that offer something only. There may be hundreds of
    others, and each costs a millisecond.
    """
    # It takes longer to import than a small history to check, and most checks need no entry point.
    from importlib.metadata import distribution, distributions

    found: dict[str, list[tuple[EntryPoint, Provider]]] = {}
    for candidate in distributions():
        if not any(each.group.startswith(GROUPS) for each in candidate.entry_points):
            continue
        name = candidate.metadata["Name"]
        if name is None or name in found:
            continue
        first = distribution(name)  # what is imported, if there are two
        provider = Provider(name, first.version)
        found[name] = [(e, provider) for e in first.entry_points if e.group.startswith(GROUPS)]
    return tuple(
        pair for name in sorted(found, key=lambda n: (n != OWN, n)) for pair in found[name]
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
