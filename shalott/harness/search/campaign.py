"""A campaign: what a search has done so far, kept so that the same command goes on with it.

``STORE/search/<name>/campaign.jsonl`` is append-only: a first line that says what is searched and
with which code, then a line a run as it ends. A search that is killed loses the runs under way and
nothing else; a torn last line is cut off. Results of another state of the code say nothing about
this one, so a campaign of other code is set aside (as <name>.1, <name>.2, ...) and begun anew.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from shalott.core.errors import UsageError
from shalott.harness.run.store import PLAN
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Place

SEARCH = "search"  # the directory of all campaigns in a store
LOG = "campaign.jsonl"
SUMMARY = "summary.json"
FINDINGS = "findings"
AT_WORK = "at-work"
CAMPAIGN_VERSION = 1


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="campaign", tag_field="line"):
    """The first line. Two campaigns with equal headers are one."""

    version: int = CAMPAIGN_VERSION
    subject: str  # a fingerprint of what is drawn from: system, profile, bugs, swarm
    code: str
    python: str = platform.python_version()


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="seed", tag_field="line"):
    report: SeedReport


class Again(msgspec.Struct, frozen=True, kw_only=True, tag="again", tag_field="line"):
    """A run repeated in another process, to compare digests."""

    seed: int
    digest: str


class Repeated(msgspec.Struct, frozen=True, kw_only=True, tag="repeated", tag_field="line"):
    """A run repeated on real nodes, to see how often it fails."""

    report: SeedReport


class Spent(msgspec.Struct, frozen=True, kw_only=True, tag="spent", tag_field="line"):
    """How much of its time limit a search has used, until its end, or until it was killed.
    ``over``: it came to its end, so the next command has all of its time again."""

    seconds: float
    over: bool = False


@dataclass
class Campaign:
    """An open campaign. ``fresh_because`` says why it did not go on with an earlier one.
    ``spent_s``: by commands that were cut short since the last one that came to its end.
    ``kept``: seeds whose findings are there."""

    place: Place
    header: Header
    lock: ExitStack
    fresh_because: str = ""
    reports: dict[int, SeedReport] = field(default_factory=dict)
    again: dict[int, str] = field(default_factory=dict)
    repeats: dict[int, list[SeedReport]] = field(default_factory=dict)
    spent_s: float = 0.0
    kept: set[int] = field(default_factory=set)

    def add(self, report: SeedReport) -> None:
        self._append(Done(report=report))
        self.reports[report.seed] = report

    def add_again(self, seed: int, digest: str) -> None:
        """Remember a repeated run."""
        self._append(Again(seed=seed, digest=digest))
        self.again[seed] = digest

    def add_repeat(self, report: SeedReport) -> None:
        """Remember one more run of a plan that had failed."""
        self._append(Repeated(report=report))
        self.repeats.setdefault(report.seed, []).append(report)

    def spend(self, seconds: float, *, over: bool = False) -> None:
        """Remember how much time was used in all."""
        self._append(Spent(seconds=round(seconds, 3), over=over))

    @property
    def mismatches(self) -> dict[int, tuple[str, str]]:
        """Seeds whose two runs differ, with both digests."""
        return {
            seed: (self.reports[seed].digest, digest)
            for seed, digest in sorted(self.again.items())
            if seed in self.reports and self.reports[seed].digest != digest
        }

    def save_summary(self, data: bytes) -> None:
        self.place.write(SUMMARY, data)

    def close(self) -> None:
        self.lock.close()

    def _append(self, line: Done | Again | Repeated | Spent) -> None:
        self.place.append(LOG, msgspec.json.encode(line) + b"\n")


def finding(seed: int) -> str:
    """Where in a campaign a seed's finding is kept, as a run's directory."""
    return f"{FINDINGS}/seed-{seed}"


def open_campaign(store: Place, name: str, header: Header, *, fresh: bool) -> Campaign:
    """Go on with the campaign of this name, or begin it. Raises UsageError, StoreError."""
    searches = store.within(SEARCH)
    place = searches.within(name)
    because = ""
    lock = ExitStack()
    try:
        lock.enter_context(place.hold(LOG))
        if stored := place.lines(LOG):
            because = "--fresh was given" if fresh else _why_not(stored, header)
        if because:  # nothing is discarded: an old campaign keeps its findings under another name
            searches.move(name, _free_name(searches, name))
            stored = b""
            lock.close()
            lock.enter_context(place.hold(LOG))
        campaign = Campaign(place=place, header=header, fresh_because=because, lock=lock)
        _read(campaign, stored)
    except BaseException:
        lock.close()
        raise
    return campaign


def _why_not(stored: bytes, header: Header) -> str:
    """Why the stored campaign can't be gone on with; "" if it can."""
    try:
        stored_header = msgspec.json.decode(stored.partition(b"\n")[0], type=Header)
    except msgspec.MsgspecError:
        return "its record can't be read"
    if stored_header.version != header.version:
        return f"it is of version {stored_header.version}"
    if stored_header.subject != header.subject:
        return "what it drew its plans from has changed"
    if stored_header.code != header.code:
        return "the code has changed since"
    if stored_header.python != header.python:
        return f"it ran on Python {stored_header.python}"
    return ""


def _free_name(searches: Place, name: str) -> str:
    number = 1
    while searches.names(f"{name}.{number}"):
        number += 1
    return f"{name}.{number}"


def _read(campaign: Campaign, stored: bytes) -> None:
    """Load the lines that are there; write the header if there are none."""
    place = campaign.place
    if not stored:
        place.append(LOG, msgspec.json.encode(campaign.header) + b"\n")
    for line in _lines(stored, place):
        if isinstance(line, Done):
            campaign.reports[line.report.seed] = line.report
        elif isinstance(line, Again):
            campaign.again[line.seed] = line.digest
        elif isinstance(line, Repeated):
            campaign.repeats.setdefault(line.report.seed, []).append(line.report)
        elif isinstance(line, Spent):
            campaign.spent_s = 0.0 if line.over else line.seconds
    names = {*place.names(FINDINGS)}
    campaign.kept |= {seed for seed in campaign.reports if f"{finding(seed)}/{PLAN}" in names}


def _lines(data: bytes, place: Place) -> Iterator[Header | Done | Again | Repeated | Spent]:
    decoder = msgspec.json.Decoder(Header | Done | Again | Repeated | Spent)
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{place}/{LOG}, line {number}, can't be read ({error}): begin anew with --fresh"
            ) from error
