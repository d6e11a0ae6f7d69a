"""What became of the messages of replicated logs, in any number of runs: sends and polls, as
checkers/logs/values.py weighs them in one run, in the columns of LOST_MESSAGES.

A send is an attempt. An acknowledged message that no final read has is ``lost`` (the checker's
lost-write); final reads are the polls of the phase drain, and without a whole drain nothing is
called lost. ``duplicated``: at several offsets. ``phantom``, ``unexpected`` and ``corrupted`` count
places, as the checker does: a log is read again and again.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shalott.spark_analysis.columns import schema
from shalott.spark_analysis.columns.tables import OPERATIONS_MAX

_POLL = "struct<records: array<array<bigint>>>"
_PLACE = F.struct("key", "offset")


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
        *(_operations(kind) for kind in schema.EVIDENCE),
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


def _operations(kind: str) -> Column:
    """The first operations that prove anomalies of a kind, in order of index."""
    is_kind = F.col("is_unexpected") if kind == "unexpected" else F.col("outcome") == kind
    found = F.flatten(F.sort_array(F.collect_list(F.when(is_kind, F.col("evidence")))))
    return F.slice(found, 1, OPERATIONS_MAX).alias(f"{kind}_operations")
