"""What a mirrored queue writes into its node's log, in RabbitMQ's words, for who greps for them.

Word for word those of 3.7.15, the version whose log the document on the startup race shows
(rabbit/rabbit_mirror_queue_misc.erl, rabbit_mirror_queue_sync.erl, rabbit_prequeue.erl,
supervisor2.erl as lager prints it). Every function gives one line; the events that checkers read
are apart from these (broker/base/events.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shalott.broker.rabbit.metadata.records import PolicyRow, QueueRow
from shalott.broker.rabbit.processes.messages import Pid, atom, pid_anywhere, pid_here, term

# How a match that failed is told when the peer's queue supervisor was not there (KB-RMQ-01).
NO_SUPERVISOR = (
    "no match of right hand value {error,{queue_supervisor_not_found,[]}}"
    " in rabbit_amqqueue_sup_sup:start_queue_process/3 line 45"
)

# The rest of the original's #q{}, of a process that has served no client yet.
_SLOTS = "{" + ",".join(["[]"] * 16) + "}"
_UNSET = (
    "none,false,undefined,undefined,{state,{queue,[],[],0},{active,0,1.0}},undefined,undefined,"
    "undefined,undefined,{state,fine,20000,undefined},{0,nil},undefined,undefined,undefined,"
    f"{{state,{{dict,0,16,16,8,80,48,{_SLOTS},{{{_SLOTS}}}}},delegate}},undefined,undefined,"
    "undefined,undefined,'drop-head',0,0"
)


def queue_of(key: str) -> str:
    """A queue's key (records.queue_key) as errors and logs call it."""
    name, _, vhost = key.rpartition("@")
    return f"queue '{name}' in vhost '{vhost}'"


def mirrored(key: str, text: str) -> str:
    return f"Mirrored {queue_of(key)}: {text}"


def synchronising(key: str, text: str) -> str:
    return mirrored(key, f"Synchronising: {text}")


def adding_mirror(key: str, node: str, mirror: Pid | None, here: str) -> str:
    """``mirror``: None if this node doesn't see it in the row yet."""
    pid = "" if mirror is None else f": {pid_here(mirror, here)}"
    return mirrored(key, f"Adding mirror on node {atom(node)}{pid}")


def saw_deaths(key: str, me: Pid, dead: Sequence[Pid], *, is_master: bool) -> str:
    who = "Master" if is_master else "Slave"
    pids = "".join(f" {pid_anywhere(pid)}" for pid in dead)
    return mirrored(key, f"{who} {pid_anywhere(me)} saw deaths of mirrors{pids}")


def promoting(key: str, me: Pid) -> str:
    return mirrored(key, f"Promoting slave {pid_anywhere(me)} to master")


def stopping_all(key: str) -> str:
    text = "Stopping all nodes on master shutdown since no synchronised slave is available"
    return mirrored(key, text)


def missing_down(key: str, pid: Pid, here: str) -> str:
    text = f"Missing 'DOWN' message from {pid_here(pid, here)} in node {atom(pid.node)}"
    return mirrored(key, text)


def stale_slave(key: str, pid: Pid, here: str) -> str:
    return mirrored(key, f"Detected stale HA slave, stopping it: {pid_here(pid, here)}")


def stale_master(key: str, pid: Pid, here: str) -> str:
    return mirrored(key, f"Detected stale HA master: {pid_here(pid, here)}")


def no_supervisor(key: str, node: str, why: str) -> str:
    text = f"Unable to start queue mirror on node '{node}'. Target queue supervisor is not running"
    return mirrored(key, f"{text}: {why}")


def restarting(key: str) -> str:
    return f"Restarting crashed {queue_of(key)}."


# -- the record ------------------------------------------------------------------------------------


def resource(key: str) -> str:
    name, _, vhost = key.rpartition("@")
    return f"{{resource,{term(vhost)},queue,{term(name)}}}"


def row_written(row: QueueRow, here: str) -> str:
    """The fields of the row that the startup race is about."""
    pid = "none" if row.pid is None else pid_here(row.pid, here)
    # A queue process and its ring member are one process here.
    members = ",".join(f"{{{pid_here(p, here)},{pid_here(p, here)}}}" for p in row.gm_pids)
    mirrors = _pids(row.slave_pids, here)
    return f"{resource(row.key)} pid:{pid}, slave_pids {mirrors}, gm_pids [{members}]"


