/* What the files that judge partitions share. */
#ifndef SHL_INTERNAL_KAFKA_H
#define SHL_INTERNAL_KAFKA_H

#include "internal_read.h"
#include "kafka.h"

/* A table that finds a number by what it stands for; 0 in a slot is free, else number + 1. */
typedef struct {
    int32_t *slots;
    int64_t room;
    int64_t count;
} shl_kafka_index;

/* What a process has begun and not ended. */
typedef struct {
    int64_t process;
    int64_t line, index, time_ns;
    shl_kafka_element *sends; /* what the invocation said */
    int32_t room, count;
    int32_t called;
    uint8_t f, open;
} shl_kafka_pending;

struct shl_kafka {
    shl_entries *entries;
    shl_budget *budget;
    int32_t words[16]; /* ids of the words that operations are told with */
    shl_kafka_op *ops;
    shl_kafka_element *elements;
    shl_kafka_message *messages;
    shl_kafka_key *keys;
    shl_kafka_pending *pending;
    shl_kafka_index by_message, by_key, by_process;
    int64_t op_room, element_room, message_room, key_room, pending_room;
    char *text; /* where a form is written down */
    int64_t text_room;
    shl_kafka_sighting *sightings;
    int64_t sighting_count, sighting_room;
    int32_t *order;
    int64_t order_length;
    shl_txns *txns;     /* the operations as transactions, with their cycles; NULL */
    int32_t *cycle_ops; /* of each transaction: the operation */
    int64_t cycle_op_count;
    shl_kafka_facts facts;
    shl_kafka_case cases[SHL_KAFKA_KINDS][SHL_KAFKA_KEPT];
    int64_t ranks[SHL_KAFKA_KINDS][SHL_KAFKA_KEPT];
    int64_t worst[SHL_KAFKA_KINDS]; /* the rank of the least telling of those that are kept */
};

/* Room for one more in an array that doubles; 0: no memory. */
int shl_kafka_grow(shl_budget *budget, void **memory, int64_t *room, int64_t used, int64_t size);

/* The number of a key; -1: no memory. */
int32_t shl_kafka_key_of(shl_kafka *kafka, uint8_t kind, int64_t number);
int32_t shl_kafka_message_of(shl_kafka *kafka, int32_t key, uint8_t kind, int64_t number);
int32_t shl_kafka_process_of(shl_kafka *kafka, int64_t process);

/* Counts a case, and keeps it if it is among the most telling ones: with the highest `rank`. */
void shl_kafka_note(shl_kafka *kafka, int kind, int64_t rank, const shl_kafka_case *found);

static inline int shl_kafka_what(const shl_kafka_element *element)
{
    return element->mop & 3;
}

static inline int shl_kafka_carries(const shl_kafka_op *op)
{
    return op->f <= SHL_KAFKA_TXN;
}

/* Whether an operation's sends must be in the log: it is ok, or one of them was read. */
int shl_kafka_committed(const shl_kafka *kafka, const shl_kafka_op *op);

int shl_kafka_learn_words(shl_kafka *kafka);
/* Makes infos of the invocations that were never answered. */
int shl_kafka_end_open(shl_kafka *kafka);

/* The numbers of the operations, one process's behind the other's, and where each process's end
 * (one more than there are processes); NULL: no memory. */
int32_t *shl_kafka_by_process(shl_kafka *kafka, int64_t **ends);

/* How far the second message stands behind the first: 1 is next, and what can't be known. */
static inline int64_t shl_kafka_distance(const shl_kafka *kafka, int32_t first, int32_t second)
{
    int32_t from = kafka->messages[first].index, to = kafka->messages[second].index;
    return from == SHL_NONE || to == SHL_NONE ? 1 : (int64_t)to - from;
}

/* The parts of the judgement: 1, or 0 when the budget stops it. */
int shl_kafka_make_orders(shl_kafka *kafka);
int shl_kafka_find_in_logs(shl_kafka *kafka);
int shl_kafka_find_in_operations(shl_kafka *kafka);
int shl_kafka_find_in_processes(shl_kafka *kafka);
int shl_kafka_find_lag(shl_kafka *kafka);

void shl_kafka_free_cycles(shl_kafka *kafka);

#endif
