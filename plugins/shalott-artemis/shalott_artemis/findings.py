"""What Artemis' manual admits, what its source does beside it, and how it is found again."""

from __future__ import annotations

import shalott.api as api
from shalott_artemis.losses import MANUAL

SOURCE = "https://github.com/apache/artemis/blob/2.40.0/artemis-server/src/main/java/org/apache"
REPLICATION = f"{SOURCE}/activemq/artemis/core/replication/ReplicationManager.java#L609-L625"
RELEASE = "2.40.0"
LOST = api.Seen(checker="total-queue", kinds=("lost",))
ALONE = (
    "not published but in the source: when the connection to its backup ends, a primary completes"
    " at once what waits for it, and asks afterwards whether it may go on"
)
LOG = "AMQ222092|Quorum UNAVAILABLE|AMQ221066"


def finding(
    name: str,
    title: str,
    source: str,
    published: str,
    seen: tuple[api.Seen, ...],
    *command: str,
    promised: str = "",
    log: str = "",
) -> api.PublishedFinding:
    return api.PublishedFinding(
        name=f"artemis-{name}",
        title=title,
        source=source,
        system="artemis",
        releases=(RELEASE,),
        newest=RELEASE,
        command=(*command, "--nemesis", "none", "--queues", "1", "--rate", "60"),
        seen=seen,
        published=published,
        promised=promised,
        log=log,
        minutes=2.5,
    )


FINDINGS = (
    finding(
        "split-brain",
        "A primary and a backup without a quorum are both active once they are parted",
        f"{MANUAL}/network-isolation.html",
        "documented: both serve the same messages, and clients are divided between them",
        (api.Seen(checker="mastership", kinds=("dual-master-effective",)), LOST),
        *("--profile", "unsafe", "--nodes", "2", "--time-limit", "40"),
        *("--sequence", "partition-one n2; wait 20s; end; wait 5s"),
    ),
    finding(
        "paused",
        "A primary that stood still acknowledges what waits, after its lock is another's",
        REPLICATION,
        ALONE,
        (LOST,),
        *("--profile", "safe", "--time-limit", "30", "--op-timeout", "30s"),
        *("--concurrency", "24", "--enqueue-fraction", "0.9"),
        *("--sequence", "wait 6s; pause n1; wait 14s; end; wait 6s"),
        promised="the lock ensures that either the primary or the backup is active at any time"
        f" ({MANUAL}/network-isolation.html#pluggable-lock-manager)",
        log=LOG,
    ),
    finding(
        "vote",
        "A primary that votes on whether it goes on acknowledges alone meanwhile",
        REPLICATION,
        ALONE,
        (LOST,),
        *("--profile", "safe", "--guard", "voting", "--layout", "voting", "--nodes", "4"),
        *("--time-limit", "30", "--sequence", "wait 4s; partition-one n1; wait 16s; end; wait 6s"),
        promised="a vote determines whether to go on or to shut down, to avoid a split brain"
        f" ({MANUAL}/network-isolation.html#quorum-voting)",
        log=LOG,
    ),
)
