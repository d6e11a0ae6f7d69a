"""RabbitMQ's bugs, and the rules by which our mirrored queues are stricter than theirs, undone.

Read from RabbitMQ's sources, issues and pull requests, which each entry links. An id KB-RMQ-n is a
bug of theirs; OUR-n is a rule of ours.
"""

from __future__ import annotations

from shalott.broker.base.known_bug import KnownBug

_RABBITMQ = "https://github.com/rabbitmq/rabbitmq-server"


def _issue(number: int) -> str:
    return f"{_RABBITMQ}/issues/{number}"


def _pull(number: int) -> str:
    return f"{_RABBITMQ}/pull/{number}"


RABBITMQ_BUGS: tuple[KnownBug, ...] = (
    KnownBug(
        id="KB-RMQ-01",
        switch="add_mirror_crashes_master",
        title="A master crashes when the node that shall mirror it has no queue supervisor yet",
        links=(_issue(2009), _pull(2273)),
        confidence="A",
        trigger="all nodes stop and start together; a master starts while a peer has loaded its "
        "tables and not yet started its queue supervisor (startup_delay_ms widens the gap)",
        symptom="the master crashes and restarts, again and again; after five crashes in ten "
        "seconds the queue is left alone",
        fix="the failed request is caught and logged; the peer adds its mirror itself when it is "
        "up (3.7.25, 3.8.4)",
    ),
    KnownBug(
        id="KB-RMQ-02",
        switch="recover_writes_stale_row",
        title="A restarted master stores the row that it read before another was promoted",
        links=(_issue(2009),),
        confidence="A",
        trigger="a master crashes while its queue starts (KB-RMQ-01 does it); a mirror is promoted "
        "between the restart's look at the row and its write",
        symptom="two masters; the rightful one finds another recorded, ends, and stops all mirrors "
        "on its way out: the queue is left without mirrors, or empty",
        fix="ours: compare-and-set on the row's version within the transaction; RabbitMQ 3.8.35 "
        "still writes blindly",
    ),
    KnownBug(
        id="KB-RMQ-04",
        switch="gm_stop_without_drain",
        title="A ring member stops before what it published has been round",
        links=(_issue(224),),
        confidence="A",
        trigger="a queue is deleted while its ring is busy, or a node dies during the deletion",
        symptom="mirrors never hear of the deletion and live on, or wait for a member that is "
        "gone; the queue's name is not free",
        fix="a member defers its stop until all that is in flight has settled",
    ),
    KnownBug(
        id="KB-RMQ-06",
        switch="gm_ignore_lost_membership",
        title="A ring member that others recorded as dead carries on",
        links=(_issue(545), _issue(714), _pull(748)),
        confidence="B",
        trigger="a partial partition: one member records its neighbour dead, which lives on and "
        "still sees the others",
        symptom="a master finds itself out of its group; broadcasts and synchronisation wait for "
        "ever, or members crash on each other's numbers",
        fix="who finds itself missing in the group stops and joins anew",
    ),
    KnownBug(
        id="KB-RMQ-07",
        switch="find_common_strict",
        title="A ring member crashes on a hole in its neighbour's messages",
        links=(_issue(749),),
        confidence="A",
        trigger="acknowledgements reach members in another order after a change of neighbours: "
        "a catchup lacks a message in the midst of those that both should hold",
        symptom="the member's process crashes (case_clause in find_common)",
        fix="holes are skipped on either side",
    ),
    KnownBug(
        id="KB-RMQ-08",
        switch="coordinator_no_master_changed_clause",
        title="A master does not notice that another one is recorded",
        links=(_issue(914), _pull(918)),
        confidence="A",
        trigger="a node restarts or a partition heals, and a master's ring brings it a mirror's "
        "request or a death while the row names another master",
        symptom="the coordinator crashes on it, and the queue process with it, again and again",
        fix="a clause for it: the coordinator stops",
    ),
    KnownBug(
        id="KB-RMQ-10",
        switch="gm_group_row_missing_crash",
        title="A ring member crashes when its group's row is gone",
        links=(_issue(950),),
        confidence="A",
        trigger="one side of a partial partition deletes the group while a member joins or buries "
        "a neighbour",
        symptom="the member's process crashes (badmatch {error,not_found} in record_dead_member)",
        fix="a missing group is a lost membership: stop and join anew",
    ),
    KnownBug(
        id="KB-RMQ-11",
        switch="stop_reason_normal_deletes_queue",
        title="A master that yields to another ends as if its queue were deleted",
        links=(_issue(953), _pull(918)),
        confidence="B",
        trigger="two masters meet after a partition; the one that is not recorded ends with the "
        "reason 'normal'",
        symptom="the queue's record is deleted: every message is lost",
        fix="it ends with 'shutdown', and records are deleted only of queues whose processes are "
        "dead",
    ),
    KnownBug(
        id="KB-RMQ-13",
        switch="no_pending_shutdown_list",
        title="A mirror that outlives its master's stop blocks the next one on its node",
        links=(_issue(802), _issue(863)),
        confidence="A",
        trigger="a master stops its mirrors; one does not die within slave_wait_timeout (paused or "
        "cut off), and its node is to mirror the queue again",
        symptom="two processes of the queue on one node; the new mirror is refused or the old one "
        "goes on in a queue that has forgotten it",
        fix="those that did not die are listed in the row and stopped before a new mirror starts",
    ),
    KnownBug(
        id="KB-RMQ-20",
        switch="vhost_up_no_mirrors",
        title="A node whose queues are started again adds no mirrors",
        links=(_issue(1314),),
        confidence="A",
        trigger="a virtual host restarts in a node that goes on; here the whole broker in it: the "
        "node pauses and resumes (pause_minority), or loses an autoheal",
        symptom="the queue has no mirror on that node until its policy changes or another member "
        "dies; what is left of it dies with the last copy",
        fix="mirrors are added when a virtual host is up, not when a node is",
    ),
    KnownBug(
        id="KB-RMQ-21",
        switch="undeletable_dead_queue",
        title="A queue whose master is gone can't be deleted, so neither declared anew",
        links=(_issue(1501), _pull(1549)),
        confidence="A",
        trigger="the master's node is gone and no mirror may be promoted (when-synced); a client "
        "deletes the queue",
        symptom="the deletion hangs until the node is back (here: for 30 s, and then fails)",
        fix="a queue without a living process is deleted by force (3.7.5)",
    ),
    KnownBug(
        id="KB-RMQ-22",
        switch="promote_unsynced",
        title="An unsynchronised mirror is promoted when its master crashes",
        links=(_pull(1578),),
        confidence="A",
        trigger="a mirror joins empty, and the master dies before it is synchronised",
        symptom="acknowledged messages are lost, although the policy says when-synced",
        fix="ha-promote-on-failure=when-synced (3.7.5); the switch makes the broker ignorant of it",
    ),
    KnownBug(
        id="KB-RMQ-24",
        switch="confirm_on_dead_queue",
        title="A publish is confirmed although no queue process has it",
        links=(_pull(1893),),
        confidence="A",
        trigger="every process of a queue ends, or is out of reach of the channel, before it "
        "confirms: a client on a node that has no replica and is cut off, a queue that is down",
        symptom="acknowledged messages are lost, all of them while it lasts",
        fix="a negative acknowledgement unless one process confirmed or all ended because the "
        "queue was deleted (3.8.0)",
    ),
    KnownBug(
        id="KB-RMQ-25",
        switch="migrate_clears_mirrors_first",
        title="A node that is taken out of service moves its masters to nodes that hold nothing",
        links=(_issue(2749), _pull(2751), _pull(2755)),
        confidence="A",
        trigger="ha-mode exactly with fewer replicas than nodes; an orderly stop of the master's "
        "node, which moves the master to any node and drops all other replicas at once",
        symptom="no message is left, also with when-synced: the dropped replicas are wiped",
        fix="mirrors are added synchronously, then masters are not moved at all (3.8.12)",
    ),
    KnownBug(
        id="KB-RMQ-29",
        switch="requeue_not_broadcast_on_promotion",
        title="A promoted mirror requeues without telling the other mirrors",
        links=(_issue(7579), _pull(7731)),
        confidence="A",
        trigger="a master dies with deliveries unacknowledged, and two mirrors survive",
        symptom="the other mirrors differ from their master: what is ready there waits for an "
        "acknowledgement here; what is then dropped (expiry, a length limit, a consumer that does "
        "not acknowledge) breaks their count, and they crash",
        fix="the requeue is broadcast",
    ),
    KnownBug(
        id="KB-RMQ-31",
        switch="gm_blank_member_crash",
        title="A newcomer crashes when its ring changes before its first catchup",
        links=(_pull(10356),),
        confidence="B",
        trigger="two mirrors join at once, or a member dies while one joins: news of a newer view "
        "overtakes the newcomer's catchup",
        symptom="the member's process crashes (badmap in find_member_or_blank), again and again",
        fix="an unknown member has a blank state",
    ),
    KnownBug(
        id="KB-RMQ-34",
        switch="stale_master_after_pause",
        title="A master that was suspended serves on although another was promoted",
        links=("https://www.rabbitmq.com/docs/partitions",),
        confidence="A",
        trigger="the master's process is suspended for longer than the net tick, then goes on. "
        "There is no code to switch: it is a limit of the design (loss window L11), ours as well",
        symptom="under ignore and autoheal the old master goes on beside the new one; what it "
        "takes, first of all what reached its socket while it slept, is lost if its side yields",
        fix="none; the partition modes do not cover suspended nodes. Under pause_minority the "
        "node stops when it wakes, and holds its acknowledgements until it has",
    ),
    KnownBug(
        id="KB-RMQ-37",
        switch="orderly_ends_unseen",
        title="A queue process that ended in good order is not missed",
        links=(_issue(1607), _issue(2009)),
        confidence="A",
        trigger="a master ends as 'shutdown' while its node runs on: it finds another one recorded "
        "(KB-RMQ-02 makes two masters), or its ring's group is gone",
        symptom="a queue without mirrors, or a row that names a process which is no more: the "
        "queue exists and takes no message, until an operator deletes it, touches its policy "
        "or restarts a node",
        fix="ours: a supervisor that sees a process of a queue end, or a node come, looks at the "
        "row again; RabbitMQ's rabbit_amqqueue_sup starts again what crashed, to the last version",
    ),
    KnownBug(
        id="KB-RMQ-38",
        switch="ends_mark_any_row",
        title="A master that ends marks the row of another one as stopped or crashed",
        links=(_issue(2009), _issue(1607)),
        confidence="A",
        trigger="two masters (KB-RMQ-01 and 02 make them), of which the one that is not recorded "
        "ends; or a master that crashes after a mirror was promoted in its place",
        symptom="the management page calls a queue stopped whose master serves; or the row names "
        "the master that crashed, for good if its supervisor has given up: the promoted one serves "
        "no client",
        fix="ours: who ends writes its state into a row that names it, and no other; RabbitMQ "
        "3.13's terminate writes blindly",
        shown_by="tests/broker/rabbit/mirrored/test_log_lines.py",
    ),
)

