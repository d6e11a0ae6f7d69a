"""Historical bugs of RocketMQ's replication: HAService, Controller mode, and DLedger.

Read from apache/rocketmq's and openmessaging/dledger's sources, issues and pull requests, which
each entry links. KB-RKT-A and F are findings of our own in RocketMQ's source, and unreported as far
as we know.
"""

from __future__ import annotations

from shalott.broker.base.known_bug import KnownBug

_ROCKETMQ = "https://github.com/apache/rocketmq"
_DLEDGER = "https://github.com/openmessaging/dledger"


def _rocketmq(kind: str, number: int) -> str:
    return f"{_ROCKETMQ}/{kind}/{number}"


def _dledger(kind: str, number: int) -> str:
    return f"{_DLEDGER}/{kind}/{number}"


ROCKETMQ_BUGS: tuple[KnownBug, ...] = (
    KnownBug(
        id="KB-RKT-01",
        switch="ha_trust_slave_offset",
        title="Any eight bytes on the HA port are taken for a slave's acknowledgement",
        links=(_rocketmq("issues", 1155), _rocketmq("issues", 3015), _rocketmq("pull", 3016)),
        confidence="A",
        trigger="something that is no slave, or a slave whose log is longer, connects to the "
        "master's HA port and reports an offset beyond the master's end",
        symptom="every wait for a slave passes at once: SEND_OK for what no slave has, lost with "
        "the master",
        fix="a report beyond the master's end closes the connection (4.9.3; missing again in 5.x)",
        systems=("master-slave",),
    ),
    KnownBug(
        id="KB-RKT-02",
        switch="ha_housekeeping_ignores_writes",
        title="A slave's housekeeping counts messages only, and closes connections that are idle",
        links=(_rocketmq("issues", 1082), _rocketmq("pull", 1083)),
        confidence="A",
        trigger="no message is sent for as long as the housekeeping interval",
        symptom="the HA connection is dropped and made anew for ever; a synchronous master "
        "answers SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT in between",
        fix="both sides send heartbeats, and all that arrives counts",
        systems=("master-slave",),
    ),
    KnownBug(
        id="KB-RKT-04",
        switch="new_slave_last_file_only",
        title="An empty slave gets the newest file only",
        links=(_rocketmq("issues", 3661),),
        confidence="A",
        trigger="an empty slave joins a master whose log has several files",
        symptom="the slave holds the newest file alone: when it is promoted, and the old master's "
        "disk is gone, everything older is lost",
        fix="the transfer begins at the master's first offset, unless the last file alone is "
        "asked for",
        systems=("master-slave",),
    ),
    KnownBug(
        id="KB-RKT-10",
        switch="sss_expand_ack_local_only",
        title="While the SyncStateSet grows, acknowledgements are judged by the set that the "
        "master knows",
        links=(_rocketmq("issues", 5663), _rocketmq("pull", 5798)),
        confidence="A",
        trigger="the controller has added a slave to the set; its answer to the master is lost or "
        "late; the master dies before it hears of it",
        symptom="the master acknowledged alone what the added slave, which is elected, does not "
        "have",
        fix="while a change is under way what counts is everybody in the old set or in the new",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-12",
        switch="confirm_offset_ignores_missing",
        title="A member of the SyncStateSet without a connection does not hold the confirm "
        "offset back",
        links=(_rocketmq("issues", 6662), _rocketmq("pull", 6663)),
        confidence="A",
        trigger="a member of the set is cut off from the master, and still in the set",
        symptom="the confirm offset goes beyond what that member has: consumers read what its "
        "election takes back",
        fix="the confirm offset stays as it is unless every member of the set has a connection",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-13",
        switch="confirm_offset_counts_new_conn",
        title="A connection that has acknowledged nothing yet draws the confirm offset to zero",
        links=(_rocketmq("issues", 6728), _rocketmq("pull", 6729)),
        confidence="A",
        trigger="a slave of the set connects anew",
        symptom="the confirm offset falls to 0, also where it is recorded and where slaves hear of "
        "it: nothing new can be read until the slave has said where its log ends",
        fix="connections without an acknowledgement are left out",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-14",
        switch="truncate_wrong_start",
        title="A new master looks for its torn tail from the wrong place",
        links=(_rocketmq("issues", 6665), _rocketmq("pull", 6666)),
        confidence="A",
        trigger="a slave that received a part of a message, and has not dispatched all of the "
        "rest, becomes master",
        symptom="the log is cut in the middle of a message, or whole messages that were confirmed "
        "are cut away",
        fix="it looks from where dispatch stands, and takes the confirm offset down with the log",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-15",
        switch="cq_offset_from_confirm",
        title="A recovered master numbers messages from the confirmed end of its queues",
        links=(_rocketmq("issues", 7689), _rocketmq("pull", 7690)),
        confidence="A",
        trigger="master and controllers die together and restart; the master has messages beyond "
        "its confirm offset and takes new ones at once",
        symptom="two messages have one offset in a queue: one of them is lost to consumers",
        fix="the next queue offsets count what lies beyond the confirm offset as well",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-16",
        switch="cq_beyond_confirm_on_recover",
        title="Recovery builds consume queues beyond the confirm offset",
        links=(_rocketmq("issues", 6609), _rocketmq("pull", 6618)),
        confidence="A",
        trigger="a broker restarts with messages beyond its confirm offset",
        symptom="consumers read messages that are truncated afterwards",
        fix="recovery dispatches up to the confirm offset",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-18",
        switch="namesrv_last_writer_wins",
        title="A name server believes whichever master registered last",
        links=(_rocketmq("issues", 6316), _rocketmq("pull", 6317)),
        confidence="A",
        trigger="a master that was deposed without knowing it goes on registering",
        symptom="routes lead to the old master from time to time: clients write to it",
        fix="a registration of an older epoch is refused",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-19",
        switch="sss_not_reset_on_master",
        title="A broker becomes master with the SyncStateSet of its former tenure",
        links=(_rocketmq("issues", 6342), _rocketmq("pull", 6352)),
        confidence="A",
        trigger="a broker is master, slave, and master again",
        symptom="acknowledgements are judged by a set that is no more: too many are waited for, "
        "or too few",
        fix="the set is what the controller says at every change of role",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-20",
        switch="reelect_same_master_full_switch",
        title="A master that is elected again goes through the whole change of role under load",
        links=(_rocketmq("issues", 6344), _rocketmq("pull", 6345)),
        confidence="A",
        trigger="an election, asked for or after a missed heartbeat, gives the next epoch to the "
        "master that rules",
        symptom="the table of next queue offsets is read from queues that lag behind: two "
        "messages have one offset",
        fix="it appends the new epoch and goes on",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-23",
        switch="truncate_in_memory_only",
        title="Truncation leaves the bytes beyond it on the disk",
        links=(_rocketmq("issues", 10666),),
        confidence="B",
        trigger="a slave truncates, and crashes before the master's bytes cover what was cut",
        symptom="recovery finds whole messages with good checksums beyond the end, and takes them "
        "back",
        fix="the end is made durable: what lies beyond is gone from the disk before "
        "truncation returns",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-24",
        switch="handshake_partial_read",
        title="A handshake that arrives in two parts is never understood",
        links=(_rocketmq("issues", 5651), _rocketmq("pull", 5667)),
        confidence="A",
        trigger="the list of epochs is longer than what arrives at once",
        symptom="the slave never gets beyond the handshake: it is no member of any set, and a "
        "strict master refuses writes",
        fix="a packet is read when all of it is there",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-26",
        switch="heartbeat_lost_on_controller_switch",
        title="A new leader of the controllers knows no broker's heartbeat",
        links=(_rocketmq("issues", 5009), _rocketmq("issues", 5711), _rocketmq("pull", 5712)),
        confidence="A",
        trigger="the controllers' leader dies, and the master with it or soon after",
        symptom="no controller misses the master: there is no election",
        fix="heartbeats carry all that is needed and go to every controller; a new leader "
        "looks for masters that are not alive",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-27",
        switch="no_inactive_master_rescan",
        title="An election that failed is not repeated",
        links=(_rocketmq("issues", 6382), _rocketmq("pull", 6383)),
        confidence="A",
        trigger="the master dies, and its election fails, or is lost with the controllers' leader "
        "that was to hold it",
        symptom="the group has no master until an operator asks for an election",
        fix="inactive masters are looked for again and again",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-29",
        switch="inverted_predicate",
        title="The test whether the dead broker was the master is the wrong way round",
        links=(_rocketmq("issues", 8380), _rocketmq("issues", 10875)),
        confidence="B",
        trigger="a broker dies",
        symptom="the death of a slave sets off an election, and that of a master none",
        fix="the test as it is meant",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-F",
        switch="sss_drops_who_left",
        title="A slave whose connection ended counts no more, before the controllers agree",
        links=(_rocketmq("pull", 9897),),
        confidence="A",
        trigger="a master's slaves' connections end: they expire, or the master becomes a slave",
        symptom="what waits for the slaves is answered SEND_OK by the master alone, and lost: "
        "another one is elected, or has been",
        fix="until the controllers have agreed everybody in their set counts, and a role that is "
        "over acknowledges nothing (5.3.3 and before)",
        systems=("controller",),
    ),
    KnownBug(
        id="KB-RKT-A",
        switch="epoch_entry_on_heartbeat",
        title="An epoch that began where the one before it did is not recorded, and divergent "
        "bytes survive truncation",
        links=(f"{_ROCKETMQ}/pull/9942",),
        confidence="A",
        trigger="a master's epoch E begins at X; a slave learns it by a heartbeat; the master is "
        "cut off and writes; the slave is elected for E+1 at X, too, and writes",
        symptom="both have their own bytes under <E, X>: the old master finds itself consistent "
        "and keeps what the new one never had",
        fix="the entry of the newer epoch takes the place of an empty one, and epochs come "
        "with bytes only",
        systems=("controller",),
    ),
)

