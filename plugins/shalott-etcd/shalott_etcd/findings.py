"""What is published of etcd: the track record of its robustness tests, as far as a release that
people run can show it (https://github.com/etcd-io/etcd/blob/main/tests/robustness/README.md), and
what Jepsen found of its locks.

Those tests compile failpoints in; here the moments that they stop at are met by faults and load.
Left out are authorization (#14571) and two panics (#18055, #20271) that nobody can ask for.
"""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen

ISSUES = "https://github.com/etcd-io/etcd/issues/"
NEWEST = "3.7.3"
GUARANTEES = "https://etcd.io/docs/latest/learning/api_guarantees"
ATOMIC = f"strictly serializable and durable: {GUARANTEES}/#kv-apis"
ORDERED = f"ordered, unique, reliable, resumable and bookmarkable: {GUARANTEES}/#watch-apis"
RELEASES = ("3.5.2", "3.5.0", "3.5.1")
WATCHES = ("--workload", "etcd-watches")
DISAGREE = (Seen(checker="watches", kinds=("disagree", "revision-back")),)
BROKEN = (Seen(checker="list-append", kinds=(
    "incompatible-order", "G-single-realtime", "G-nonadjacent-realtime", "G1c-realtime",
    "G2-item-realtime", "G0-realtime", "G0-process", "G-single-item", "G-single", "G2-item",
    "lost-update", "G1a", "G1c",
)),)  # fmt: skip
BEHIND = (
    "wait 4s; partition-one n3; wait 3s; kill n1+n2; end kill; wait 4s; end partition-one; wait 8s;"
    " partition-one n3; wait 3s; kill n1+n2; end kill; wait 4s; end partition-one; wait 5s; end"
)  # whoever leads then has forgotten what n3 lacks, and sends it a snapshot
SNAPSHOT = (
    *(*WATCHES, "--watchers", "6", "--snapshot-count", "100"),
    *("--rate", "300", "--concurrency", "30"),
    *("--nemesis", "none", "--sequence", BEHIND, "--time-limit", "45"),
)

