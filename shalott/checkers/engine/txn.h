/* Transactions: histories whose operations read and write several keys at once, as Elle judges them
 * (Kingsbury & Alvaro, PVLDB 2020): lists that are appended to, registers that are overwritten, and
 * sets that grow. What each reads tells in which order others took effect; an order that bites its
 * own tail is an anomaly (Adya's), and its shortest cycle is the proof.
 *
 * txn_values.c numbers keys and values, txn_read.c gathers transactions from entries, txn_lists.c,
 * txn_registers.c and txn_sets.c find what needs no cycle and draw the edges, txn_order.c adds the
 * order of processes and of time, txn_graph.c finds strongly connected components, and
 * txn_cycles.c the shortest cycle of each kind in them. */
#ifndef SHL_TXN_H
#define SHL_TXN_H

#include "engine.h"
#include "entries.h"

enum { SHL_TXN_OK = 0, SHL_TXN_FAIL = 1, SHL_TXN_INFO = 2 };

/* What a micro-operation does. */
enum { SHL_MOP_READ = 0, SHL_MOP_WRITE = 1 };

/* What a key holds. */
enum { SHL_TXN_LISTS = 0, SHL_TXN_REGISTERS = 1, SHL_TXN_SETS = 2 };

/* One micro-operation. A write's value is a version (an appended element, a register's value); a
 * read's is a version too in registers (SHL_NONE: nil), and in lists and sets the branch that it
 * read: the first `length` elements of it. length SHL_NONE: nothing is known of what it read. */
typedef struct {
    int32_t key, value, length;
    uint8_t f;
} shl_mop;

/* A transaction. Events are numbered in the order of the file: call is SHL_NONE where there is no
 * invocation, ret SHL_NEVER where it did not complete, or crashed. line, index and time: of the
 * completion where there is one; call_*: of the invocation. */
typedef struct {
    uint8_t type;
    int32_t process; /* dense */
    int32_t call, ret;
    int32_t count; /* micro-operations, from `mops` on */
    int64_t mops;
    int64_t line, index, time;
    int64_t call_line, call_index, call_time;
} shl_txn;

/* A version: an element of a list or set, a value of a register. raw: see shl_txn_form. */
typedef struct {
    int64_t raw;
    int32_t key;
    int32_t writer; /* the transaction that may have written it; SHL_NONE */
    int32_t failed; /* one that wrote it and failed; SHL_NONE */
    int32_t at;     /* its place in the order of its key's versions; SHL_NONE */
    uint8_t contested;    /* several transactions may have written it */
    uint8_t intermediate; /* its writer wrote this key again */
} shl_version;

/* One order in which a list grew, as reads showed it; a set that was read. */
typedef struct {
    int32_t key;
    int32_t next;     /* another one of this key; SHL_NONE */
    int32_t length;
    int32_t reads;    /* how many */
    int32_t a_read;   /* the transaction of the longest read of it */
    int32_t duplicate; /* the place of the first element that was there before; SHL_NONE */
    int64_t room;
    int64_t *raw;
    int32_t *version;
} shl_txn_list;

/* What is wrong with one read or write, without any cycle. The order is Elle's of severity. */
enum {
    SHL_FOUND_DUPLICATE_ELEMENTS = 0, /* txn, mop; version: the element */
    SHL_FOUND_CYCLIC_VERSIONS = 1,    /* key; version, other_version: on one cycle; place: sources.
                                         Of lists: mop, other: appends of txn in this order */
    SHL_FOUND_INTERNAL = 2,           /* txn, mop; other: the earlier mop that it contradicts */
    SHL_FOUND_GARBAGE_READ = 3,       /* txn, mop; version: that none wrote */
    SHL_FOUND_G1A = 4,                /* txn, mop; other: the failed one; version */
    SHL_FOUND_DIRTY_UPDATE = 5,       /* other: the failed one, txn: the one after; both versions */
    SHL_FOUND_G1B = 6,                /* txn, mop; other: the writer; version */
    SHL_FOUND_FUTURE_READ = 7,        /* txn, mop; other: the later mop; version */
    SHL_FOUND_INCOMPATIBLE_ORDER = 8, /* key; txn, other: two reads; branch, other_branch */
    SHL_FOUND_LOST_UPDATE = 9,        /* key; txn, other; version that both read; place: how many */
    SHL_FOUND_CONTESTED = 10, /* no anomaly: a version that two may have written; txn, other */
    SHL_FOUND_KINDS = 11,
};

typedef struct {
    int32_t kind;
    int32_t txn, mop, other;
    int32_t key, version, other_version;
    int32_t branch, other_branch;
    int32_t place;
} shl_txn_found;

