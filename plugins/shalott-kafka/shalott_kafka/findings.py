"""What is published of Kafka, or what its manual admits, and how it is found again."""

from __future__ import annotations

from dataclasses import replace

import shalott.api as api
from shalott_kafka.losses import MANUAL

RELEASES = ("3.9.1", "4.0.0")
NEWEST = "4.4.0"
LOST = (api.Seen(checker="kafka", kinds=("lost-write", "unseen")),)
# Three brokers and a controller, which outlives them; leaders change within a fault.
APART = ("--layout", "apart", "--nodes", "4", "--session-timeout", "3s", "--replica-lag", "5s")
SENDS = ("--workload", "partitions", "--longest", "1", "--no-transactions", "--time-limit", "40")
QUIET = ("--nemesis", "none")


def sequence(*steps: str) -> tuple[str, ...]:
    return (*QUIET, "--sequence", "; ".join(steps))


# A client that asks again in half a second, while its first request waits in the network.
LATE = (
    *("--session-timeout", "3s", "--replica-lag", "5s", "--request-timeout", "500ms"),
    *("--workload", "partitions", "--keys", "2", "--rate", "60", "--time-limit", "45"),
    *sequence(
        *("2x client-cut n1", "wait 1500ms", "end", "wait 3s"),
        *("client-cut n2", "wait 1500ms", "end", "wait 3s"),
        *("client-cut n3", "wait 1500ms", "end", "wait 3s"),
    ),
)
LATE_COMMIT = api.PublishedFinding(
    name="kafka-17754",
    title="A commit that comes late ends another transaction of its producer",
    source="https://issues.apache.org/jira/browse/KAFKA-17754",
    system="kafka",
    releases=RELEASES,
    newest=NEWEST,
    command=LATE,
    seen=(api.Seen(checker="kafka", kinds=("G1a", "lost-write", "unseen", "precommitted-read")),),
    published="Jepsen, Bufstream 0.1.0 (2024): aborted reads, lost writes, torn transactions, in"
    " Kafka too. KIP-890 mends it in 4.0 for clients that speak its protocol; here it is looked for"
    " with one that does not, as librdkafka 2.16 and aiokafka 0.14 do not",
    promised="Either all of a transaction is visible to readers of what is committed, or none:"
    f" {MANUAL}#semantics",
    minutes=3,
)
FINDINGS = (
    api.PublishedFinding(
        name="kafka-acks-1",
        title="With acks=1 a leader that is cut off acknowledges what its successor does not have",
        source=f"{MANUAL}#producerconfigs_acks",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *("--session-timeout", "3s", "--replica-lag", "5s", "--acks", "1", "--no-idempotence"),
            *SENDS,
            *sequence(
                *("partition-one n1", "wait 7s", "end", "wait 5s"),
                *("partition-one n2", "wait 7s", "end", "wait 5s"),
            ),
        ),
        seen=LOST,
        published="documented: the record is lost if the leader fails before others have copied it",
        minutes=2,
    ),
    api.PublishedFinding(
        name="kafka-unclean-election",
        title="With unclean.leader.election.enable a copy that is behind becomes the leader",
        source=f"{MANUAL}#design_uncleanleader",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *APART,
            "--unclean-election",
            *SENDS,
            *sequence(
                *("stop n2+n3", "wait 8s", "kill n1", "wait 1s"),
                *("end stop", "wait 12s", "end kill", "wait 3s"),
            ),
        ),
        seen=LOST,
        published="documented: what the copy lacks is lost",
        minutes=2,
    ),
    api.PublishedFinding(
        name="kafka-min-isr-1",
        title="With min.insync.replicas=1 and acks=all one copy, not yet on its disk, is enough",
        source=f"{MANUAL}#topicconfigs_min.insync.replicas",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *APART,
            *SENDS,
            *sequence(
                *("stop n2+n3", "wait 8s", "lose-unsynced n1", "wait 2s"),
                *("end lose-unsynced", "wait 8s", "end stop", "wait 3s"),
            ),
        ),
        seen=LOST,
        published="documented: acks=all waits for those that are in sync, which may be the leader",
        minutes=2,
    ),
    api.PublishedFinding(
        name="kafka-unsynced",
        title="Logs are not synced before an acknowledgement, so a power loss of all loses some",
        source=f"{MANUAL}#design_filesystem",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *("--profile", "safe"),
            *SENDS,
            *("--nemesis", "lose-unsynced", "--targets", "all"),
            *("--nemesis-interval", "25", "--nemesis-duration", "4"),
        ),
        seen=LOST,
        published="documented: the kernel syncs when it likes; durability is by replication",
        minutes=2,
    ),
    api.PublishedFinding(
        name="kafka-offset-reset",
        title="A group that committed nothing yet begins behind what is there, as shipped",
        source=f"{MANUAL}#consumerconfigs_auto.offset.reset",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        # Kafka's own clients are shipped with latest.
        command=(
            *("--profile", "safe", "--offset-reset", "latest"),
            *("--workload", "partitions", "--longest", "1", "--no-transactions"),
            *("--rate", "60", "--time-limit", "30", *QUIET),
        ),
        seen=(api.Seen(checker="group-reads", kinds=("skipped",)),),
        published="documented: latest is the default. Jepsen, Redpanda 21.10.1 (2022): its option"
        " --safe sets earliest, for clients skip messages without it",
        minutes=1.5,
    ),
    api.PublishedFinding(
        name="kafka-write-isolation",
        title="A transaction's sends do not stand together: those of others come between them",
        source="https://jepsen.io/analyses/redpanda-21.10.1",
        system="kafka",
        releases=RELEASES,
        newest=NEWEST,
        command=(
            *("--workload", "partitions", "--keys", "1", "--send-share", "0.8"),
            *("--rate", "100", "--time-limit", "20", *QUIET),
        ),
        seen=(api.Seen(checker="kafka", count="int-send-skip-count", least=1),),
        published="Jepsen, Redpanda 21.10.1 (2022): what isolation Kafka's transactions have is not"
        " plainly documented; writes of several interleave, in Kafka as in Redpanda",
        minutes=1,
    ),
    LATE_COMMIT,
    replace(
        LATE_COMMIT,
        name="kafka-17754-protected",
        title="The same with a client that speaks KIP-890's protocol, which is said to mend it",
        releases=("4.0.0",),
        command=(*LATE, "--transaction-version", "2"),
        published="nothing: none should be found",
    ),
)
