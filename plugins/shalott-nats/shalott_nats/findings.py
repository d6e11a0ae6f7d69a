"""What is published of NATS JetStream: https://jepsen.io/analyses/nats-2.12.1, and the issues it
names. Jepsen ran five nodes and five copies; so do these, where it matters who is a minority."""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen

ISSUES = "https://github.com/nats-io/nats-server/issues/"
JEPSEN = "https://jepsen.io/analyses/nats-2.12.1"
NEWEST = "2.15.3"
FIVE = ("--nodes", "5", "--replicas", "5")
LOG = ("--profile", "safe", *FIVE, "--workload", "partitions", "--longest", "1")
ORDER = ("--nemesis", "none", "--sequence")  # nothing else breaks
PROMISED = (
    "an acknowledged message is stored on a majority of a stream's replicas, on disk with"
    " sync_interval always: https://docs.nats.io/nats-concepts/jetstream"
)
ORPHANED = Seen(line=r"Detected orphaned stream")
# Of the log: an acknowledged message that no node shows, or nodes that show different ones.
LOST = (
    Seen(checker="kafka", kinds=("lost-write", "unseen", "inconsistent-offsets")),
    Seen(checker="final-reads", kinds=("diverged", "lost-on-node", "gap")),
)
GONE = (Seen(checker="total-queue", kinds=("lost",)), ORPHANED)


def damaged(fault: str, files: str, amount: int, rounds: int, wait_s: int) -> str:
    """Two of five nodes are damaged while all are down, and start first: then one of them may come
    to lead. The orderly restart before has every group keep a snapshot, which takes a stream that
    is written to for minutes else."""
    return (
        f"{rounds}x wait 10s; restart-all; wait 4s; end; wait 6s; kill n3+n4+n5;"
        f" {fault} n1+n2 files=store/jetstream/{files} down=true amount={amount};"
        f" end {fault}; end kill; wait {wait_s}s"
    )


MESSAGES, META_SNAPSHOTS = "shalott/**/*.blk", "$SYS/_js_/_meta_/**/snap*"
DAMAGE_LOG = r"stored .* messages|new stream leader|checksum|corrupt|bad msg|truncat|outdated"

FINDINGS = (
    PublishedFinding(
        name="nats-lazy-fsync",
        title="by default an acknowledged message may not be on any disk for two minutes",
        source=f"{ISSUES}7564",
        system="nats",
        releases=("2.12.1", "2.10.20", "2.10.22"),
        newest=NEWEST,
        command=(
            *("--profile", "default", "--nemesis", "power-all", "--enqueue-fraction", "0.9"),
            *("--nemesis-interval", "20", "--nemesis-duration", "3", "--time-limit", "30"),
        ),
        seen=GONE,
        published="131,418 of 930,005 acknowledged messages (14 %) after one loss of power",
        log=r"orphaned stream|NO quorum|did not match|corrupt state file",
        minutes=2.5,
    ),
    PublishedFinding(
        name="nats-6888",
        title="a kill -9 of all soon after a stream was made, and it is forgotten for good",
        source=f"{ISSUES}6888",
        system="nats",
        releases=("2.10.20", "2.10.22"),
        mended="2.10.23",
        newest=NEWEST,
        # Without polls, whose consumers would be written behind the stream in the meta group's log:
        # its new leader then sends all others an empty snapshot.
        command=(
            *(*LOG, "--send-share", "1", "--rate", "100", "--time-limit", "30"),
            *(*ORDER, "wait 5s; kill-all; wait 1s; end"),
        ),
        seen=(*LOST, ORPHANED),
        published="three and five nodes, sync_interval always too; it does not come back",
        promised=PROMISED,
        log=r"orphaned stream|metadata leader|NO quorum|stored .* messages",
        minutes=3,
    ),
    PublishedFinding(
        name="nats-7545",
        title="a node that is removed without a quorum, and comes back empty: messages are lost",
        source=f"{ISSUES}7545",
        system="nats",
        releases=("2.12.1",),
        mended="2.12.3",
        newest=NEWEST,
        # Under its old name, as in the report: the manual's warning came of it.
        command=(
            *(*LOG, "--send-share", "0.97", "--rate", "100", "--time-limit", "80"),
            *("--no-fresh-names", *ORDER),
            "wait 5s; kill n2+n3; wait 8s; replace-node n4; pause n1+n5; end kill;"
            " end replace-node; wait 30s; end pause",
        ),
        seen=LOST,
        published="5 of 5,236 acknowledged messages, in the middle; up to all in other runs",
        promised=PROMISED,
        log=r"removed from the cluster|new stream leader|metadata leader|stored .* messages",
        minutes=4,
    ),
    PublishedFinding(
        name="nats-7549",
        title="bits that flip in the message blocks of a minority lose messages of all",
        source=f"{ISSUES}7549",
        system="nats",
        releases=("2.12.1",),
        newest=NEWEST,
        command=(
            *(*LOG, "--send-share", "0.97", "--rate", "200", "--time-limit", "70"),
            *(*ORDER, damaged("corrupt-files", MESSAGES, 2, 2, 6)),
        ),
        seen=LOST,
        published="679,153 of 1,367,069 acknowledged messages; nodes show different ones",
        promised=PROMISED,
        log=DAMAGE_LOG,
        minutes=4,
    ),
    PublishedFinding(
        name="nats-7549-truncated",
        title="the same with the ends of message blocks missing",
        source=f"{ISSUES}7549",
        system="nats",
        releases=("2.12.1",),
        newest=NEWEST,
        command=(
            *(*LOG, "--send-share", "0.97", "--rate", "200", "--time-limit", "70"),
            *(*ORDER, damaged("truncate-files", MESSAGES, 65536, 2, 6)),
        ),
        seen=LOST,
        published="as single bits",
        promised=PROMISED,
        log=DAMAGE_LOG,
        minutes=4,
    ),
    PublishedFinding(
        name="nats-7556",
        title="bits that flip in a minority's snapshots of the meta group delete streams",
        source=f"{ISSUES}7556",
        system="nats",
        releases=("2.12.1",),
        newest=NEWEST,
        command=(
            *(*LOG, "--send-share", "0.8", "--rate", "100", "--time-limit", "80"),
            *(*ORDER, damaged("corrupt-files", META_SNAPSHOTS, 16, 1, 45)),
        ),
        seen=(*LOST, ORPHANED),
        published="the node deletes the stream as an orphan; no quorum afterwards",
        promised=PROMISED,
        log=r"orphaned stream|snapshot|Snapshot|NO quorum|metadata leader",
        minutes=5,
    ),
    PublishedFinding(
        name="nats-7567",
        title="one node's loss of power, and pauses around it: nodes disagree for good",
        source=f"{ISSUES}7567",
        system="nats",
        releases=("2.12.1",),
        newest=NEWEST,
        command=(
            *(*LOG, "--profile", "default", "--send-share", "0.97", "--time-limit", "60", *ORDER),
            # The first two are killed where the report pauses them: who resumes which is plain.
            "wait 5s; kill n1+n2; wait 15s; power n3; pause n4+n5; end power; end kill;"
            " wait 25s; end pause",
        ),
        seen=LOST,
        published="acknowledged messages are shown by some nodes and not by others",
        log=r"did not match|corrupt state file|NO quorum",
        minutes=3,
    ),
)
