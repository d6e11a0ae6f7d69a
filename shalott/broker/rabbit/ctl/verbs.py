"""Every verb, as a row of a table: what it takes, what it is for, and what does it. ``run`` is the
whole command.

Names, words and order are those of rabbitmqctl 3.10. Those of its verbs that are not here, and
why, stand in docs/how-to/operate.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Literal

from shalott.broker.base.http_client import Asked
from shalott.broker.rabbit.ctl import calls, cluster, node, queues, users
from shalott.broker.rabbit.ctl.listing import (
    ALL_USER_LIMITS,
    ALL_VHOST_LIMITS,
    LISTINGS,
    Listing,
    gm_ring,
    run_listing,
)
from shalott.broker.rabbit.ctl.session import (
    BOLD,
    EXIT_USAGE,
    FORMATTERS,
    GENERAL,
    PLAIN,
    CtlError,
    Invalid,
    Session,
    Typed,
    parse,
    refused,
)

Run = Callable[[Session], Awaitable[None]]
When = Literal["running", "stopped", "node", "always"]
MANY = 1000  # words


@dataclass(frozen=True, slots=True)
class Verb:
    """``words``: what stands behind the verb, for the usage; ``least`` and ``most`` of them that
    are no options. ``when``: whether it is asked of a node whose broker runs, or is stopped, of any
    node, or of none. ``check`` raises Invalid before anything is asked."""

    group: str
    words: str
    least: int
    most: int
    text: str
    run: Run
    when: When = "running"
    check: Callable[[Session], None] | None = None
    columns: tuple[str, ...] = ()


def _listing(listing: Listing, group: str, words: str, text: str) -> Verb:
    run = partial(run_listing, listing=listing)
    if listing.fixed:
        count = 1 if listing.takes_word else 0
        return Verb(group, words, count, count, text, run)
    return Verb(group, words, 0, MANY, text, run, columns=tuple(listing.columns))


async def _vhost_limits(session: Session) -> None:
    if session.typed.has("--global"):
        await run_listing(session, ALL_VHOST_LIMITS)
    else:
        await users.show_vhost_limits(session)


async def _user_limits(session: Session) -> None:
    if session.typed.has("--global"):
        await run_listing(session, ALL_USER_LIMITS)
    else:
        await users.show_user_limits(session)


async def _help(session: Session) -> None:
    arguments = session.typed.arguments
    if session.typed.has("--list-commands"):
        session.say(list(VERBS))
    elif not arguments:
        session.say(overview())
    elif arguments[0] in VERBS:
        session.say(about(arguments[0]))
    else:
        raise CtlError(EXIT_USAGE, f"Error:\n\nCommand '{arguments[0]}' not found.")


async def _autocomplete(session: Session) -> None:
    prefix = session.typed.arguments[0] if session.typed.arguments else ""
    session.say([name for name in VERBS if name.startswith(prefix)])


async def _rotate_logs(session: Session) -> None:
    raise CtlError(69, "Error:\nThis command does not rotate logs anymore [deprecated]")


VHOST = "[--vhost <vhost>]"
HEADERS = "[--no-table-headers]"
TIMEOUT = "[--timeout <timeout>]"
SET_POLICY = (
    f"{VHOST} [--priority <priority>] [--apply-to <apply-to>] <name> <pattern> <definition>"
)
COLUMNS = f"{HEADERS} [<column> ...] {TIMEOUT}"
HELP, NODES, CLUSTER = "Help", "Nodes", "Cluster"
REPLICATION, USERS, ACCESS = "Replication", "Users", "Access Control"
MONITORING = "Monitoring, observability and health checks"
PARAMETERS, POLICIES, VHOSTS = "Parameters", "Policies", "Virtual hosts"
CONFIGURATION, DEFINITIONS = "Configuration and Environment", "Definitions"
OPERATIONS, QUEUES, DEPRECATED = "Operations", "Queues", "Deprecated"


USER_VERBS: Mapping[str, Verb] = {
    "add_user": Verb(
        USERS, "<username> <password>", 1, 2, "Adds a user, who may do nothing yet",
        users.add_user,
        check=lambda session: calls.check_name(session.typed.arguments[0]),
    ),
    "authenticate_user": Verb(
        USERS, "<username> <password>", 2, 2, "Tries a user's password",
        users.authenticate_user,
    ),
    "change_password": Verb(
        USERS, "<username> <password>", 1, 2, "Gives a user another password",
        users.change_password,
    ),
    "clear_password": Verb(
        USERS, "<username>", 1, 1, "Keeps a user from logging in with a password",
        calls.USERS["clear_password"].run,
    ),
    "clear_user_limits": Verb(
        USERS, "<username> <limit_type> | all", 2, 2, "Takes a user's limits away",
        users.clear_user_limits,
    ),
    "delete_user": Verb(
        USERS, "<username>", 1, 1, "Deletes a user, and closes its connections",
        calls.USERS["delete_user"].run,
    ),
    "list_user_limits": Verb(
        USERS, "[--user <username>] [--global]", 0, 0, "Lists limits of users", _user_limits
    ),
    "list_users": _listing(
        LISTINGS["list_users"], USERS, f"{HEADERS} {TIMEOUT}", "Lists users and their tags"
    ),
    "set_user_limits": Verb(
        USERS, "<username> <definition>", 2, 2,
        "Limits a user's connections and channels",
        calls.USERS["set_user_limits"].run,
    ),
    "set_user_tags": Verb(
        USERS, "<username> <tag> [...]", 1, MANY, "Says what a user may manage",
        calls.USERS["set_user_tags"].run,
    ),
    "clear_permissions": Verb(
        ACCESS, f"{VHOST} <username>", 1, 1, "Takes a user's permissions in a vhost away",
        calls.USERS["clear_permissions"].run,
    ),
    "clear_topic_permissions": Verb(
        ACCESS, f"{VHOST} <username> [<exchange>]", 1, 2,
        "Takes a user's topic permissions away", users.clear_topic_permissions,
    ),
    "list_permissions": _listing(
        LISTINGS["list_permissions"], ACCESS, f"{VHOST} {HEADERS} {TIMEOUT}",
        "Lists permissions in a vhost",
    ),
    "list_topic_permissions": _listing(
        LISTINGS["list_topic_permissions"], ACCESS, f"{VHOST} {HEADERS} {TIMEOUT}",
        "Lists topic permissions in a vhost",
    ),
    "list_user_permissions": _listing(
        LISTINGS["list_user_permissions"], ACCESS, f"{HEADERS} <username> {TIMEOUT}",
        "Lists a user's permissions",
    ),
    "list_user_topic_permissions": _listing(
        LISTINGS["list_user_topic_permissions"], ACCESS,
        f"{HEADERS} <username> {TIMEOUT}", "Lists a user's topic permissions",
    ),
    "list_vhosts": _listing(LISTINGS["list_vhosts"], ACCESS, COLUMNS, "Lists vhosts"),
    "set_permissions": Verb(
        ACCESS, f"{VHOST} <username> <conf> <write> <read>", 4, 4,
        "Says what a user may do in a vhost", calls.USERS["set_permissions"].run,
    ),
    "set_topic_permissions": Verb(
        ACCESS, f"{VHOST} <username> <exchange> <write> <read>", 4, 4,
        "Says which routing keys of an exchange a user may use",
        calls.USERS["set_topic_permissions"].run,
    ),
}  # fmt: skip


NODE_VERBS: Mapping[str, Verb] = {
    "autocomplete": Verb(
        HELP, f"[prefix] {TIMEOUT}", 0, 1, "Lists verbs that begin so", _autocomplete,
        when="always",
    ),
    "help": Verb(
        HELP, "(<command> | [--list-commands])", 0, 1, "Says what a verb takes", _help,
        when="always",
    ),
    "version": Verb(HELP, "", 0, 0, "Says whose verbs these are", node.version, when="always"),
    "await_startup": Verb(
        NODES, TIMEOUT, 0, 0, "Waits until the broker runs", node.await_startup, when="node"
    ),
    "reset": Verb(
        NODES, "", 0, 0, "Takes the node out of its cluster, with nothing left",
        cluster.reset, when="stopped",
    ),
    "rotate_logs": Verb(NODES, "", 0, 0, "Does nothing", _rotate_logs, when="node"),
    "shutdown": Verb(
        NODES, f"[--wait] {TIMEOUT}", 0, 0, "Ends the node's process, and waits for that",
        cluster.shutdown, when="node",
    ),
    "start_app": Verb(NODES, "", 0, 0, "Starts the broker", cluster.start_app, when="node"),
    "stop": Verb(
        NODES, "[--idempotent] [<pidfile>]", 0, 1, "Ends the node's process", cluster.stop,
        when="node",
    ),
    "stop_app": Verb(
        NODES, "", 0, 0, "Stops the broker, and leaves the node", cluster.stop_app,
        when="node",
    ),
    "wait": Verb(
        NODES, f"[<pidfile>] [--pid|-P <pid>] {TIMEOUT}", 0, 1,
        "Waits for the broker of a process", node.wait, when="always",
        check=node.check_wait,
    ),
    "await_online_nodes": Verb(
        CLUSTER, f"<count> {TIMEOUT}", 1, 1, "Waits until so many nodes run",
        cluster.await_online_nodes,
    ),
    "change_cluster_node_type": Verb(
        CLUSTER, "<disc | ram>", 1, 1, "Makes a disc node of one, which it is",
        cluster.change_cluster_node_type, when="stopped", check=cluster.check_node_type,
    ),
    "cluster_status": Verb(
        CLUSTER, TIMEOUT, 0, 0, "Says who belongs to the cluster, and runs",
        cluster.cluster_status,
    ),
    "force_boot": Verb(
        CLUSTER, "", 0, 0, "Has the node start without the others", cluster.force_boot,
        when="stopped",
    ),
    "force_reset": Verb(
        CLUSTER, "", 0, 0, "As reset, without a word to the others", cluster.force_reset,
        when="stopped",
    ),
    "forget_cluster_node": Verb(
        CLUSTER, "[--offline] <existing_cluster_member_node>", 1, 1,
        "Takes a node out of the cluster", cluster.forget_cluster_node,
    ),
    "join_cluster": Verb(
        CLUSTER, "[--disc|--ram] <existing_cluster_member>", 1, 1,
        "Has the node join the cluster of another one", cluster.join_cluster,
        when="stopped",
    ),
    "update_cluster_nodes": Verb(
        CLUSTER, "<seed_node>", 1, 1, "Sees that a member of the cluster is there",
        cluster.update_cluster_nodes, when="stopped",
    ),
}  # fmt: skip


OF_VHOST = f"{VHOST} {COLUMNS}"
MONITORING_VERBS: Mapping[str, Verb] = {
    "cancel_sync_queue": Verb(
        REPLICATION, f"{VHOST} <queue>", 1, 1, "Stops a synchronisation",
        queues.cancel_sync_queue,
    ),
    "sync_queue": Verb(
        REPLICATION, f"{VHOST} <queue>", 1, 1, "Synchronises a queue's mirrors",
        queues.sync_queue,
    ),
    "gm_ring": Verb(
        REPLICATION, f"{VHOST} <queue>", 1, 1,
        "Tells what each member of a queue's ring holds (ours)", gm_ring,
    ),
    "list_bindings": _listing(
        LISTINGS["list_bindings"], MONITORING, OF_VHOST, "Lists bindings of a vhost"
    ),
    "list_channels": _listing(
        LISTINGS["list_channels"], MONITORING, f"{HEADERS} [<column> ...]",
        "Lists channels",
    ),
    "list_connections": _listing(
        LISTINGS["list_connections"], MONITORING, COLUMNS, "Lists connections"
    ),
    "list_consumers": _listing(
        LISTINGS["list_consumers"], MONITORING, OF_VHOST, "Lists consumers of a vhost"
    ),
    "list_exchanges": _listing(
        LISTINGS["list_exchanges"], MONITORING, OF_VHOST, "Lists exchanges of a vhost"
    ),
    "list_queues": _listing(
        LISTINGS["list_queues"], MONITORING,
        f"{VHOST} [--online] [--offline] [--local] {HEADERS} [<column>, ...] {TIMEOUT}",
        "Lists queues of a vhost",
    ),
    "list_unresponsive_queues": _listing(
        LISTINGS["list_unresponsive_queues"], MONITORING,
        f"[--local] [--queue-timeout <milliseconds>] [<column> ...] {HEADERS} {TIMEOUT}",
        "Lists queues that gave no answer in time",
    ),
    "ping": Verb(MONITORING, TIMEOUT, 0, 0, "Sees whether the node answers", node.ping,
                 when="node"),
    "report": Verb(MONITORING, "", 0, 0, "Says all that is to be said", node.report),
    "status": Verb(
        MONITORING, f"[--unit <unit>] {TIMEOUT}", 0, 0, "Says how the node is", node.status
    ),
    "node_health_check": Verb(
        DEPRECATED, TIMEOUT, 0, 0, "Sees whether the broker runs and has room",
        node.node_health_check,
    ),
}  # fmt: skip


LISTED = f"{VHOST} {HEADERS} {TIMEOUT}"
SET_OWN = partial(calls.set_policy, path="policies", what="policy")
SET_OPERATORS = partial(calls.set_policy, path="operator-policies", what="operator policy override")
SETTINGS_VERBS: Mapping[str, Verb] = {
    "clear_global_parameter": Verb(
        PARAMETERS, "<name>", 1, 1, "Clears a parameter of the cluster",
        calls.VHOSTS["clear_global_parameter"].run,
    ),
    "clear_parameter": Verb(
        PARAMETERS, f"{VHOST} <component_name> <name>", 2, 2, "Clears a parameter",
        calls.VHOSTS["clear_parameter"].run,
    ),
    "list_global_parameters": _listing(
        LISTINGS["list_global_parameters"], PARAMETERS, f"{HEADERS} {TIMEOUT}",
        "Lists parameters of the cluster",
    ),
    "list_parameters": _listing(
        LISTINGS["list_parameters"], PARAMETERS, LISTED, "Lists parameters of a vhost"
    ),
    "set_global_parameter": Verb(
        PARAMETERS, "<name> <value>", 2, 2, "Sets a parameter of the cluster",
        calls.VHOSTS["set_global_parameter"].run,
    ),
    "set_parameter": Verb(
        PARAMETERS, f"{VHOST} <component_name> <name> <value>", 3, 3, "Sets a parameter",
        calls.VHOSTS["set_parameter"].run,
    ),
    "clear_operator_policy": Verb(
        POLICIES, f"{VHOST} <name>", 1, 1, "Clears an operator policy",
        calls.VHOSTS["clear_operator_policy"].run,
    ),
    "clear_policy": Verb(
        POLICIES, f"{VHOST} <name>", 1, 1, "Clears a policy", calls.VHOSTS["clear_policy"].run
    ),
    "list_operator_policies": _listing(
        LISTINGS["list_operator_policies"], POLICIES, LISTED, "Lists operator policies"
    ),
    "list_policies": _listing(LISTINGS["list_policies"], POLICIES, LISTED, "Lists policies"),
    "set_operator_policy": Verb(
        POLICIES, SET_POLICY, 3, 3, "Sets a policy that caps others", SET_OPERATORS
    ),
    "set_policy": Verb(POLICIES, SET_POLICY, 3, 4, "Sets a policy", SET_OWN),
    "add_vhost": Verb(
        VHOSTS,
        '<vhost> [--description <description> --tags "<tag1>,<tag2>,<...>"'
        " --default-queue-type <quorum|classic|stream>]",
        1, 1, "Adds a vhost", calls.add_vhost,
    ),
    "clear_vhost_limits": Verb(
        VHOSTS, VHOST, 0, 0, "Takes a vhost's limits away", calls.VHOSTS["clear_vhost_limits"].run
    ),
    "delete_vhost": Verb(
        VHOSTS, "<vhost>", 1, 1, "Deletes a vhost with all that is in it",
        calls.VHOSTS["delete_vhost"].run,
    ),
    "list_vhost_limits": Verb(
        VHOSTS, f"{VHOST} [--global] {HEADERS}", 0, 0, "Lists limits of vhosts", _vhost_limits
    ),
    "restart_vhost": Verb(
        VHOSTS, f"{VHOST} {TIMEOUT}", 0, 0, "Sees that a vhost runs", queues.restart_vhost
    ),
    "set_vhost_limits": Verb(
        VHOSTS, f"{VHOST} <definition>", 1, 1, "Limits a vhost's queues and connections",
        calls.VHOSTS["set_vhost_limits"].run,
    ),
    "set_vhost_tags": Verb(
        VHOSTS, "<vhost> <tag> [...]", 1, MANY, "Gives a vhost tags",
        calls.VHOSTS["set_vhost_tags"].run,
    ),
}  # fmt: skip


LIMIT = "<disk_limit> | mem_relative <fraction>"
FORM = f'<file_path | "-"> [--format <json | erlang>] {TIMEOUT}'
OPERATION_VERBS: Mapping[str, Verb] = {
    "environment": Verb(CONFIGURATION, "", 0, 0, "Says how the node is configured",
                        node.environment),
    "set_cluster_name": Verb(
        CONFIGURATION, "<name>", 1, 1, "Gives the cluster a name",
        calls.VHOSTS["set_cluster_name"].run,
    ),
    "set_disk_free_limit": Verb(
        CONFIGURATION, LIMIT, 1, 2, "Says how much of the disk must be free",
        node.set_disk_free_limit,
    ),
    "set_log_level": Verb(
        CONFIGURATION, "<log_level>", 1, 1, "Says what is logged", node.set_log_level
    ),
    "set_vm_memory_high_watermark": Verb(
        CONFIGURATION, "<fraction> | absolute <value>", 1, 2,
        "Says how much memory queues may take", node.set_watermark, when="node",
    ),
    "export_definitions": Verb(
        DEFINITIONS, FORM, 1, 1, "Writes down what was declared",
        queues.export_definitions, check=queues.check_export,
    ),
    "import_definitions": Verb(
        DEFINITIONS, FORM.replace("erlang>]", "erlang>] [--skip-if-unchanged]"), 1, 1,
        "Declares what was written down", queues.import_definitions,
        check=queues.check_import,
    ),
    "close_all_connections": Verb(
        OPERATIONS,
        f"{VHOST[:-1]} --limit <limit>] [-n <node> --global]"
        " [--per-connection-delay <delay>] <explanation>",
        1, 1, "Closes the connections to a vhost", queues.close_all_connections,
    ),
    "close_all_user_connections": Verb(
        OPERATIONS, "<username> <explanation>", 2, 2, "Closes a user's connections",
        queues.close_all_user_connections,
    ),
    "close_connection": Verb(
        OPERATIONS, "<connection pid> <explanation>", 2, 2, "Closes a connection",
        queues.close_connection,
    ),
    "resume_listeners": Verb(
        OPERATIONS, "", 0, 0, "Takes clients again", node.resume_listeners
    ),
    "suspend_listeners": Verb(
        OPERATIONS, "", 0, 0, "Takes no clients any more", node.suspend_listeners
    ),
    "delete_queue": Verb(
        QUEUES, f"<queue_name> [--if-empty|-e] [--if-unused|-u] {TIMEOUT}", 1, 1,
        "Deletes a queue", queues.delete_queue,
    ),
    "purge_queue": Verb(
        QUEUES, f"<queue> {TIMEOUT}", 1, 1, "Drops a queue's ready messages",
        queues.purge_queue,
    ),
}  # fmt: skip


VERBS: Mapping[str, Verb] = {
    **NODE_VERBS,
    **USER_VERBS,
    **MONITORING_VERBS,
    **SETTINGS_VERBS,
    **OPERATION_VERBS,
}


# -- help ------------------------------------------------------------------------------------------


def _usage(name: str) -> str:
    line = f"rabbitmqctl [--node <node>] [--longnames] [--quiet] {name} {VERBS[name].words}"
    return line.rstrip()


def overview() -> list[str]:
    lines = [
        *("", f"{BOLD}Usage{PLAIN}", ""),
        "rabbitmqctl [--node <node>] [--timeout <timeout>] [--longnames] [--quiet] <command>"
        " [<command options>]",
        *("", "Available commands:"),
    ]
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += ["", f"{BOLD}{group}{PLAIN}:", ""]
        lines += [f"   {n:<29} {v.text}" for n, v in VERBS.items() if v.group == group]
    return [*lines, "", "Use 'rabbitmqctl help <command>' to learn more about a specific command"]


def about(name: str) -> list[str]:
    verb = VERBS[name]
    lines = ["", f"{BOLD}Usage{PLAIN}", "", _usage(name), "", f"{verb.text}.", ""]
    if verb.columns:
        told = f"\tmust be one of {', '.join(sorted(verb.columns))}"
        lines += ["", f"{BOLD}Arguments and Options{PLAIN}", "", "<column>", told, ""]
    return [
        *lines,
        *("", f"{BOLD}General Options{PLAIN}", ""),
        "-?, --help        what a verb takes",
        "-n, --node        the node to ask",
        "-p, --vhost       of verbs about a vhost: which one, / unless it is given",
        "-q, --quiet       only the answer",
        "-s, --silent      only the answer, without a table's head",
        "-t, --timeout     seconds to wait for an answer",
        f"--formatter       {', '.join(FORMATTERS)}",
    ]


# -- the whole command -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """As of a process that has ended."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


