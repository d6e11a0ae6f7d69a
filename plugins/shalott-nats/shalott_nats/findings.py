"""What is published of NATS JetStream: https://jepsen.io/analyses/nats-2.12.1, and the issues it
names. Jepsen ran five nodes and five copies; so do these, where it matters who is a minority."""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen

ISSUES = "https://github.com/nats-io/nats-server/issues/"
JEPSEN = "https://jepsen.io/analyses/nats-2.12.1"
NEWEST = "2.15.3"
FIVE = ("--nodes", "5", "--replicas", "5")
LOG = ("--workload", "partitions", "--longest", "1", "--send-share", "0.8")
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
        title="a handful of kill -9, and a stream is forgotten for good",
        source=f"{ISSUES}6888",
        system="nats",
        releases=("2.10.20", "2.10.22"),
        mended="2.10.23",
        newest=NEWEST,
        command=(
            *(
                "--profile",
                "safe",
                *FIVE,
                *LOG,
                "--nemesis",
                "kill,kill-all",
                "--targets",
                "majority",
            ),
            *("--nemesis-interval", "5", "--nemesis-duration", "2", "--time-limit", "90"),
            *(
                "--rate",
                "100",
            ),
        ),
        seen=(*LOST, ORPHANED),
        published="three and five nodes, sync_interval always too; it does not come back",
        promised=PROMISED,
        log=r"orphaned stream|metadata leader|NO quorum",
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
            *("--profile", "safe", *FIVE, *LOG, "--nemesis", "corrupt-files,kill"),
            *("--fault", "corrupt-files:files=store/jetstream/shalott/**/*.blk"),
            *("--nemesis-interval", "5", "--nemesis-duration", "2", "--time-limit", "90"),
        ),
        seen=LOST,
        published="679,153 of 1,367,069 acknowledged messages; nodes show different ones",
        promised=PROMISED,
        log=r"checksum|corrupt|bad msg|truncat",
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
            *("--profile", "safe", *FIVE, *LOG, "--nemesis", "truncate-files,kill"),
            *("--fault", "truncate-files:files=store/jetstream/shalott/**/*.blk"),
            *("--nemesis-interval", "5", "--nemesis-duration", "2", "--time-limit", "90"),
        ),
        seen=LOST,
        published="as single bits",
        promised=PROMISED,
        log=r"checksum|corrupt|bad msg|truncat",
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
            *("--profile", "safe", *FIVE, "--nemesis", "corrupt-files,kill,kill-all"),
            *("--fault", "corrupt-files:files=store/jetstream/$SYS/**/snap*,down=true"),
            *("--nemesis-interval", "5", "--nemesis-duration", "2", "--time-limit", "120"),
        ),
        seen=GONE,
        published="the node deletes the stream as an orphan; no quorum afterwards",
        promised=PROMISED,
        log=r"orphaned stream|snapshot|NO quorum",
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
            *("--profile", "default", *FIVE, *LOG, "--time-limit", "60"),
            "--sequence",
            "wait 5s; pause n1+n2; wait 15s; power n3; pause n4+n5; end power; end pause;"
            " wait 15s; end",
        ),
        seen=LOST,
        published="acknowledged messages are shown by some nodes and not by others",
        log=r"did not match|corrupt state file|NO quorum",
        minutes=3,
    ),
)