DLEDGER_BUGS: tuple[KnownBug, ...] = (
    KnownBug(
        id="KB-DL-01",
        switch="commit_prior_term",
        title="A leader counts copies of an entry of an older term (Raft's figure 8)",
        links=(_dledger("issues", 4), _dledger("pull", 298), _dledger("pull", 306)),
        confidence="A",
        trigger="an entry of an older term reaches a majority under a new leader, which dies "
        "before an entry of its own does",
        symptom="what was committed, and read, is overwritten by the next leader",
        fix="only entries of the current term are counted; an empty one may be added",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-02",
        switch="ledger_end_term_stale",
        title="A member forgets the term of its last entry, and candidates that are behind look "
        "newer",
        links=(_dledger("issues", 52), _dledger("issues", 53), _rocketmq("issues", 2178)),
        confidence="B",
        trigger="a follower that has appended entries of a newer term, and never led, is asked for "
        "its vote by a former leader that has not",
        symptom="a member that is behind is elected: what was committed is lost",
        fix="the last entry's term goes with every append",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-04",
        switch="no_recompare_when_idle",
        title="A follower that lost its disk is not compared again while there are no writes",
        links=(_dledger("issues", 61), _rocketmq("issues", 1778), _dledger("pull", 50)),
        confidence="B",
        trigger="a follower is wiped and restarted while there are no writes",
        symptom="it stays empty",
        fix="the answer to a commit message tells the leader where the follower stands",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-13",
        switch="committed_not_lowered",
        title="A truncation below the commit index leaves the index beyond the end",
        links=(_dledger("issues", 316), _dledger("pull", 298)),
        confidence="B",
        trigger="a follower truncates entries that an earlier leader had called committed "
        "(KB-DL-01), and is elected before the log is as long again",
        symptom="the leader waits for ever for its end to be what is committed: no master",
        fix="the index is taken down with the log",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-14",
        switch="isolated_follower_never_recovers",
        title="A follower that raised its term alone is turned away for ever",
        links=(_dledger("issues", 325), _dledger("pull", 326), _dledger("pull", 247)),
        confidence="B",
        trigger="a follower is cut off, raises its term round by round, and comes back to a leader "
        "that others follow",
        symptom="it neither follows nor is followed",
        fix="the larger term makes the others vote anew",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-15",
        switch="repeated_push_stuck",
        title="A push that came before its turn stays pending at the follower",
        links=(_dledger("issues", 331), _dledger("pull", 332)),
        confidence="B",
        trigger="a push is lost, in a restart of the follower say, and the next one arrives",
        symptom="every repetition is refused as repeated; the follower's mark never moves",
        fix="what is pending expires",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-16",
        switch="dledger_cq_tail_lost",
        title="After a crash the last messages are missing from the consume queues",
        links=(_rocketmq("issues", 7355), _rocketmq("pull", 7599)),
        confidence="A",
        trigger="a broker of a DLedger group is killed, and restarts",
        symptom="messages that were acknowledged are in the log and in no queue",
        fix="recovery after a crash dispatches again from what is surely on the disk",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-21",
        switch="vote_not_durable",
        title="A vote is given before it is on the disk",
        links=(_DLEDGER,),
        confidence="A",
        trigger="a member votes, loses its power, and votes again in the same term",
        symptom="two leaders in one term, and logs that differ where term and index are the same",
        fix="the vote is synced, and its file's name too, before it is answered",
        systems=("dledger",),
    ),
    KnownBug(
        id="KB-DL-22",
        switch="local_read",
        title="A broker answers reads from what it has, without asking anybody",
        links=(_DLEDGER,),
        confidence="A",
        trigger="a broker is cut off from the majority, or sleeps, be it the leader or not; "
        "clients still reach it",
        symptom="reads that miss what was acknowledged elsewhere, until it notices",
        fix="a read is confirmed by a majority (ReadIndex); followers ask the leader",
        systems=("dledger",),
    ),
)
