"""How a queue process deals with deaths, other masters and its own end: the rules, and which known
bugs break them.

``process_rules`` reads the switches (broker/rabbit/known_bugs) once, when a process is made; the
steps ask the rules only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessRules:
    """One field a rule. All hold by default.

    survives_missing_supervisors: a peer whose queue supervisor is not up yet is no mirror, and the
    master goes on; it crashed because {ok, Sup} did not match
    {error,{queue_supervisor_not_found,[]}} (KB-RMQ-01).
    obeys_promote_on_failure: a mirror is promoted only as ha-promote-on-failure allows. Before
    3.7.5 there was no such policy, and whoever was left ruled (KB-RMQ-22).
    checks_place_on_newcomers: a master reads the row before it answers a new mirror (KB-RMQ-08).
    checks_place_on_policy: a change of policy is an occasion to read it too (KB-RMQ-02,
    KB-RMQ-08).
    expects_other_masters: a death may show that another master is recorded. The coordinator's
    gm_deaths had a clause for its own master and one for a queue that is gone; another master
    fitted neither, and the queue process ended with it (KB-RMQ-08).
    yields_as_loss: a master that finds another one recorded ends as "shutdown". It ended with
    "normal", the reason of a queue that was deleted (KB-RMQ-11).
    stops_own_mirrors_only: a master that ends leaves the mirrors of another master alone. In
    rabbit_mirror_queue_master:terminate it stops every mirror in the row, whoever's they are, if
    none of them is synchronised (KB-RMQ-02).
    ends_mark_own_row_only: a master that ends leaves the row of another master alone. In
    rabbit_amqqueue_process:terminate one that ends in good order writes "stopped" into whatever row
    it finds, and one that crashed stores the row that it has known since its start, as "crashed":
    the master that was promoted meanwhile is not in it (KB-RMQ-38).
    records_survivors: mirrors that did not end in time when their master stopped them are recorded;
    they were forgotten (KB-RMQ-13).
    """

    survives_missing_supervisors: bool = True
    obeys_promote_on_failure: bool = True
    checks_place_on_newcomers: bool = True
    checks_place_on_policy: bool = True
    expects_other_masters: bool = True
    yields_as_loss: bool = True
    stops_own_mirrors_only: bool = True
    ends_mark_own_row_only: bool = True
    records_survivors: bool = True


def process_rules(has_bug: Callable[[str], bool]) -> ProcessRules:
    """The rules of a node with these bugs switched on."""
    return ProcessRules(
        survives_missing_supervisors=not has_bug("KB-RMQ-01"),
        obeys_promote_on_failure=not has_bug("KB-RMQ-22"),
        checks_place_on_newcomers=not has_bug("KB-RMQ-08"),
        checks_place_on_policy=not (has_bug("KB-RMQ-02") or has_bug("KB-RMQ-08")),
        expects_other_masters=not has_bug("KB-RMQ-08"),
        yields_as_loss=not has_bug("KB-RMQ-11"),
        stops_own_mirrors_only=not has_bug("KB-RMQ-02"),
        ends_mark_own_row_only=not has_bug("KB-RMQ-38"),
        records_survivors=not has_bug("KB-RMQ-13"),
    )