/* Edges: of data, of a process, of time; and steps within what stands for several transactions. */
enum {
    SHL_EDGE_WW = 0,
    SHL_EDGE_WR = 1,
    SHL_EDGE_RW = 2,
    SHL_EDGE_PROCESS = 3,
    SHL_EDGE_REALTIME = 4,
    SHL_EDGE_PASS = 5,
};

/* What a cycle is by its edges of data, and what other edges it needs. */
enum {
    SHL_CYCLE_G0 = 0,
    SHL_CYCLE_G1C = 1,
    SHL_CYCLE_SINGLE = 2,
    SHL_CYCLE_NONADJACENT = 3,
    SHL_CYCLE_G2 = 4,
    SHL_CYCLE_KINDS = 5,
};
enum { SHL_LEVEL_DATA = 0, SHL_LEVEL_PROCESS = 1, SHL_LEVEL_REALTIME = 2, SHL_LEVELS = 3 };

/* One edge of a cycle: from this transaction to that of the next step, or of the first. */
typedef struct {
    int32_t txn;
    int32_t kind;
    int32_t version; /* what the edge's end wrote, or read (wr); SHL_NONE */
} shl_txn_step;

typedef struct {
    int32_t kind, level;
    int32_t steps; /* how many, from `first` on */
    int32_t shortest; /* 0: shorter ones may be there, the search stopped */
    int64_t first;
} shl_txn_cycle;

/* What is assumed of registers, and of what to look for. */
typedef struct {
    int32_t object;            /* SHL_TXN_LISTS... */
    int32_t wfr_keys;          /* a transaction's write of a key follows its own read */
    int32_t sequential_keys;   /* each key is sequentially consistent */
    int32_t linearizable_keys; /* each key is linearizable */
    int32_t unwritten_initial; /* a value that none wrote is what the key held at first */
    int32_t no_lost_updates;   /* nothing comes between what one read of a key and what it wrote */
    int32_t unwritten_ignored; /* reads of such values say nothing */
    int32_t contested_ignored; /* nothing is concluded from keys that have contested versions */
    int32_t kept;              /* of each kind of anomaly, so many are kept; all are counted */
    int64_t search_steps;      /* of one search for one kind of cycle; 0: no limit */
} shl_txn_options;

/* The texts that mean something: ids of shl_entries_id. */
typedef struct {
    int32_t read, read_long;   /* r, read */
    int32_t write[6];          /* append, w, write, add: what this object takes; else SHL_NONE */
} shl_txn_names;

/* All that was found out. Pointers are valid until shl_txns_free. */
typedef struct {
    int64_t txns, mops, versions, branches, keys;
    int64_t edges;       /* of data */
    int64_t order_edges; /* of processes and of time */
    int64_t type_count[3]; /* transactions that are ok, failed, crashed */
    int64_t skipped;   /* operations that are no transactions of this object */
    int64_t first_skipped_line;
    int64_t malformed; /* of them: with micro-operations that this object does not have */
    int64_t contested; /* versions that were written more than once */
    int32_t contested_version; /* the first of them; SHL_NONE */
    int64_t contested_keys;    /* keys that have any, and the first of these */
    int32_t contested_key[8];
    int64_t unwritten; /* values read in registers that none wrote */
    int32_t unwritten_txn, unwritten_version;
    int32_t has_calls; /* 0: no invocation at all, so time says nothing */
    int32_t searches_stopped;
    const shl_txn *txn;
    const shl_mop *mop;
    const shl_version *version;
    const shl_txn_list *branch;
    const int64_t *key; /* raw */
    const int32_t *longest; /* of each key, the branch that is its order; SHL_NONE */
    int64_t found_count[11];
    int64_t found;
    const shl_txn_found *finding;
    int64_t cycle_count[15]; /* level * SHL_CYCLE_KINDS + kind */
    int64_t exists_count[15]; /* likewise: components that show that there is one */
    int64_t cycles;
    const shl_txn_cycle *cycle;
    const shl_txn_step *step;
} shl_txn_view;

typedef struct shl_txns shl_txns;

shl_txns *shl_txns_new(const shl_txn_options *options, const shl_txn_names *names,
                       shl_budget *budget);
void shl_txns_free(shl_txns *txns);
/* Takes a batch of entries: 1, or 0 when the budget is spent. */
int32_t shl_txns_feed(shl_txns *txns, const shl_batch *batch);
/* After the last batch: 1, or 0 when the budget is spent. */
int32_t shl_txns_judge(shl_txns *txns);
void shl_txns_view(const shl_txns *txns, shl_txn_view *view);
/* A raw value that is no plain integer, as the nodes that it was made of: kind and number of each.
 * Returns how many there are, or 0: it is the integer itself. */
int64_t shl_txn_form(const shl_txns *txns, int64_t raw, const shl_node **nodes);
/* A process's number in the file. */
int64_t shl_txn_process(const shl_txns *txns, int32_t process);

#endif