FINDINGS = (
    PublishedFinding(
        name="etcd-13766",
        title="revisions and data of members differ after a crash under load",
        source=f"{ISSUES}13766",
        system="etcd",
        releases=RELEASES,
        mended="3.5.3",
        newest=NEWEST,
        command=(
            *(*WATCHES, "--watchers", "3", "--rate", "600", "--concurrency", "40"),
            *("--compact-share", "0.02", "--compaction-batch", "20", "--time-limit", "60"),
            *("--nemesis", "none", "--sequence", "30x kill one; end kill; wait 1s"),
        ),
        seen=DISAGREE,
        published="users, March 2022, after kill -9 and when memory ran out; etcd's own tests say"
        " that their load is not high enough",
        promised=ATOMIC,
        log=r"inconsistent|corrupt",
        minutes=2,
    ),
    PublishedFinding(
        name="etcd-14370",
        title="a single member acknowledges a write before it is in its log",
        source=f"{ISSUES}14370",
        system="etcd",
        releases=RELEASES,
        mended="3.5.5",
        newest=NEWEST,
        command=(
            *("--nodes", "1", "--workload", "list-append", "--rate", "400", "--time-limit", "30"),
            *("--nemesis", "lose-unsynced,disk-slow"),
            *("--nemesis-interval", "3", "--nemesis-duration", "1"),
        ),
        seen=BROKEN,
        published="a user, August 2022; etcd's tests: after some tries, with a failpoint before the"
        " log is written",
        promised=ATOMIC,
        minutes=1,
    ),
    PublishedFinding(
        name="etcd-14685",
        title="a crash during a defragmentation applies entries twice",
        source="https://github.com/etcd-io/etcd/pull/14685",
        system="etcd",
        releases=RELEASES,
        mended="3.5.6",
        newest=NEWEST,
        command=(
            *(*WATCHES, "--watchers", "3", "--rate", "600", "--concurrency", "40"),
            *("--nemesis", "defragment,kill", "--targets", "one", "--time-limit", "40"),
            *("--nemesis-interval", "3", "--nemesis-duration", "2"),
        ),
        seen=DISAGREE,
        published="etcd's tests, November 2022, with a failpoint before the file is copied: one"
        " write has another revision on each member",
        promised=ATOMIC,
        log=r"defragmenting|opened backend db",
        minutes=1,
    ),
    PublishedFinding(
        name="etcd-15220",
        title="progress that is asked for is told before the events that it covers",
        source=f"{ISSUES}15220",
        system="etcd",
        releases=RELEASES,
        mended="3.5.8",
        newest=NEWEST,
        command=(
            *WATCHES,
            "--rate",
            "100",
            "--nemesis",
            "none",
            "--time-limit",
            "15",
            "--concurrency",
            "12",
        ),
        seen=(Seen(checker="watches", kinds=("progress-ahead",)),),
        published="a user, January 2023; at once, where a new watch begins in the past",
        promised=ORDERED,
        minutes=0.5,
    ),
    PublishedFinding(
        name="etcd-15271",
        title="a watch goes back in time when its member gets a snapshot",
        source=f"{ISSUES}15271",
        system="etcd",
        releases=RELEASES,
        mended="3.5.8",
        newest=NEWEST,
        command=(*SNAPSHOT, "--reopen-share", "0.005"),
        seen=(Seen(checker="watches", kinds=("went-back",)),),
        published="etcd's tests, February 2023: after a partition, events from 700 revisions before"
        " came again",
        promised=ORDERED,
        log="applied snapshot",
        minutes=1.5,
    ),
    PublishedFinding(
        name="etcd-17529",
        title="a watch that is not read for long loses events when they are compacted",
        source=f"{ISSUES}17529",
        system="etcd",
        releases=RELEASES,
        mended="3.5.13",
        newest=NEWEST,
        command=(
            *(*WATCHES, "--rate", "400", "--concurrency", "20", "--watchers", "3"),
            *(
                "--body-of",
                "30000",
                "--watch-every",
                "20s",
                "--watch-for",
                "4s",
                "--reopen-share",
                "0",
            ),
            *("--compact-every", "2s", "--nemesis", "none", "--time-limit", "60"),
        ),
        seen=(Seen(checker="watches", kinds=("missed",)),),
        published="users, March 2024: 182,000 revisions left out, with 800 watches on one stream",
        promised=ORDERED,
        log="watcher has skipped events",
        minutes=1.5,
    ),
    PublishedFinding(
        name="etcd-17780",
        title="revisions decrease after a crash during a compaction",
        source=f"{ISSUES}17780",
        system="etcd",
        releases=RELEASES,
        mended="3.5.14",
        newest=NEWEST,
        command=(
            *("--nodes", "1", "--heartbeat", "20ms", "--election-timeout", "120ms", *WATCHES),
            *("--watchers", "2", "--watched-keys", "3", "--delete-share", "0.6", "--rate", "4"),
            *("--concurrency", "6", "--compact-every", "250ms", "--compaction-batch", "1"),
            *("--nemesis", "kill", "--nemesis-interval", "1500ms", "--nemesis-duration", "200ms"),
            *("--time-limit", "60"),
        ),
        seen=DISAGREE,
        published="etcd's tests, April 2024, with a failpoint before the end of a compaction is"
        " written: the newest revision was a delete, and is gone",
        promised=ATOMIC,
        log=r"finished scheduled compaction|compaction encountered error|kvstore restored",
        minutes=2,
    ),
    PublishedFinding(
        name="etcd-20221",
        title="a watch on a revision ahead tells what is before it when its member gets a snapshot",
        source=f"{ISSUES}20221",
        system="etcd",
        releases=RELEASES,
        mended="3.5.22",
        newest=NEWEST,
        command=(*SNAPSHOT, "--watch-ahead", "400", "--watch-back", "0", "--reopen-share", "0.3"),
        seen=(Seen(checker="watches", kinds=("before-start",)),),
        published="etcd's tests and Antithesis, June 2025, with clients of several members",
        promised=ORDERED,
        log="applied snapshot",
        minutes=1.5,
    ),
    PublishedFinding(
        name="etcd-20418",
        title="reads are stale after a pause of a process",
        source=f"{ISSUES}20418",
        system="etcd",
        releases=RELEASES,
        mended="3.5.28",
        newest=NEWEST,
        command=(
            *("--workload", "register", "--rate", "200", "--concurrency", "30"),
            *("--nemesis", "pause", "--targets", "master", "--election-timeout", "500ms"),
            *("--nemesis-interval", "3", "--nemesis-duration", "1500ms", "--time-limit", "60"),
        ),
        seen=(Seen(checker="linearizability", kinds=("not-linearizable",)),),
        published="Antithesis, July 2025; mended in March 2026 after hours of simulation",
        promised=ATOMIC,
        log="waiting for ReadIndex response took too long",
        minutes=2,
    ),
    PublishedFinding(
        name="etcd-locks",
        title="two clients hold one lock: a lease ends while its holder can't know",
        source="https://jepsen.io/analyses/etcd-3.4.3",
        system="etcd",
        releases=(NEWEST, *RELEASES),
        newest=NEWEST,
        command=(
            *("--workload", "lock", "--lease-trust", "answers", "--lease-ttl-s", "2"),
            *("--queues", "20", "--hold", "10s", "--rate", "60", "--concurrency", "42"),
            *("--nemesis", "partition-one", "--nemesis-interval", "15"),
            *("--nemesis-duration", "12", "--time-limit", "45"),
        ),
        seen=(Seen(checker="linearizability", kinds=("two-holders",)),),
        published="Jepsen, January 2020: locks do not and can't exclude each other without fencing",
        minutes=1.5,
    ),
    PublishedFinding(
        name="etcd-unsynced",
        title="without fsync a loss of power takes acknowledged writes",
        source="https://etcd.io/docs/latest/op-guide/configuration",
        system="etcd",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *("--profile", "unsafe", *WATCHES, "--rate", "400", "--concurrency", "20"),
            *("--watchers", "3", "--nemesis", "power-all"),
            *("--nemesis-interval", "10", "--nemesis-duration", "3", "--time-limit", "45"),
        ),
        seen=DISAGREE,
        published="documented of --unsafe-no-fsync: unsafe, will cause data loss",
        minutes=1.5,
    ),
)
