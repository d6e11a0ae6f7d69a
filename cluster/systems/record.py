"""SystemRecord: all that the harness knows of a system under test, as one record.

A system is what runs on the nodes: a broker, a database, anything with clients. A plug-in offers
its record at the entry-point group ``shalott.systems``, or in a module given to ``--load``. What a
node runs, how it is configured, when it is ready and what it believes is the ``System`` object that
``make`` returns (cluster/base.py); the record says what must be known before there is one.

As in Jepsen (jepsen.db), what only some systems can be asked is a small protocol of its own that
the ``System`` object implements or not (cluster/base.py: DeclaresQueues, FailsOver, ...): who lacks
one is refused before boot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shalott.cluster.base import System
from shalott.harness.core.doors import Door, door_of_records
from shalott.harness.core.parameters import NoParameters
from shalott.harness.core.plan import Plan

Services = Mapping[str, tuple[str, ...]]  # node -> what it hosts


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile sets unless the user says otherwise.

    ``upstream`` is what the original does by default; ``safe`` is what its manual recommends
    against loss. ``parameters`` are fields of the system's struct, ``policy`` are named settings of
    the system itself, over which ``--policy KEY=VALUE`` is laid.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecord:
    """One system.

    ``speaks``: the protocols that its clients may use, by name; a workload fits if it needs no
    others. ``workload``: what runs if the user names none. ``worlds``: the backends where it runs.
    ``check``: raises UsageError for a plan that this system can't have.
    """

    name: str
    summary: str
    make: Callable[[Plan], System]
    speaks: tuple[str, ...]
    workload: str
    profiles: Mapping[str, Profile]
    parameters: type[msgspec.Struct] = NoParameters
    worlds: tuple[str, ...] = ("docker",)
    check: Callable[[Plan], None] = lambda plan: None
    # Which services each node hosts, for (layout, nodes); None: every node hosts the same.
    lay_out: Callable[[str, Sequence[str]], Services] | None = None


SYSTEMS: Door[SystemRecord] = door_of_records("system", "shalott.systems", SystemRecord)
