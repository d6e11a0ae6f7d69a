"""A campaign of the search as a row: its denominators, of all seeds that it ever ran.

``campaign.jsonl`` has a line a seed, and is there also of a search that was killed; summary.json
adds what is not in it: how many seeds were wanted, of which system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from shalott.harness.store.columns import CAMPAIGN, SCHEMA_VERSION, Row
from shalott.harness.store.run_files import (
    CAMPAIGN_LOG,
    CAMPAIGN_SUMMARY,
    RunDirectory,
    Unreadable,
    read_json,
)
from shalott.harness.store.verdict_columns import valid_text


class _Report(msgspec.Struct):
    seed: int
    valid: object = None
    violations: list[str] = []
    error: str | None = None


class _Line(msgspec.Struct):
    line: str = ""
    report: _Report | None = None
    code: str = ""
    python: str = ""


class _Summary(msgspec.Struct):
    command: str | None = None
    wanted: int | None = None
    system: str | None = None
    profile: str | None = None
    workload: str | None = None
    wall_s: float | None = None
    started_wall_ns: int | None = None
    cluster: str = "sim"


def read_campaign(place: RunDirectory) -> Row:
    """The row; never raises for what is damaged."""
    trouble: list[str] = []
    lines = _lines(place, trouble)
    own = [line.report for line in lines if line.line == "seed" and line.report is not None]
    reports = {report.seed: report for report in own}
    try:
        summary = read_json(place.path / CAMPAIGN_SUMMARY, _Summary) or _Summary()
    except Unreadable as error:
        trouble.append(str(error))
        summary = _Summary()
    verdicts = Counter(_verdict(report) for report in reports.values())
    header = next((line for line in lines if line.line == "campaign"), _Line())
    valid, invalid, unknown = (verdicts[each] for each in ("true", "false", "unknown"))
    return {
        "run": place.run,
        "kind": CAMPAIGN,
        "name": place.path.name,
        "campaign": place.path.name,
        "started_wall_ns": summary.started_wall_ns or place.plan_changed_ns,
        "elapsed_ns": None if summary.wall_s is None else round(summary.wall_s * 1e9),
        "system": summary.system,
        "profile": summary.profile,
        "workload": summary.workload,
        "cluster": summary.cluster,
        "backend": summary.cluster,
        "command": summary.command,
        "tested": msgspec.json.encode({"code": header.code, "python": header.python}).decode(),
        "valid": "false" if invalid else "unknown" if unknown or not valid else "true",
        "anomalies": _anomalies(reports.values()),
        "headline": (
            f"{len(reports):,} seeds: {valid:,} valid, {invalid:,} invalid, {unknown:,} unknown,"
            f" {verdicts['error']:,} not booted or broken off."
        ),
        "seeds_wanted": summary.wanted,
        "seeds_judged": valid + invalid + unknown,
        "seeds_valid": valid,
        "seeds_invalid": invalid,
        "seeds_unknown": unknown,
        "seeds_not_booted": verdicts["error"],
        "night": "",
        "cell": "",
        "unreadable": trouble,
        "files_changed_ns": place.changed_ns,
        "schema_version": SCHEMA_VERSION,
    }


def _lines(place: RunDirectory, trouble: list[str]) -> list[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    found, damaged = [], 0
    try:
        data = (place.path / CAMPAIGN_LOG).read_bytes()
    except OSError as error:
        trouble.append(f"{CAMPAIGN_LOG} can't be read: {error.strerror}")
        return []
    for line in data[: data.rfind(b"\n") + 1].splitlines():  # a torn last line is no line
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged += 1
    if damaged:
        trouble.append(f"{damaged} lines of {CAMPAIGN_LOG} can't be read")
    return found


def _verdict(report: _Report) -> str:
    return "error" if report.error is not None else valid_text(report.valid) or "unknown"


def _anomalies(reports: Iterable[_Report]) -> list[dict[str, object]]:
    """Of each class in how many seeds it was found."""
    seeds = Counter(
        kind for report in reports if _verdict(report) == "false" for kind in report.violations
    )
    return [
        {"checker": "", "kind": kind, "count": count, "broken": True}
        for kind, count in sorted(seeds.items())
    ]
