/* Partitions that clients send to and poll from, judged as in jepsen.tests.kafka.
 *
 * A history is taken in as a stream of entries and kept as operations, each with its elements: a
 * message that it sent or polled, with its offset where that is known. A message is what has one
 * value in one key (a partition). Then the offsets make each key's order, and what clients saw is
 * held against it. */
#ifndef SHL_KAFKA_H
#define SHL_KAFKA_H

#include "entries.h"
#include "txn.h"

/* What an operation is. */
enum {
    SHL_KAFKA_POLL = 0,
    SHL_KAFKA_SEND = 1,
    SHL_KAFKA_TXN = 2,
    SHL_KAFKA_ASSIGN = 3,
    SHL_KAFKA_SUBSCRIBE = 4,
    SHL_KAFKA_OTHER = 5, /* crash, debug-topic-partitions: nothing is known from it */
    SHL_KAFKA_FS = 6,
};

/* What an element is. */
enum {
    SHL_KAFKA_SENT = 0,
    SHL_KAFKA_POLLED = 1,
    SHL_KAFKA_NAMED = 2, /* a key that is assigned or subscribed to */
    SHL_KAFKA_MOVED = 3, /* a key that a rebalance moved while the operation went on */
};

typedef struct {
    int64_t offset;  /* -1: it is not known */
    int32_t message; /* of one that is named or moved: the key */
    int32_t mop;     /* which micro-operation of the value, times 4, and what it is */
} shl_kafka_element;

/* A completed operation; what never completed stands at the end, as info. */
typedef struct {
    int64_t line, index; /* of the completion, or of an invocation that stayed open; -1: unknown */
    int64_t called_line, called_index;
    int64_t called_ns, ended_ns; /* -1: unknown */
    int64_t begin;               /* its first element */
    int64_t process;
    int32_t count;         /* how many elements it has */
    int32_t who;           /* its process, numbered from 0 */
    int32_t called, ended; /* which entry of the history; SHL_NEVER */
    uint8_t type, f;
    uint8_t rewinds; /* an assign that seeks to the beginning */
} shl_kafka_op;

enum {
    SHL_KAFKA_SENT_OK = 1,
    SHL_KAFKA_SENT_INFO = 2,
    SHL_KAFKA_SENT_FAIL = 4,
    SHL_KAFKA_READ_OK = 8,
    SHL_KAFKA_READ = 16,
    SHL_KAFKA_SEEN = 32, /* at an offset */
};

typedef struct {
    int64_t number; /* its value, with kind as in a shl_node; of a form: the id of its text */
    int64_t offset; /* where it was seen first */
    int32_t key;
    int32_t writer, reader; /* the newest that sent it, the first that polled it; SHL_NONE */
    int32_t index;          /* its place in the order; SHL_NONE: it has none */
    int32_t first, last;    /* its first and last index, if an offset has several messages, too */
    uint8_t kind, flags;
} shl_kafka_message;

typedef struct {
    int64_t number;
    int64_t begin, length; /* its part of the order */
    int64_t sightings, sighted;
    uint8_t kind;
} shl_kafka_key;

/* A message at an offset: by key, offset, message. */
typedef struct {
    int64_t offset;
    int32_t message;
    int32_t index;
} shl_kafka_sighting;

/* Anomalies but those of cycles. */
enum {
    SHL_KAFKA_LOST = 0,
    SHL_KAFKA_DUPLICATE = 1,
    SHL_KAFKA_G1A = 2,
    SHL_KAFKA_PRECOMMITTED = 3,
    SHL_KAFKA_INCONSISTENT = 4,
    SHL_KAFKA_INT_POLL_SKIP = 5,
    SHL_KAFKA_INT_NONMONOTONIC_POLL = 6,
    SHL_KAFKA_POLL_SKIP = 7,
    SHL_KAFKA_NONMONOTONIC_POLL = 8,
    SHL_KAFKA_INT_SEND_SKIP = 9,
    SHL_KAFKA_INT_NONMONOTONIC_SEND = 10,
    SHL_KAFKA_NONMONOTONIC_SEND = 11,
    SHL_KAFKA_UNSEEN = 12,
    SHL_KAFKA_UNWRITTEN = 13, /* polled, and sent by no operation of the history */
    SHL_KAFKA_CONSUMED_AGAIN = 14,
    SHL_KAFKA_KINDS = 15,
};

enum { SHL_KAFKA_KEPT = 32 }; /* cases of a kind */

/* Two messages and two operations; what each is says the kind. */
typedef struct {
    int64_t delta; /* how far apart; of several messages or offsets: how many */
    int64_t offset;
    int64_t index; /* of an offset with several messages: its place in the order */
    int32_t key;
    int32_t first, second; /* messages */
    int32_t op, other;
} shl_kafka_case;

typedef struct {
    int64_t messages, keys, ops, elements, entries;
    int64_t by_f[6][3];         /* f, and ok, fail, info */
    int64_t unknown_f, unknown_line; /* entries of no f of this workload, and the first's line */
    int64_t odd, odd_line;      /* values that are no micro-operations */
    int64_t reused;             /* a process began an operation before its last one had ended */
    int64_t uncalled;           /* completions without an invocation */
    int64_t open;               /* invocations without a completion */
    int64_t untimed;      /* entries without a time */
    int64_t placed;             /* messages whose place is known */
    int64_t unseen;             /* acknowledged messages that no client polled */
    int64_t processless;        /* no entry says its process */
    int32_t causes[16];         /* texts of errors that left an outcome unknown */
    int64_t cause_counts[16];
    int32_t cause_count;
    int64_t lag, lag_time;      /* the worst; ns */
    int64_t lag_process;
    int32_t lag_key, lag_op;
    int64_t counts[15];         /* cases, by kind */
    int32_t kept[15];
} shl_kafka_facts;

typedef struct shl_kafka shl_kafka;

shl_kafka *shl_kafka_new(shl_entries *entries, shl_budget *budget);
void shl_kafka_free(shl_kafka *kafka);
/* Takes in what was read: 1, or 0 if there is no memory. */
int32_t shl_kafka_take(shl_kafka *kafka, const shl_batch *batch);
/* When all was taken in: makes the orders and finds the cases. 1, or 0: see budget->stopped. */
int32_t shl_kafka_judge(shl_kafka *kafka);
/* Then the cycles of operations: with edges of ww, of rw, if asked; `kept` of each kind, and no
 * search longer than so many steps. 1, or 0: see budget->stopped. */
int32_t shl_kafka_find_cycles(shl_kafka *kafka, int32_t ww, int32_t rw, int32_t kept,
                              int64_t search_steps);
/* Whose cycles are ours; a step's version is a message. */
const shl_txns *shl_kafka_txns(const shl_kafka *kafka);
int32_t shl_kafka_op_of_txn(const shl_kafka *kafka, int32_t txn);

const shl_kafka_facts *shl_kafka_found(const shl_kafka *kafka);
const shl_kafka_case *shl_kafka_cases(const shl_kafka *kafka, int32_t kind);
const shl_kafka_op *shl_kafka_ops(const shl_kafka *kafka);
const shl_kafka_element *shl_kafka_elements(const shl_kafka *kafka);
const shl_kafka_message *shl_kafka_messages(const shl_kafka *kafka);
const shl_kafka_key *shl_kafka_keys(const shl_kafka *kafka);
const shl_kafka_sighting *shl_kafka_sightings(const shl_kafka *kafka);
/* The message at each place of the orders, one key's behind the other's. */
const int32_t *shl_kafka_order(const shl_kafka *kafka);

#endif
