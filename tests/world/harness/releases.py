"""A system of which two releases can be had, and what is published of them: the example's toy.

Release 1.0 answers reads from copies, which 1.1 mended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec

from shalott.api import Plan, Profile, PublishedFinding, Seen, System, make_parameters
from shalott_registers.toy import SYSTEM as TOY

_CUT = (
    "--cluster",
    "sim",
    "--nemesis",
    "partition",
    "--nemesis-interval",
    "4",
    "--nemesis-duration",
    "3",
    "--time-limit",
    "8",
    "--rate",
    "40",
)


class Released(msgspec.Struct, frozen=True):
    version: Literal["1.0", "1.1"] = "1.1"


def make(plan: Plan) -> System:
    version = make_parameters(Released, plan.system.parameters).version
    system = msgspec.structs.replace(plan.system, parameters={"stale_reads": version == "1.0"})
    return TOY.make(msgspec.structs.replace(plan, system=system))


RELEASED = replace(
    TOY,
    name="released",
    make=make,
    parameters=Released,
    profiles={"safe": Profile(promise="registers are linearizable (https://example.org/manual)")},
    search={},
    gaps=("Members are not changed.",),
)


def finding(name: str, command: tuple[str, ...] = _CUT, **changes: object) -> PublishedFinding:
    usual = PublishedFinding(
        name=name,
        title="Reads of a node that is cut off are old",
        source="https://example.org/issues/7",
        system="released",
        releases=("1.0",),
        mended="1.1",
        newest="1.1",
        command=command,
        seen=(Seen(checker="linearizability", kinds=("not-linearizable",)),),
        published="9 of 10 registers",
        promised="A read sees the latest write (https://example.org/manual).",
        log="it can't go on",
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


FINDINGS = (
    finding("stale-reads"),
    # The newest release has it as well: its profile of the fault is not what matters.
    finding("there-yet", mended="", seen=(Seen(checker="stats", count="ok-count", least=10),)),
    finding("never", seen=(Seen(kinds=("lost",)),)),
)
