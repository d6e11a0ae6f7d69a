"""ConsumerMutant: what a planted defect of consumers' code is, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.world.mutants import Edit

Workload = Literal["consume", "group"]


@dataclass(frozen=True, slots=True)
class ConsumerMutant:
    """``checkers``: any of them must find it, the one that it is about first. ``run``: the run that
    shows it, a key of RUNS. ``in_ci``: whether each submission runs that.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    checkers: tuple[str, ...]
    run: str = ""
    system: str = "mirrored"
    workload: Workload = "consume"
    in_ci: bool = False
