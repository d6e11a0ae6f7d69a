"""What is published of Redis, and holds of Valkey too, which began as a copy of it.

Each is documented: replication is asynchronous, and persistence is what one asks for. So the newest
releases have all of them, and what is told here is how much is lost.
"""

from __future__ import annotations

from shalott.api import PublishedFinding, Seen
from shalott_redis.settings import MANUALS

RELEASES = {"redis": ("7.0", "8.0"), "valkey": ("8.1", "9.1")}
MANUAL = MANUALS["redis"]
LOST = (Seen(checker="total-queue", count="lost-count"),)
HALVES = (
    *("--nodes", "5", "--nemesis", "partition-halves", "--nemesis-interval", "5"),
    *("--nemesis-duration", "15", "--time-limit", "25"),
)


def findings(system: str) -> tuple[PublishedFinding, ...]:
    releases = RELEASES[system]

    def finding(
        name: str, title: str, source: str, published: str, *command: str
    ) -> PublishedFinding:
        return PublishedFinding(
            name=f"{system}-{name}",
            title=title,
            source=source,
            system=system,
            releases=releases,
            newest=releases[-1],
            command=("--cluster", "docker", "--rate", "100", *command),
            seen=LOST,
            published=published,
            log=r"\+switch-master|\+failover-end|REPLICAOF|role change|Full resync|keys loaded",
            minutes=1.0,
        )

    return (
        finding(
            "split-brain",
            "a former master goes on acknowledging behind a partition, and is overwritten",
            "https://aphyr.com/posts/283-jepsen-redis",
            "56 % of the acknowledged writes, in a partition of {n1, n2} from {n3, n4, n5}",
            *HALVES,
        ),
        finding(
            "wait",
            "a write that WAIT says has a copy is lost: another replica becomes master",
            "https://redis.io/docs/latest/commands/wait/",
            "WAIT does not make it strongly consistent: a failover may still lose a write",
            *("--copies", "one", *HALVES),
        ),
        finding(
            "failover",
            "a master dies before its last writes have reached a replica",
            f"{MANUAL}/replication/",
            "replication is asynchronous: there is always a window for data loss",
            *("--nemesis", "delay,kill", "--targets", "master", "--nemesis-interval", "6"),
            *("--nemesis-duration", "8", "--time-limit", "30"),
        ),
        finding(
            "empty-master",
            "a master without persistence comes back empty at once, and its replicas copy that",
            f"{MANUAL}/replication/",
            "the data will be wiped from the master and all its replicas",
            *("--profile", "unsafe", "--nemesis", "kill", "--targets", "n1"),
            *("--down-after", "20s", "--nemesis-duration", "1", "--nemesis-interval", "8"),
            *("--time-limit", "20"),
        ),
        finding(
            "snapshots",
            "every node is killed: what came since the last snapshot is gone",
            f"{MANUAL}/persistence/",
            "you should be prepared to lose the latest minutes of data",
            *("--nemesis", "kill-all", "--nemesis-interval", "10", "--time-limit", "20"),
        ),
        finding(
            "everysec",
            "every node loses its power: what was not synced in the last second is gone",
            f"{MANUAL}/persistence/",
            "appendfsync everysec: you may lose 1 second of data",
            *("--aof", "--fsync", "everysec", "--nemesis", "power-all", "--power-loss", "drop"),
            *("--nemesis-interval", "10", "--time-limit", "20"),
        ),
    )


FINDINGS = (*findings("redis"), *findings("valkey"))
