"""Bugs of the catalogue that no plan decides here, and what each waits for."""

from __future__ import annotations

from shalott.harness.originals.row import Row, releases

_NO_RELEASE = "no release that can be had has it: mended in {}"
_RACE = "a window of milliseconds that no fault opens from outside: {}"


def _mended(row_id: str, where: str, read_in: str, title: str = "") -> Row:
    return Row(
        id=row_id, title=title, free=releases(), read_in=read_in,
        waits_for=_NO_RELEASE.format(where),
    )  # fmt: skip


def _race(row_id: str, window: str, mended: str, title: str = "") -> Row:
    return Row(
        id=row_id, title=title, has=releases("5.0.0", "5.1.0"), free=releases("5.1.1"),
        read_in=mended, waits_for=_RACE.format(window),
    )  # fmt: skip


UNDECIDED_ROWS: tuple[Row, ...] = (
    _mended("KB-RKT-02", "4.5.2", "b39031a7d1 (#1083)"),
    Row(
        id="KB-RKT-05", title="A slave copies older offsets of groups from a master that is back",
        links=("https://github.com/apache/rocketmq/issues/1094",), has=releases(),
        read_in="broker/slave/SlaveSynchronize.java",
        waits_for="consumers that read from a slave for minutes while its master is away",
    ),
    Row(
        id="KB-RKT-07", title="A slave's log and what its master sends it do not meet, for ever",
        links=("https://github.com/apache/rocketmq/issues/323",),
        waits_for="a report that says which release and what had happened: this one has neither",
    ),
    Row(
        id="KB-RKT-08", title="After a switch by hand the queues' numbers have gaps",
        links=("https://github.com/apache/rocketmq/issues/8539",), has=releases("5.0.0"),
        read_in="store/DefaultMessageStore.java, topicQueueTable",
        waits_for="a switch without a restart (BrokerContainer): the operator here restarts the "
        "broker, as the manual of masters and slaves has it, and a start counts the queues anew",
    ),
    _race("KB-RKT-10", "between the controller's word on a larger set and its arrival",
          "2cc899fc35 (#5798)"),
    Row(
        id="KB-RKT-11", has=releases("5.0.0", "5.1.1"), free=releases("5.1.4"),
        read_in="017ad11047 (#7220)",
        waits_for=_RACE.format("two changes of the set at a time"),
    ),
    _race("KB-RKT-13", "between a slave's handshake and its first report", "5dc2e20efc (#6729)"),
    _race("KB-RKT-14", "a part of a message at the end of a slave that is elected at that moment",
          "709537595c (#6666)"),
    _race("KB-RKT-16", "a reader at a master that is back and deposed at once; releases that have "
          "it have KB-RKT-12 as well, which shows the same first", "b410557e87 (#6618)"),
    Row(
        id="KB-RKT-19", has=releases("5.0.0", "5.1.0"), free=releases("5.1.1"),
        read_in="63a014b810 (#6352)",
        waits_for="a line of a log, or an answer, that tells a master's own set with its epoch: "
        "there is none",
    ),
    Row(
        id="KB-RKT-24", has=releases("5.0.0", "5.0.0"), free=releases("5.1.0"),
        read_in="aa02160074 (#5667)",
        waits_for="a handshake that arrives in two packets: it needs 120 epochs, or a fault that "
        "splits packets",
    ),
    _race("KB-RKT-25", "another thread that changes the state between truncation and report",
          "7b23042eb2 (#6307)"),
    Row(
        id="KB-RKT-27", has=releases("5.0.0", "5.1.0"), free=releases("5.1.1"),
        read_in="1e2a301266 (#6383)",
        waits_for="a failed election whose candidates do not register again: brokers of 5.1.0 do "
        "so every 5 s when the controller names no master, which elects",
    ),
    Row(
        id="KB-RKT-30", has=releases(last="5.2.0"), free=releases("5.3.0"),
        read_in="broker/failover/EscapeBridge.java; 5eb0a8ce0f (#7923)",
        waits_for="slaves that act as master (enableSlaveActingMaster), and a second broker group "
        "to which they pass messages on",
    ),
    Row(
        id="KB-RKT-31", has=releases("5.0.0", "5.0.0"), free=releases("5.1.0"),
        read_in="1e7c861c1e (#5930)",
        waits_for="a plan that says which controller leads: a broker must lose one that does not",
    ),
    *(
        Row(
            id=row_id, title=title, links=(f"https://github.com/apache/rocketmq/issues/{number}",),
            has=releases("5.0.0"), waits_for="nothing that clients or operators can see shows it",
        )
        for row_id, title, number in (
            ("KB-RKT-33", "A connection that ends takes a newer one's slave out of the set", 9897),
            ("KB-RKT-34", "Each lost connection leaves a thread behind", 6226),
        )
    ),
    Row(
        id="KB-RKT-35", has=releases("5.0.0"), read_in="broker/offset/ConsumerOffsetManager.java",
        waits_for="a slave whose copy of the groups' offsets is ahead of its log: both come over "
        "one link",
    ),
    Row(
        id="KB-RKT-37", title="Brokers of 5.1.2 do not start in Controller mode",
        links=("https://github.com/apache/rocketmq/issues/6926",),
        waits_for="release 5.1.2, which can't be had whole",
    ),
    Row(
        id="KB-RKT-38", title="Without its name service a broker forgets its controllers",
        links=("https://github.com/apache/rocketmq/issues/6873",),
        has=releases("5.0.0", "5.2.0"), free=releases("5.3.0"), read_in="bdc7c0ab6c (#8180)",
        waits_for="controllers that are found by name (fetchControllerAddrByDnsLookup), and a "
        "fault of DNS",
    ),
    _mended("KB-RKT-39", "5.0.0", "c489a70baa (#4735)"),
    Row(
        id="KB-RKT-40", title="A slave that is ahead of what was confirmed is promoted as it is",
        links=("https://github.com/apache/rocketmq/issues/5209",), has=releases("5.0.0"),
        waits_for="nothing: upstream calls it a choice, and it loses no acknowledged message",
    ),
    Row(
        id="KB-RKT-E", has=releases("5.0.0"),
        read_in="controller/elect/impl/DefaultElectPolicy.java: a difference of longs, cast to int",
        waits_for="logs that differ by more than 2 GiB",
    ),
    Row(
        id="KB-DL-01", has=releases(), read_in="dledger/DLedgerEntryPusher.java, QuorumAckChecker; "
        "mended in 0.4.0, which no release has in it",
        waits_for="Raft's figure 8, which takes several elections in a certain order with an entry "
        "on a minority: a search's to find",
    ),
    _mended("KB-DL-02", "DLedger 0.2.1", "142314f (#53)"),
    _mended("KB-DL-03", "DLedger 0.2.1", "e3e52b3, f2b9220 (#25, #37)"),
    _mended("KB-DL-04", "DLedger 0.2.1", "90e60c5 (#50)"),
    _mended("KB-DL-05", "DLedger 0.2.4", "bbaaec6 (#106)",
            "A preferred leader that is behind asks for votes for ever"),
    Row(
        id="KB-DL-06", title="A follower that needs expired entries never synchronises",
        links=("https://github.com/openmessaging/dledger/issues/87",), has=releases(),
        waits_for="a ledger whose files expire, which takes hours, or a full disk",
    ),
    _mended("KB-DL-07", "DLedger 0.2.5 and 0.2.6", "31738a4, eb1b2e2 (#137, #141)",
            "Entries that are pushed in batches are lost"),
    _mended("KB-DL-08", "DLedger 0.2.6", "76a4feb (#143)", "A follower can't be synchronised"),
    *(
        Row(
            id=row_id, has=releases(last="5.3.3"), free=releases("5.4.0"),
            read_in="dledger/DLedgerLeaderElector.java, sendHeartbeats: a leader whose heartbeats "
            "reach a majority does not heed a larger term; mended in 0.3.2 (4ee007d, #247)",
            waits_for="a member whose term has grown alone: one that is cut off keeps it (5.3.3: "
            "candidate for 22 s in term 1, and back at once), so it takes split votes",
        )
        for row_id in ("KB-DL-09", "KB-DL-14")
    ),
    Row(
        id="KB-DL-10", title="A follower's check of overdue pushes stops with the network",
        links=("https://github.com/openmessaging/dledger/issues/251",),
        has=releases(last="5.3.3"), free=releases("5.4.0"), read_in="888883a (#251)",
        waits_for="a follower that is pushed entries out of their order, and then nothing",
    ),
    Row(
        id="KB-DL-11", has=releases("5.0.0", "5.1.0"), free=releases("5.1.1"),
        read_in="d837224 (#279), DLedger 0.3.1.1",
        waits_for=_RACE.format("a commit that overtakes the push before it"),
    ),
    Row(
        id="KB-DL-12", title="A thread of a follower's server is stuck",
        links=("https://github.com/openmessaging/dledger/issues/282",),
        has=releases("5.0.0", "5.1.0"), free=releases("5.1.1"), read_in="1388186 (#283)",
        waits_for=_RACE.format("two calls of one thread pool that wait for each other"),
    ),
    Row(
        id="KB-DL-13", has=releases(), read_in="c89b06d (#316), in no release",
        waits_for="a truncation below the commit index, which needs KB-DL-01 first",
    ),
    Row(
        id="KB-DL-17", title="After a restart of all members messages are not found by their keys",
        links=("https://github.com/apache/rocketmq/issues/7477",), has=releases(),
        waits_for="a workload that asks by keys (QUERY_MESSAGE)",
    ),
    _mended("KB-DL-18", "4.9.0", "952772fa1b (#2518)",
            "A new leader delivers delayed messages again"),
    Row(
        id="KB-DL-19", title="Messages of light queues are lost",
        links=("https://github.com/apache/rocketmq/issues/8762",),
        waits_for="light queues (LMQ), which the client does not have",
    ),
    Row(
        id="KB-DL-20", title="At a high rate a new leader waits long for its queues",
        links=("https://github.com/apache/rocketmq/issues/3747",), has=releases(),
        waits_for="thousands of messages a second, which two shared cores do not make",
    ),
    Row(
        id="KB-DL-21", has=releases(), read_in="dledger/MemberState.java, persistTerm: no sync",
        waits_for="a power loss within milliseconds of a vote",
    ),
)  # fmt: skip
