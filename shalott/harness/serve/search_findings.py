"""What nights found, the newest first; and what searches found: every campaign with its
denominator, its classes, and what was kept of them, with the minimal plan where one was made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from shalott.core.json_value import Json
from shalott.harness.run.store import PLAN
from shalott.harness.serve.cached_table import Runs
from shalott.harness.serve.nights import NightFound, found_nights, list_nights
from shalott.harness.serve.request import Refused, RunPath, StoreFiles
from shalott.harness.serve.run_view import MINIMAL, inner, read_json
from shalott.harness.serve.told_nights import ToldNight

SEARCH = "search"  # where a store keeps them: harness/search/campaign.py
SUMMARY = "summary.json"
CAMPAIGNS_MAX = 500
NIGHTS_SHOWN = 7
FINDINGS_MAX = 200  # told of a campaign


class _Class(msgspec.Struct):
    count: int = 0
    seeds: list[int] = []
    kept: list[str] = []


class _Summary(msgspec.Struct):
    """What is read of summary.json; what another version has besides is passed over."""

    command: str = ""
    seeds: str = ""
    wanted: int = 0
    ran: int = 0
    valid: int = 0
    invalid: int = 0
    unknown: int = 0
    errors: dict[str, object] = {}
    classes: dict[str, _Class] = {}
    scenario: str = ""
    interrupted: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A kept run of a search. ``minimal_faults`` and ``minimal_ms``: of the shrunk plan, None if
    there is none."""

    run: str
    classes: tuple[str, ...]
    faults: int | None
    load_ms: int | None
    minimal: bool
    minimal_faults: int | None
    minimal_ms: int | None
    command: str  # replays the smallest plan, or shrinks


class ClassView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    count: int
    seeds: tuple[int, ...]


class CampaignView(msgspec.Struct, frozen=True, kw_only=True):
    """``ran`` is the denominator of the counts, of the last command; None: it left no summary."""

    name: str
    command: str
    seeds: str
    wanted: int | None
    ran: int | None
    valid: int
    invalid: int
    unknown: int
    errors: int
    scenario: str
    interrupted: bool
    classes: tuple[ClassView, ...]
    findings: tuple[Finding, ...]
    left_out: int


class FindingList(msgspec.Struct, frozen=True, kw_only=True):
    nights: tuple[NightFound, ...]
    more_nights: int
    campaigns: tuple[CampaignView, ...]


def list_findings(
    places: StoreFiles, runs: Runs, told: Mapping[str, ToldNight], store: str
) -> FindingList:
    """Of the newest nights, and of every campaign of the store."""
    nights = found_nights(runs, told, NIGHTS_SHOWN)
    return FindingList(
        nights=nights,
        more_nights=len(list_nights(runs, told).nights) - len(nights),
        campaigns=_campaigns(places, store),
    )


def _campaigns(places: StoreFiles, store: str) -> tuple[CampaignView, ...]:
    """The reddest first."""
    top = places.root / SEARCH
    if top.is_symlink() or not top.is_dir():
        return ()
    names = sorted(each.name for each in top.iterdir() if each.is_dir() and not each.is_symlink())
    campaigns = [_campaign(places, name, store) for name in names[:CAMPAIGNS_MAX]]
    return tuple(sorted(campaigns, key=lambda each: (-bool(each.invalid), each.name)))


def _campaign(places: StoreFiles, name: str, store: str) -> CampaignView:
    summary = _summary(places, name)
    stored = summary or _Summary()
    by_seed: dict[str, list[str]] = {}
    for kind, found in stored.classes.items():
        for seed in found.seeds:
            by_seed.setdefault(f"seed-{seed}", []).append(kind)
    findings, left_out = _findings(places, name, by_seed, store)
    return CampaignView(
        name=name,
        command=stored.command,
        seeds=stored.seeds,
        wanted=summary.wanted if summary else None,
        ran=summary.ran if summary else None,
        valid=stored.valid,
        invalid=stored.invalid,
        unknown=stored.unknown,
        errors=len(stored.errors),
        scenario=stored.scenario,
        interrupted=stored.interrupted,
        classes=tuple(
            ClassView(kind=kind, count=found.count, seeds=tuple(found.seeds[:10]))
            for kind, found in stored.classes.items()
        ),
        findings=findings,
        left_out=left_out,
    )


def _summary(places: StoreFiles, name: str) -> _Summary | None:
    place = RunPath(f"{SEARCH}/{name}", places.root / SEARCH / name)
    found = read_json(places, place, SUMMARY)
    try:
        return msgspec.convert(found, _Summary) if isinstance(found, dict) else None
    except msgspec.ValidationError:
        return None


def _findings(
    places: StoreFiles, name: str, classes: dict[str, list[str]], store: str
) -> tuple[tuple[Finding, ...], int]:
    top = places.root / SEARCH / name / "findings"
    if top.is_symlink() or not top.is_dir():
        return (), 0
    names = sorted(each.name for each in top.iterdir() if each.is_dir() and not each.is_symlink())
    found = []
    for own in names[:FINDINGS_MAX]:
        try:
            place = places.run(f"{SEARCH}/{name}/findings/{own}")
        except Refused:
            continue
        found.append(_finding(places, place, tuple(classes.get(own, ())), store))
    return tuple(found), max(0, len(names) - FINDINGS_MAX)


def _finding(places: StoreFiles, place: RunPath, classes: tuple[str, ...], store: str) -> Finding:
    plan, minimal = (read_json(places, place, name) for name in (PLAN, MINIMAL))
    verb, file = ("replay", MINIMAL) if minimal is not None else ("shrink", PLAN)
    path = shlex.quote(f"{store.rstrip('/')}/{place.name}/{file}")
    if not classes:
        violations = inner(read_json(places, place, "simulation.json"), ("violations",))
        classes = tuple(map(str, violations)) if isinstance(violations, list) else ()
    return Finding(
        run=place.name,
        classes=classes,
        faults=_fault_count(plan),
        load_ms=_whole(inner(plan, ("time_limit_ms",))),
        minimal=minimal is not None,
        minimal_faults=_fault_count(minimal),
        minimal_ms=_whole(inner(minimal, ("time_limit_ms",))),
        command=f"shalott {verb} {path}",
    )


def _fault_count(plan: Json) -> int | None:
    faults = inner(plan, ("faults",))
    return len(faults) if isinstance(faults, list) else None


def _whole(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
