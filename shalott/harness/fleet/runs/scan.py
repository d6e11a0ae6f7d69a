"""Where the runs of a store are: every directory that holds a run's file, at any depth.

``latest`` links are not followed, and names that begin with "_" or "." are passed over, as Spark
does. Below a run nothing is looked for, so that a scan reads one directory a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shalott.harness.fleet.runs.stored import HISTORY, PLAN, RECORDING, RESULTS, TAGS

CAMPAIGN_LOG, CAMPAIGN_SUMMARY, FINDINGS = "campaign.jsonl", "summary.json", "findings"
_OF_A_RUN = (PLAN, RESULTS, HISTORY, RECORDING)
_TOLD_BY = (PLAN, RESULTS, TAGS)  # what a row depends on, besides a history that never changes


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that becomes a row. ``run``: its path, relative to the store.

    ``changed_ns``: when the newest of its files was written. ``campaign``: of a finding, whose.
    """

    path: Path
    run: str
    changed_ns: int
    plan_changed_ns: int
    campaign: str = ""
    is_campaign: bool = False


def places(store: Path) -> Iterator[Place]:
    """All of them, by name."""
    yield from _below(store, store, "")


def place_of(store: Path, directory: Path) -> Place | None:
    """The one place that ``directory`` is; None if it holds nothing of a run. Either may be told
    from the working directory on, or through links."""
    store, directory = store.resolve(), directory.resolve()
    parents = directory.parents
    campaign = ""
    if directory.parent.name == FINDINGS and (parents[1] / CAMPAIGN_LOG).exists():
        campaign = parents[1].name
    return _place(store, directory, campaign)


def _below(store: Path, directory: Path, campaign: str) -> Iterator[Place]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # removed meanwhile, or not ours to read
    names = {entry.name: None for entry in entries}
    if CAMPAIGN_LOG in names or any(name in names for name in _OF_A_RUN):
        place = _place(store, directory, campaign)
        if place is not None:
            yield place
        if CAMPAIGN_LOG not in names:
            return
        campaign = directory.name
    for entry in entries:
        if entry.name[0] not in "_." and entry.is_dir(follow_symlinks=False):
            inherited = campaign if entry.name == FINDINGS or directory.name == FINDINGS else ""
            yield from _below(store, Path(entry.path), inherited)


def _place(store: Path, directory: Path, campaign: str) -> Place | None:
    if (directory / CAMPAIGN_LOG).is_file():
        logged, told = _changed(directory / CAMPAIGN_LOG), _changed(directory / CAMPAIGN_SUMMARY)
        run = _relative(store, directory)
        return Place(directory, run, max(logged, told), logged, is_campaign=True)
    changed = [_changed(directory / name) for name in (*_TOLD_BY, HISTORY, RECORDING)]
    if not any(_changed(directory / name) for name in _OF_A_RUN):
        return None
    plan_changed = changed[0] or max(changed)
    newest = max(changed[: len(_TOLD_BY)]) or max(changed)
    return Place(directory, _relative(store, directory), newest, plan_changed, campaign)


def _relative(store: Path, directory: Path) -> str:
    """ "." if the store is itself a run."""
    path = directory.relative_to(store).as_posix()
    return os.fsencode(path).decode("utf-8", "replace")


def _changed(path: Path) -> int:
    """ns since the epoch; 0 if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