# Rules by which this broker is stricter than RabbitMQ, undone.
OWN_RULES: tuple[KnownBug, ...] = (
    KnownBug(
        id="OUR-01",
        switch="unsynchronised_mirror_vouches",
        title="The confirm of an unsynchronised mirror counts in place of a master that died",
        links=(),
        confidence="own",
        trigger="publishing while a mirror is not synchronised; the master dies before it "
        "confirms, the mirror had confirmed; when-synced throws that mirror away",
        symptom="acknowledged messages are lost",
        fix="such a confirm counts only beside one of the master or a synchronised mirror",
    ),
    KnownBug(
        id="OUR-02",
        switch="ring_only_mirror_not_awaited",
        title="A master does not wait for a mirror that the publishing channel did not know",
        links=(),
        confidence="own",
        trigger="a mirror joins; a channel whose tables do not show it yet publishes; the master "
        "dies after its confirm and before the ring brought the message round",
        symptom="an acknowledged message is lost",
        fix="Publish.sent_to: the master holds its confirm until the ring has delivered to all",
    ),
    KnownBug(
        id="OUR-03",
        switch="confirm_before_fsync",
        title="A publish is confirmed when it is in the page cache",
        links=(),
        confidence="own",
        trigger="every replica's node loses power within the second that the sync is late",
        symptom="acknowledged persistent messages are lost; never by kill -9",
        fix="a publish is confirmed when the journal has been synced",
    ),
    KnownBug(
        id="OUR-04",
        switch="blind_metadata_writes",
        title="Metadata is written without a look at what is there",
        links=(),
        confidence="own",
        trigger="two nodes change one row at once: a master crashes or a mirror joins while "
        "another is promoted, or a node's tables lag",
        symptom="one change is undone by the other's stale row: a mirror or master is forgotten, "
        "two masters rule, a ring loses members",
        fix="compare-and-set on the version of every row that was read or written",
    ),
    KnownBug(
        id="OUR-05",
        switch="gm_hears_former_neighbours",
        title="A ring member takes what its neighbour sent in an earlier time as its neighbour",
        links=(),
        confidence="own",
        trigger="a member joins between two others and dies while the left one's words are still "
        "under way: the left one is the neighbour again",
        symptom="numbers go back: the member's process crashes",
        fix="a floor: what was sent at or below the version when another was the neighbour is old",
    ),
    KnownBug(
        id="OUR-06",
        switch="gm_blind_newcomer_goes_on",
        title="A newcomer goes on without the last words of the neighbour that added it",
        links=(),
        confidence="own",
        trigger="a mirror joins and the member that added it dies before its catchup arrives",
        symptom="the newcomer stands in for the dead one without knowing what it published: "
        "members crash on the numbers, or the ring never settles",
        fix="it gives up its membership and joins anew",
    ),
    KnownBug(
        id="OUR-07",
        switch="pause_guard_asks_late",
        title="A master that is about to pause confirms what only its lost mirrors were missing",
        links=("https://www.rabbitmq.com/docs/partitions",),
        confidence="own",
        trigger="pause_minority; the master is cut off from the majority while clients that reach "
        "it publish: channels hear of the lost mirrors before the node has decided to pause",
        symptom="about one acknowledged message for each publisher is lost (RabbitMQ 3.10 too)",
        fix="the guard asks whether a majority is linked, not whether the node has decided",
    ),
    KnownBug(
        id="OUR-08",
        switch="tables_without_quorum",
        title="Under pause_minority too each group of nodes writes metadata on its own",
        links=("https://www.rabbitmq.com/docs/partitions",),
        confidence="own",
        trigger="pause_minority; a flap, a one-way cut, or a partition in which each node sees a "
        "majority and no two see the same one: members drop each other at different times",
        symptom="two groups that both have, or believe to have, a majority: two masters confirm, "
        "the nodes run apart although every link is up, and nothing brings them together; a node "
        "that resumes recovers a queue from a copy that is older than another's",
        fix="writes need a majority, one leader decides who is a member, and a node that is not "
        "joins anew (metadata/raft_server.py)",
    ),
    KnownBug(
        id="OUR-09",
        switch="confirm_forgets_unreachable",
        title="A confirm does not wait for a queue process that is out of reach",
        links=("https://www.rabbitmq.com/docs/partitions",),
        confidence="own",
        trigger="pause_minority; the link between a channel and a mirror breaks while the mirror "
        "lives on, and it is promoted",
        symptom="a message that it never got was acknowledged, and is lost",
        fix="the confirm waits until the queue's row, which a majority wrote, is without it",
    ),
    KnownBug(
        id="OUR-10",
        switch="gm_hears_broken_left",
        title="A ring member goes on hearing a left neighbour whose link broke",
        links=(),
        confidence="own",
        trigger="a link breaks and is back within the tenth of a second that a neighbour waits "
        "before it buries the other one; what was under way by the old link is lost",
        symptom="messages follow by the new link to which others are missing: mirrors beyond hold "
        "less than their master, and count otherwise",
        fix="after its link broke a left neighbour is heard no more, and a right one told no more, "
        "as it is to be buried",
    ),
)