def read(words: Sequence[str]) -> Typed:
    """What was typed, if the verb is known and is given what it takes. Raises CtlError."""
    typed = parse(words)
    if typed.has("--version"):
        return dataclasses.replace(typed, verb="version")
    if typed.has("--help") and (typed.verb in VERBS or (not typed.verb and "-?" not in words)):
        named = (typed.verb,) if typed.verb else ()
        return dataclasses.replace(typed, verb="help", arguments=named)
    verb = VERBS.get(typed.verb)
    if verb is None:
        raise CtlError(EXIT_USAGE, _unknown(typed.verb))
    try:
        _judge(typed, verb)
    except Invalid as error:
        raise _refusal(typed, error) from None
    return typed


def _unknown(name: str) -> str:
    if not name:
        return "\n".join(overview())
    near = get_close_matches(name, VERBS, 1, 0.8)
    told = [f"Did you mean '{near[0]}'? ", ""] if near else overview()
    return "\n".join(["", f"Command '{name}' not found. ", *told])


def _judge(typed: Typed, verb: Verb) -> None:
    """Raises Invalid."""
    strange = [
        *typed.strange,
        *(name for name in typed.options if name not in GENERAL and name not in verb.words),
    ]
    formatter = typed.options.get("--formatter", "table")
    if formatter not in FORMATTERS:
        strange.append("--formatter")
    if strange:
        told = "\n".join(f"{name} : {typed.options.get(name, '')}" for name in strange)
        raise Invalid(f"Invalid options for this command:\n{told}")
    if not verb.least <= len(typed.arguments) <= verb.most:
        few = len(typed.arguments) < verb.least
        raise Invalid(f"{'not enough' if few else 'too many'} arguments.")


def _refusal(typed: Typed, error: Invalid) -> CtlError:
    text = str(error)
    if not text.startswith("Error: this command requires"):
        text = f"Error (argument validation): {text}"
    return refused(typed, text, _usage(typed.verb), error.exit_code)


async def run(typed: Typed, asked: Asked, name: str) -> Outcome:
    """Do it at one node, which is called so until it has said its own name."""
    session = Session(asked, name, typed)
    verb = VERBS[typed.verb]
    try:
        if verb.check is not None:
            verb.check(session)
        if verb.when != "always":
            await cluster.require_phase(session, verb.when)
        await verb.run(session)
    except Invalid as error:
        return Outcome(error.exit_code, _text(session.said), _refusal(typed, error).text + "\n")
    except CtlError as error:
        return Outcome(error.exit_code, _text(session.said), error.text + "\n")
    if not session.said and typed.formatter == "json" and verb.when == "running":
        session.say([f'{{"node":"{session.node}","result":"ok"}}'])
    return Outcome(0, _text(session.said))


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
