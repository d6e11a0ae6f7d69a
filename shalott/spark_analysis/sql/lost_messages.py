"""Lost, duplicated and phantom messages of any number of runs: one group-by, no join of rows.

Of queues: the definitions are those of checkers/queues/outcomes.py and
checkers/queues/total_queue.py, which see one run at a time; here a message is a group of
(run, value), however long the history. An anti-join of enqueues and dequeues says the same
and costs twice as much, three times with a sort.

    one pass      (run, value)   its enqueue, how often it was delivered, how often without the flag
    then          (run, queue)   counts of outcomes, and the operations that prove them

Of replicated logs: sends and polls, as checkers/logs/values.py weighs them in one run. A send is an
attempt. An acknowledged message that no final read has is ``lost`` (the checker's lost-write);
final reads are the polls of the phase drain, and without a whole drain nothing is called lost.
``duplicated``: at several offsets. ``phantom``, ``unexpected`` and ``corrupted`` count places, as
the checker does: a log is read again and again.

``ops`` has the columns of a history (spark_analysis.sql.schema.HISTORY) and ``run``.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX
from shalott.spark_analysis.sql import schema

_IS_ENQUEUE = (F.col("f") == "enqueue") & F.col("value").isNotNull()
_IS_DEQUEUE = F.col("f").isin("dequeue", "drain")
_IS_DELIVERY = _IS_DEQUEUE & F.col("value").isNotNull() & (F.col("type") != "fail")
_IS_BARE = _IS_DELIVERY & ~F.coalesce(F.col("redelivered"), F.lit(False))
_IS_CORRUPTED = _IS_DEQUEUE & (F.coalesce(F.col("error"), F.lit("")) == "corrupted")
NEVER = F.lit((1 << 63) - 1)  # as in checkers.history.columns: the time of what never happened
_POLL = "struct<records: array<array<bigint>>>"
_PLACE = F.struct("key", "offset")


def messages(ops: DataFrame) -> DataFrame:
    """One row a message that was sent or delivered, and one for a queue's corrupted ones."""
    of_interest = ops.where("process >= 0").where(_IS_ENQUEUE | _IS_DELIVERY | _IS_CORRUPTED)
    # What has no value can't be a message; its queue keeps it apart from the others.
    lane = F.when(F.col("value").isNull(), F.col("key"))
    return of_interest.groupBy("run", "value", lane.alias("lane")).agg(
        F.min(F.when(_IS_ENQUEUE, F.struct("index", "key", "type", "invoke_ns"))).alias("enqueue"),
        F.count_if(_IS_DELIVERY).alias("delivered"),
        F.count_if(_IS_BARE).alias("bare"),
        F.min(F.when(_IS_DELIVERY, F.coalesce(F.col("complete_ns"), NEVER))).alias("first_end_ns"),
        F.max(F.when(_IS_BARE, F.col("invoke_ns"))).alias("last_bare_ns"),
        F.min(F.when(_IS_DELIVERY, F.struct("index", "key"))).alias("first"),
        F.max(F.when(_IS_DELIVERY, F.col("index"))).alias("last_index"),
        F.count_if(_IS_CORRUPTED).alias("corrupted"),
    )


def with_outcomes(messages: DataFrame) -> DataFrame:
    """The ``queue``, ``ack``, ``outcome`` (null: never sent) and ``evidence`` of each message."""
    ack = F.col("enqueue.type")
    # Without the flag again: twice, or once when another delivery had certainly ended before.
    unflagged = (F.col("bare") > 1) | (F.col("last_bare_ns") > F.col("first_end_ns"))
    outcome = (
        F.when(F.col("enqueue").isNull(), None)
        .when(F.col("delivered") == 0, F.when(ack == "ok", "lost").otherwise("not_enqueued"))
        .when(ack == "fail", "phantom")
        .when(F.col("delivered") == 1, F.when(ack == "ok", "delivered_once").otherwise("recovered"))
        .when(unflagged, "duplicated")
        .otherwise("redelivered")
    )
    evidence = F.array(F.col("enqueue.index"), F.col("first.index"), F.col("last_index"))
    return messages.select(
        "run",
        F.coalesce("enqueue.key", "first.key", "lane").alias("queue"),
        ack.alias("ack"),
        outcome.alias("outcome"),
        (F.col("enqueue").isNull() & (F.col("delivered") > 0)).alias("is_unexpected"),
        (F.col("first_end_ns") < F.col("enqueue.invoke_ns")).alias("is_early"),
        "corrupted",
        F.array_distinct(F.array_compact(evidence)).alias("evidence"),
    )


def lost_messages(ops: DataFrame) -> DataFrame:
    """Counts of outcomes and their evidence by run and queue (schema LOST_MESSAGES)."""
    counts = (
        with_outcomes(messages(ops))
        .groupBy("run", "queue")
        .agg(
            F.count("ack").alias("attempts"),
            F.count_if(F.col("ack") == "ok").alias("acknowledged"),
            *(
                F.count_if(F.col("outcome") == outcome).alias(outcome)
                for outcome in schema.MESSAGE_OUTCOMES
            ),
            F.count_if("is_unexpected").alias("unexpected"),
            F.sum("corrupted").alias("corrupted"),
            F.count_if("is_early").alias("too_early"),
            *(F.lit(None).cast("bigint").alias(name) for name in schema.OF_LOGS),
            *(evidence_of(kind) for kind in schema.EVIDENCE),
        )
    )
    return counts.to(schema.LOST_MESSAGES)


