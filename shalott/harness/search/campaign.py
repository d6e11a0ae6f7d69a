"""A campaign: what a search has done so far, kept so that the same command goes on with it.

``STORE/search/<name>/campaign.jsonl`` is append-only: a first line that says what is searched and
with which code, then a line a run as it ends. A search that is killed loses the runs under way and
nothing else; a torn last line is cut off. Results of another state of the code say nothing about
this one, so a campaign of other code is set aside (as <name>.1, <name>.2, ...) and begun anew.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shalott.core.errors import StoreError, UsageError
from shalott.harness.run.store import RunDirectory
from shalott.harness.search.findings import SeedReport

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
    ``spent_s``: by commands that were cut short since the last one that came to its end."""

    directory: Path
    header: Header
    fresh_because: str = ""
    reports: dict[int, SeedReport] = field(default_factory=dict)
    again: dict[int, str] = field(default_factory=dict)
    repeats: dict[int, list[SeedReport]] = field(default_factory=dict)
    spent_s: float = 0.0
    _file: int = -1

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

    @property
    def under_way(self) -> Path:
        """Where runs under way are written."""
        return self.directory / AT_WORK

    def finding(self, seed: int) -> RunDirectory:
        """Where a seed's finding is kept."""
        return RunDirectory(self.directory / FINDINGS / f"seed-{seed}")

    def save_summary(self, data: bytes) -> None:
        RunDirectory(self.directory).save_bytes(SUMMARY, data)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)  # and with it the lock
            self._file = -1

    def _append(self, line: Done | Again | Repeated | Spent) -> None:
        try:
            os.write(self._file, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise StoreError(f"cannot write {self.directory / LOG}: {error.strerror}") from error


def open_campaign(store: Path, name: str, header: Header, *, fresh: bool) -> Campaign:
    """Go on with the campaign of this name, or begin it. Raises UsageError, StoreError."""
    directory = store / SEARCH / name
    because = ""
    if (directory / LOG).exists():
        because = "--fresh was given" if fresh else _why_not(directory / LOG, header)
        if because:
            _set_aside(directory)
    campaign = Campaign(directory=directory, header=header, fresh_because=because)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        campaign._file = _locked(directory / LOG)
        _read(campaign)
    except OSError as error:
        campaign.close()
        raise StoreError(f"cannot keep a campaign in {directory}: {error.strerror}") from error
    except BaseException:
        campaign.close()
        raise
    return campaign


def _locked(path: Path) -> int:
    """Open for appending, by this search alone."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise UsageError(
            f"another search is at work in {path.parent}: wait for it, or use another --store"
        ) from error
    return file


def _why_not(path: Path, header: Header) -> str:
    """Why the stored campaign can't be gone on with; "" if it can."""
    try:
        with path.open("rb") as file:
            stored = msgspec.json.decode(file.readline(), type=Header)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError:
        return "its record can't be read"
    if stored.version != header.version:
        return f"it is of version {stored.version}"
    if stored.subject != header.subject:
        return "what it drew its plans from has changed"
    if stored.code != header.code:
        return "the code has changed since"
    if stored.python != header.python:
        return f"it ran on Python {stored.python}"
    return ""


def _set_aside(directory: Path) -> None:
    """Nothing is discarded: an old campaign keeps its findings under another name."""
    lock = _locked(directory / LOG)  # refuse while another search writes it
    try:
        number = 1
        while (aside := directory.with_name(f"{directory.name}.{number}")).exists():
            number += 1
        directory.rename(aside)
    except OSError as error:
        raise StoreError(f"cannot set {directory} aside: {error.strerror}") from error
    finally:
        os.close(lock)


def _read(campaign: Campaign) -> None:
    """Load what there is; write the header if there is nothing; cut a torn line off."""
    path = campaign.directory / LOG
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    if whole == 0:
        os.write(campaign._file, msgspec.json.encode(campaign.header) + b"\n")
        return
    for line in _lines(data[:whole], path):
        if isinstance(line, Done):
            campaign.reports[line.report.seed] = line.report
        elif isinstance(line, Again):
            campaign.again[line.seed] = line.digest
        elif isinstance(line, Repeated):
            campaign.repeats.setdefault(line.report.seed, []).append(line.report)
        elif isinstance(line, Spent):
            campaign.spent_s = 0.0 if line.over else line.seconds


def _lines(data: bytes, path: Path) -> Iterator[Header | Done | Again | Repeated | Spent]:
    decoder = msgspec.json.Decoder(Header | Done | Again | Repeated | Spent)
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{path}, line {number}, can't be read ({error}): begin anew with --fresh"
            ) from error
