"""What a queue supervisor starts, and whom it tells of a row: the rules, and which known bugs break
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# They are about what a process that the row doesn't name does before its ring tells it.
BUGS_OF_THE_DISPLACED = tuple(f"KB-RMQ-{number}" for number in ("02", "04", "06", "08", "10", "13"))


@dataclass(frozen=True, slots=True)
class SupervisorRules:
    """One field a rule. All hold by default.

    recovers_current_row: a restarted master takes over the row as it is then, not as it was when
    its start was decided (KB-RMQ-02).
    replaces_pending_only: a mirror may be started beside a process that its master has stopped in
    vain, and beside no other. In the original it may be started beside any process that the row
    doesn't
    name: the master's list of mirrors is all that counts (KB-RMQ-02).
    looks_at_orderly_ends: where a process ended in good order, or a node came into sight, a
    supervisor looks whether the queue needs a process there. In the original a queue's supervisor
    starts again what crashed and nothing else (its child is intrinsic), and mirrors are added when
    a master starts, a virtual host comes up, a policy changes or a member of the ring dies
    (KB-RMQ-37).
    restart_adds_mirrors: a broker that starts again in a running node adds its mirrors. Mirrors
    were added when a *node* came up: a virtual host that was started again in a running node
    recovered the masters that belong to it, and nothing else (KB-RMQ-20).
    tells_displaced: a process that the row no longer names is told to look. In RabbitMQ it is
    not told: it learns that from its ring, or never (BUGS_OF_THE_DISPLACED).
    """

    recovers_current_row: bool = True
    replaces_pending_only: bool = True
    looks_at_orderly_ends: bool = True
    restart_adds_mirrors: bool = True
    tells_displaced: bool = True


def supervisor_rules(has_bug: Callable[[str], bool]) -> SupervisorRules:
    """The rules of a node with these bugs switched on."""
    return SupervisorRules(
        recovers_current_row=not has_bug("KB-RMQ-02"),
        replaces_pending_only=not has_bug("KB-RMQ-02"),
        looks_at_orderly_ends=not has_bug("KB-RMQ-37"),
        restart_adds_mirrors=not has_bug("KB-RMQ-20"),
        tells_displaced=not any(has_bug(bug) for bug in BUGS_OF_THE_DISPLACED),
    )


# -- operators -------------------------------------------------------------------------------------

# What an operator's acts do to queues: the rules, and which known bugs break them.


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """One field a rule. All hold by default.

    deletes_without_master: a queue whose master can't be reached is deleted nevertheless
    (rmq#1501). Before 3.7.5 only a master could delete its queue (KB-RMQ-21).
    maintenance_leaves_masters: a node that is taken out of service does not move its masters
    (KB-RMQ-25, see maintenance.py).
    """

    deletes_without_master: bool = True
    maintenance_leaves_masters: bool = True


def operator_rules(has_bug: Callable[[str], bool]) -> OperatorRules:
    """The rules of a node with these bugs switched on."""
    return OperatorRules(
        deletes_without_master=not has_bug("KB-RMQ-21"),
        maintenance_leaves_masters=not has_bug("KB-RMQ-25"),
    )


# -- queue processes -------------------------------------------------------------------------------

# How a queue process deals with deaths, other masters and its own end: the rules, and which known
# bugs break them.
#
# ``process_rules`` reads the switches (broker/rabbit/known_bugs) once, when a process is made; the
# steps ask the rules only.


@dataclass(frozen=True, slots=True)
class ProcessRules:
    """One field a rule. All hold by default.

    survives_missing_supervisors: a peer whose queue supervisor is not up yet is no mirror, and the
    master goes on; it crashed because {ok, Sup} did not match
    {error,{queue_supervisor_not_found,[]}} (KB-RMQ-01).
    obeys_promote_on_failure: a mirror is promoted only as ha-promote-on-failure allows. Before
    3.7.5 there was no such policy, and the mirror that was left ruled (KB-RMQ-22).
    checks_place_on_newcomers: a master reads the row before it answers a new mirror (KB-RMQ-08).
    checks_place_on_policy: a change of policy is an occasion to read it too (KB-RMQ-02,
    KB-RMQ-08).
    expects_other_masters: a death may show that another master is recorded. The coordinator's
    gm_deaths had a clause for its own master and one for a queue that is gone; another master
    fitted neither, and the queue process ended with it (KB-RMQ-08).
    yields_as_loss: a master that finds another one recorded ends as "shutdown". It ended with
    "normal", the reason of a queue that was deleted (KB-RMQ-11).
    stops_own_mirrors_only: a master that ends leaves the mirrors of another master alone. In
    rabbit_mirror_queue_master:terminate it stops every mirror in the row, also another master's, if
    none of them is synchronised (KB-RMQ-02).
    ends_mark_own_row_only: a master that ends leaves the row of another master alone. In
    rabbit_amqqueue_process:terminate one that ends in good order writes "stopped" into any row that
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


# -- masters ---------------------------------------------------------------------------------------

# What a master tells its mirrors and waits for: the rules, and which known bugs break them.


@dataclass(frozen=True, slots=True)
class MasterRules:
    """One field a rule. All hold by default.

    confirms_wait_for_ring: the confirm of a message that a mirror gets by the ring only waits until
    the ring has carried it. The original does not wait (OUR-02).
    tells_requeued: the mirrors hear what a promoted master requeues.
    promote_backing_queue_state requeued in its own backing queue only (KB-RMQ-29, rmq#7579).
    """

    confirms_wait_for_ring: bool = True
    tells_requeued: bool = True


def master_rules(has_bug: Callable[[str], bool]) -> MasterRules:
    """The rules of a node with these bugs switched on."""
    return MasterRules(
        confirms_wait_for_ring=not has_bug("OUR-02"), tells_requeued=not has_bug("KB-RMQ-29")
    )