def evidence_of(kind: str) -> Column:
    """The first operations that prove anomalies of a kind, in order of index."""
    is_kind = F.col("is_unexpected") if kind == "unexpected" else F.col("outcome") == kind
    found = F.flatten(F.sort_array(F.collect_list(F.when(is_kind, F.col("evidence")))))
    return F.slice(found, 1, OPERATIONS_MAX).alias(f"{kind}_operations")


def log_messages(ops: DataFrame) -> DataFrame:
    """Counts of outcomes and their evidence by run and queue (schema LOST_MESSAGES)."""
    outcomes = _with_outcomes(_messages(ops))
    none = F.array().cast("array<bigint>")
    counts = outcomes.groupBy("run", "queue").agg(
        F.count("ack").alias("attempts"),
        F.count_if(F.col("ack") == "ok").alias("acknowledged"),
        *(
            F.count_if(F.col("outcome") == outcome).alias(outcome)
            for outcome in schema.MESSAGE_OUTCOMES
        ),
        F.sum(F.when(F.col("ack") == "fail", F.col("read_places"))).alias("phantom_places"),
        F.sum(F.when(F.col("ack").isNull(), F.col("read_places"))).alias("unexpected"),
        F.sum("damaged_places").alias("corrupted"),
        F.count_if("is_early").alias("too_early"),
        *(F.lit(None).cast("bigint").alias(name) for name in schema.OF_LOGS),
        *(evidence_of(kind) for kind in schema.EVIDENCE),
    )
    counted = counts.withColumn("phantom", F.coalesce("phantom_places", F.lit(0)))
    filled = counted.drop("phantom_places").fillna(0, ["unexpected", "corrupted"])
    evidence = {f"{k}_operations": F.coalesce(f"{k}_operations", none) for k in schema.EVIDENCE}
    return filled.withColumns(evidence).to(schema.LOST_MESSAGES)


def _messages(ops: DataFrame) -> DataFrame:
    """One row a message that was sent or read, and one for a queue's damaged records."""
    drained = ops.where((F.col("process") < 0) & (F.col("f") == "phase") & (F.col("type") == "ok"))
    drained = drained.where(F.get_json_object("extra", "$.phase") == "drain")
    begins = drained.groupBy("run").agg(F.min("invoke_ns").alias("drain_ns"))
    clients = ops.where("process >= 0").where(F.col("f").isin("send", "poll"))
    sends = clients.where((F.col("f") == "send") & F.col("value").isNotNull()).select(
        "run", "key", "value", "index", "type", "invoke_ns",
        F.when(F.col("type") == "ok", F.col("offset")).alias("offset"),
        F.lit(None).cast("bigint").alias("end_ns"), F.lit(True).alias("is_send"),
    )  # fmt: skip
    polled = clients.where((F.col("f") == "poll") & (F.col("type") == "ok"))
    record = F.explode(F.from_json("extra", _POLL)["records"])
    records = polled.withColumn("record", record).select(
        "run", "key", F.col("record")[1].alias("value"), "index", "type", "invoke_ns",
        F.col("record")[0].alias("offset"), F.col("complete_ns").alias("end_ns"),
        F.lit(False).alias("is_send"),
    )  # fmt: skip
    told = sends.unionByName(records).join(F.broadcast(begins), "run", "left")
    is_read, is_placed = ~F.col("is_send"), F.col("offset").isNotNull()
    is_final = is_read & (F.col("invoke_ns") >= F.col("drain_ns"))
    lane = F.when(F.col("value").isNull(), F.col("key"))
    return told.groupBy("run", "value", lane.alias("lane")).agg(
        F.min(F.when(F.col("is_send"), F.struct("index", "key", "type", "invoke_ns"))).alias(
            "send"
        ),
        F.count_if(is_final).alias("at_end"),
        F.count_if(is_read).alias("reads"),
        F.size(F.collect_set(F.when(is_placed, _PLACE))).alias("places"),
        F.size(F.collect_set(F.when(is_read, _PLACE))).alias("read_places"),
        F.min(F.when(is_read, F.struct("index", "key"))).alias("first"),
        F.max(F.when(is_read, F.col("index"))).alias("last_index"),
        F.min(F.when(is_read, F.col("end_ns"))).alias("first_end_ns"),
        F.max("drain_ns").alias("drain_ns"),
    )


def _with_outcomes(messages: DataFrame) -> DataFrame:
    ack, is_sound = F.col("send.type"), F.col("value").isNotNull()
    is_kept = (F.col("at_end") > 0) | F.col("drain_ns").isNull()
    outcome = (
        F.when(F.col("send").isNull(), None)
        .when(F.col("places") > 1, "duplicated")
        .when((ack == "fail") & (F.col("reads") > 0), "phantom")
        .when((ack == "ok") & ~is_kept, "lost")
        .when(ack == "ok", "delivered_once")
        .when(F.col("at_end") > 0, "recovered")
        .otherwise("not_enqueued")
    )
    evidence = F.array(F.col("send.index"), F.col("first.index"), F.col("last_index"))
    return messages.select(
        "run",
        F.coalesce("send.key", "first.key", "lane").alias("queue"),
        ack.alias("ack"),
        outcome.alias("outcome"),
        F.when(is_sound, F.col("read_places")).alias("read_places"),
        F.when(~is_sound, F.col("read_places")).alias("damaged_places"),
        (F.col("send").isNull() & is_sound).alias("is_unexpected"),
        (F.col("first_end_ns") < F.col("send.invoke_ns")).alias("is_early"),
        F.array_distinct(F.array_compact(evidence)).alias("evidence"),
    )
