"""What a cell is called, and what of a run was asked for: a matrix's key, or the command's words.

A key is ``system/profile/cluster/workload/nemesis@label``, where several faults are joined by "+".
The faults that a plan drew are another matter: of ``partition`` it is one of several kinds in each
run. A run of no matrix is called after what its command asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from shalott.harness.run.request import Request
from shalott.nemesis.record import FAULTS

CELL_AXES = 5


class CellName(NamedTuple):
    """``what`` ran, and which ``faults`` it was to meet; "" of a key that tells none."""

    what: tuple[str, ...]
    faults: str


def split_key(key: str) -> CellName:
    """Of a matrix's key, or of any word that a user gave with --tag cell=..."""
    axes, _, label = key.partition("@")
    parts = axes.split("/")
    if len(parts) == 1:
        return CellName((axes, *filter(None, [label])), "")
    what = parts[: CELL_AXES - 1]
    faults = "/".join(parts[len(what) :]) or what.pop()
    return CellName((*what, *filter(None, [label])), faults)


def plain_key(row_axes: Iterable[str | None], command: str, drawn: Iterable[str] | None) -> str:
    """Of a run of no matrix. ``row_axes``: system, profile, cluster and workload."""
    if drawn is None:
        faults = "?"
    else:
        kinds = [kind for kind in drawn if kind]
        faults = "none"
        if kinds:
            faults = asked_of(command) or joined(map(group_of, kinds))
    return "/".join([*(each or "?" for each in row_axes), faults])


def asked_of(command: str) -> str:
    """What faults ``shalott test`` was asked for; "" if the command does not tell, since it was
    given a plan. A command leaves out what is the default."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if words[:2] != ["shalott", "test"] or any(word.startswith("--plan") for word in words):
        return ""
    kinds = [after for word, after in pairwise(words) if word == "--nemesis"]
    return joined((kinds[-1] if kinds else Request().nemesis).split(","))


@cache
def group_of(kind: str) -> str:
    """The name that stands for any of several kinds of faults, one of which is drawn each time."""
    groups = {record.name: record.group for record in FAULTS.records()}
    return groups.get(kind) or kind


def joined(kinds: Iterable[str]) -> str:
    return "+".join(sorted(dict.fromkeys(kinds)))