def stop_all_slaves(key: str, reason: str) -> str:
    return f"{resource(key)} stop all slaves with reason: {reason}"


def server_state(row: QueueRow, policy: PolicyRow | None, here: str) -> str:
    """What gen_server2 prints of a queue process that crashed: its record, then what is unset."""
    return f"** When Server state == {{q,{_record(row, policy, here)},{_UNSET},running}}"


def _record(row: QueueRow, policy: PolicyRow | None, here: str) -> str:
    pid = "none" if row.pid is None else pid_here(row.pid, here)
    fields = (
        resource(row.key),
        term(row.durable),
        term(row.auto_delete),
        "none" if row.exclusive_owner is None else pid_here(row.exclusive_owner, here),
        term(list(row.arguments.items())),
        pid,
        _pids(row.slave_pids, here),
        _pids(row.sync_slave_pids, here),
        "[" + ",".join(map(atom, row.recoverable_slaves)) + "]",
        "undefined" if policy is None else _policy(policy),
        "undefined",  # the operator's policy
        "[" + ",".join(f"{{{pid_here(p, here)},{pid_here(p, here)}}}" for p in row.gm_pids) + "]",
        "[]" if row.gm_pids else "undefined",  # decorators: known once the row was looked up
        row.state,
        str(row.policy_version),
        _pids(row.slave_pids_pending_shutdown, here),
        term(row.vhost),
        '#{user => <<"guest">>}',
    )
    return "{amqqueue," + ",".join(fields) + "}"


def _policy(row: PolicyRow) -> str:
    parts = (
        f"{{vhost,{term(row.vhost)}}}",
        f"{{name,{term(row.name)}}}",
        f"{{pattern,{term(row.pattern)}}}",
        f"{{'apply-to',{term(row.apply_to)}}}",
        f"{{definition,{term(row.definition)}}}",
        f"{{priority,{row.priority}}}",
    )
    return "[" + ",".join(parts) + "]"


def _pids(pids: Sequence[Pid], here: str) -> str:
    return "[" + ",".join(pid_here(pid, here) for pid in pids) + "]"


# -- the supervisor of a queue ---------------------------------------------------------------------


def child(row: QueueRow, mode: str, marker: str, here: str) -> str:
    """What a queue's supervisor starts: depth-limited, as lager prints it."""
    pid = "none" if row.pid is None else pid_here(row.pid, here)
    head = "{vhost,...}" if row.pid is not None and row.pid.node == here else "{...}"
    policy = "undefined" if row.policy is None else f"[{head},...]"
    return (
        f"rabbit_prequeue:start_link({{amqqueue,{resource(row.key)},{term(row.durable)},"
        f"{term(row.auto_delete)},none,[],{pid},[],[],[],{policy},...}}, {mode}, {marker})"
    )


def started_child(supervisor: str, child: str, pid: Pid, here: str) -> str:
    who = f"{{{supervisor},rabbit_amqqueue_sup}}"
    return f"Supervisor {who} started {child} at pid {pid_here(pid, here)}"


def child_ended(supervisor: str, child: str, pid: Pid, reason: str, here: str) -> str:
    who = f"{{{supervisor},rabbit_amqqueue_sup}}"
    return (
        f"Supervisor {who} had child rabbit_amqqueue started with {child} at"
        f" {pid_here(pid, here)} exit with reason {in_words(reason)} in context child_terminated"
    )


def gave_up(supervisor: str, child: str, pid: Pid, here: str) -> str:
    """More restarts in its time than its intensity allows."""
    who = f"{{{supervisor},rabbit_amqqueue_sup}}"
    return (
        f"Supervisor {who} had child rabbit_amqqueue started with {child} at"
        f" {pid_here(pid, here)} exit with reason reached_max_restart_intensity in context shutdown"
    )


def in_words(reason: str) -> str:
    """A reason of ours as the original's supervisors told it, where it has one."""
    if reason.startswith("crash: NoProcess: Name(") and "name='queues'" in reason:
        return NO_SUPERVISOR
    return reason
