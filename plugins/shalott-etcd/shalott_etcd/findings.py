"""What is published of etcd: the track record of its robustness tests, as far as faults reach it
without failpoints (https://github.com/etcd-io/etcd/blob/main/tests/robustness/README.md).

Left out are those that need a request nobody here makes: defragmentation (#14685), progress
notifications (#15220), a watch on a revision that its member has not come to (#20221).
"""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen

ISSUES = "https://github.com/etcd-io/etcd/issues/"
NEWEST = "3.7.3"
ATOMIC = (
    "linearizable and durable: https://etcd.io/docs/latest/learning/api_guarantees (KV, watches)"
)
APPEND = ("--workload", "list-append", "--rate", "400")
WATCH = ("--workload", "partitions", "--longest", "1", "--rate", "400")
BROKEN = (Seen(checker="list-append", kinds=(
    "incompatible-order", "G-single-realtime", "G-nonadjacent-realtime", "G1c-realtime",
    "G2-item-realtime", "G0-realtime", "G-single", "G2-item", "lost-update", "G1a", "G1c",
)),)  # fmt: skip
WATCHED = (
    Seen(checker="kafka", kinds=(
        "lost-write", "unseen", "poll-skip", "nonmonotonic-poll", "int-poll-skip",
        "int-nonmonotonic-poll", "inconsistent-offsets", "duplicate",
    )),
    Seen(checker="final-reads", kinds=("diverged", "lost-on-node", "gap")),
)  # fmt: skip

FINDINGS = (
    PublishedFinding(
        name="etcd-13766",
        title="revisions and data of members differ after a crash under load",
        source=f"{ISSUES}13766",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        mended="3.5.3",
        newest=NEWEST,
        command=(
            *(*APPEND, "--nemesis", "kill", "--targets", "one", "--time-limit", "90"),
            *("--nemesis-interval", "2", "--nemesis-duration", "1"),
        ),
        seen=BROKEN,
        published="found by users in production; etcd's own tests do not reach the load any more",
        promised=ATOMIC,
        log=r"inconsistent|corrupt|consistent.?index",
        minutes=3,
    ),
    PublishedFinding(
        name="etcd-14370",
        title="a single member acknowledges a write before it is in its log",
        source=f"{ISSUES}14370",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        mended="3.5.5",
        newest=NEWEST,
        command=(
            *("--nodes", "1", *APPEND, "--nemesis", "power,kill", "--time-limit", "60"),
            *("--nemesis-interval", "3", "--nemesis-duration", "1"),
        ),
        seen=BROKEN,
        published="with a failpoint before the log is written: in a minute or so",
        promised=ATOMIC,
        minutes=2,
    ),
    PublishedFinding(
        name="etcd-20418",
        title="reads are stale after a pause of a process",
        source=f"{ISSUES}20418",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        newest=NEWEST,
        command=(
            *("--workload", "register", "--nemesis", "pause", "--targets", "one"),
            *("--nemesis-interval", "3", "--nemesis-duration", "2", "--time-limit", "90"),
        ),
        seen=(Seen(checker="linearizability", kinds=("not-linearizable",)),),
        published="found by Antithesis, in July 2025",
        promised=ATOMIC,
        minutes=3,
    ),
    PublishedFinding(
        name="etcd-15271",
        title="a watch goes back in time after a partition",
        source=f"{ISSUES}15271",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        newest=NEWEST,
        command=(
            *(*WATCH, "--snapshot-count", "100", "--nemesis", "partition-one"),
            *("--nemesis-interval", "6", "--nemesis-duration", "4", "--time-limit", "90"),
        ),
        seen=WATCHED,
        published="a member that takes a snapshot behind a partition sends events again",
        promised=ATOMIC,
        minutes=3,
    ),
    PublishedFinding(
        name="etcd-17529",
        title="a watch that starves loses events",
        source=f"{ISSUES}17529",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        newest=NEWEST,
        command=(
            *(*WATCH, "--nemesis", "cpu-starve,pause", "--concurrency", "30"),
            *("--nemesis-interval", "6", "--nemesis-duration", "4", "--time-limit", "90"),
        ),
        seen=WATCHED,
        published="with hundreds of watches on one stream",
        promised=ATOMIC,
        minutes=3,
    ),
    PublishedFinding(
        name="etcd-17780",
        title="revisions decrease after a crash during a compaction",
        source=f"{ISSUES}17780",
        system="etcd",
        releases=("3.5.0", "3.5.1", "3.5.2"),
        newest=NEWEST,
        command=(
            *(*APPEND, "--compact-every", "1s", "--nemesis", "kill,kill-all"),
            *("--nemesis-interval", "2", "--nemesis-duration", "1", "--time-limit", "90"),
        ),
        seen=BROKEN,
        published="with a failpoint inside the compaction",
        promised=ATOMIC,
        minutes=3,
    ),
    PublishedFinding(
        name="etcd-unsynced",
        title="without fsync a loss of power takes acknowledged writes",
        source=f"{ISSUES}14143",
        system="etcd",
        releases=("3.5.2", "3.5.0", "3.5.1"),
        newest=NEWEST,
        command=(
            *("--profile", "unsafe", *APPEND, "--nemesis", "power-all", "--time-limit", "45"),
            *("--nemesis-interval", "10", "--nemesis-duration", "3"),
        ),
        seen=BROKEN,
        published="documented of --unsafe-no-fsync",
        minutes=2,
    ),
)
