"""PublishedFinding: what was published of a system, and how it is found again.

A plug-in offers its findings, a tuple of them, at the entry-point group ``shalott.findings``, or in
a module given to ``--load``. ``shalott bugs --published`` runs each on the release of which it was
published and on the newest one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shalott.core.doors import Door, door_of_records
from shalott.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run must show; all that is given must hold.

    ``kinds``: any anomaly of these, because of which a checker says no: ``checker``, or any if none
    is named. ``count``: a number of that checker's, at least ``least``. ``line``: a regular
    expression that matches so many lines (``least``) in one node's files, if there is no count.
    """

    checker: str = ""
    kinds: tuple[str, ...] = ()
    count: str = ""
    line: str = ""
    least: float = 1

    def __post_init__(self) -> None:
        if not (self.kinds or self.count or self.line):
            raise ValueError("it says nothing that a run must show: give kinds, count or line")
        re.compile(self.line)

    @property
    def words(self) -> str:
        by = f" of `{self.checker}`" if self.checker else ""
        told = [f"{' or '.join(f'`{kind}`' for kind in self.kinds)}{by}"] if self.kinds else []
        if self.count:
            told.append(f"`{self.count}`{by} at least {self.least:g}")
        if self.line:
            times = "" if self.count or self.least == 1 else f" {self.least:g} times"
            told.append(f"in a log{times}: `{self.line.replace('|', chr(92) + '|')}`")
        return " and ".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFinding:
    """``source``: where it is published, an address. ``releases``: those of which it is published,
    or is known, that can be had; the first is run. ``mended``: the first release without it, "" if
    there is none. ``newest``: the release that was the newest when this was written.

    ``command``: words of ``shalott test`` behind ``--system`` and ``--version``; with ``--plan`` a
    stored plan, whose version is replaced. ``seen``: any of these shows it. ``published``: what the
    report says, in numbers. ``promised``: what the system promises that this breaks, and where; ""
    where it is documented that it may happen. ``log``: a regular expression for lines of the nodes'
    files that tell of it, for the report. ``minutes``: what one run takes.
    """

    name: str
    title: str
    source: str
    system: str
    releases: tuple[str, ...]
    newest: str
    command: tuple[str, ...]
    seen: tuple[Seen, ...]
    mended: str = ""
    published: str = ""
    promised: str = ""
    log: str = ""
    minutes: float = 2.0

    def __post_init__(self) -> None:
        if not (self.releases and self.seen):
            raise ValueError(f"{self.name}: it names no release, or nothing that must be seen")
        re.compile(self.log)

    @property
    def release(self) -> str:
        """On which it is looked for."""
        return self.releases[0]

    @property
    def seen_words(self) -> str:
        return ", or ".join(each.words for each in self.seen)


FINDINGS: Door[PublishedFinding] = door_of_records("finding", "shalott.findings", PublishedFinding)


def find_findings(name: str | None) -> tuple[PublishedFinding, ...]:
    """The one of that name, all of a system of that name, or all. Raises UsageError."""
    found = tuple(FINDINGS.records())
    if not found:
        raise UsageError(
            "no published finding is here: install a plug-in that offers some, or --load one"
        )
    if name is None:
        return found
    wanted = tuple(each for each in found if name in (each.system, each.name))
    if not wanted:
        names = dict.fromkeys((*(each.system for each in found), *(each.name for each in found)))
        raise UsageError(f"unknown finding {name}: choose one of {', '.join(names)}")
    return wanted
