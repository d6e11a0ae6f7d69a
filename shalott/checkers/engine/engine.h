/* What every part of the engine shares: a history as columns, a budget, an answer.
 *
 * Every header here is read twice: by the C compiler, and by cffi (build_engine.py), which is given
 * the same text without its preprocessor lines. So headers hold enums, plain structs and prototypes
 * only. Public names begin with shl_.
 *
 * Time is rank: a history of n operations has at most 2n events (an invocation, a completion), and
 * each has a number of its own, in the order in which they happened; a tie of clocks puts the
 * invocation first, which can only make two operations concurrent. */
#ifndef SHL_ENGINE_H
#define SHL_ENGINE_H

#include <stdint.h>

enum {
    SHL_NEVER = 2147483647, /* the ret of a crashed operation */
    SHL_NONE = -1,          /* no value */
};

/* n operations in the order of their invocations. */
typedef struct {
    int64_t n;
    int32_t ranks;       /* call and ret lie in [0, ranks), and no two are equal */
    const int32_t *call; /* rank of the invocation; ascending */
    const int32_t *ret;  /* rank of the completion, or SHL_NEVER */
    const uint8_t *f;    /* what was asked: the codes of the monitor that reads it */
    const int32_t *a;    /* a value's dense id in [0, values), or SHL_NONE */
    const int32_t *b;    /* a second value (what a compare-and-set writes), or SHL_NONE */
    int32_t values;
} shl_history;

enum { SHL_INVALID = 0, SHL_VALID = 1, SHL_UNKNOWN = -1 };

/* Why an answer is SHL_UNKNOWN. */
enum {
    SHL_DECIDED = 0,
    SHL_NOT_THIS_MONITOR = 1, /* the monitor can't decide something of it: see answer.violation */
    SHL_TIME = 2,
    SHL_MEMORY = 3,
    SHL_CANCELLED = 4,
    SHL_MODEL_FAILED = 5, /* the model raised an exception */
};

/* Limits, obeyed by all that works under them, and what it has used so far. One for each check;
 * parts of a check that run on several threads share it: the counters are atomic. One that is
 * within another one stops when that does, and counts its bytes there, too; but that goes on when
 * it refuses this one memory. */
typedef struct shl_budget {
    int64_t deadline_ns;  /* CLOCK_MONOTONIC; 0: none */
    int64_t memory_limit; /* bytes the engine may hold; 0: none */
    int32_t cancel;       /* set by another thread: stop at once */
    int32_t stopped;      /* the first of SHL_TIME, SHL_MEMORY, SHL_CANCELLED that came true */
    int64_t bytes;        /* held now */
    int64_t bytes_peak;
    int64_t steps;        /* transitions tried, configurations made: how hard it was */
    int64_t done;         /* operations passed, of those asked about: how far it got */
    struct shl_budget *within; /* a larger one that covers this, too; NULL: none */
} shl_budget;

/* A monitor's verdict. ops: the operations (indexes in the history) that prove a violation, in the
 * order which the monitor's violation code says; SHL_NONE where there is none. */
typedef struct {
    int32_t verdict;
    int32_t cause;
    int32_t violation;
    int32_t ops[4];
} shl_answer;

/* 0, or why to stop (also kept in budget->stopped). Cheap: call it every few thousand steps. */
int32_t shl_check_budget(shl_budget *budget);
/* Memory that counts: NULL when the limit or the machine refuses (budget->stopped says so). */
void *shl_alloc(shl_budget *budget, int64_t bytes);
void *shl_alloc_zeroed(shl_budget *budget, int64_t bytes);
/* Memory that will be used in whole: large blocks are made resident at once, not page by page. */
void *shl_alloc_used(shl_budget *budget, int64_t bytes);
void *shl_alloc_used_zeroed(shl_budget *budget, int64_t bytes);
void *shl_resize(shl_budget *budget, void *memory, int64_t old_bytes, int64_t new_bytes);
void shl_free(shl_budget *budget, void *memory, int64_t bytes);
/* Memory that the caller holds for the check (a model's states): 1, or 0 if refused. Give it
 * back with a negative number. */
int32_t shl_charge(shl_budget *budget, int64_t bytes);
int64_t shl_now_ns(void);

/* Columns.
 *
 * Ranks: from clock times (ties: calls before returns; complete_ns INT64_MAX never completed).
 * invoke_ns must be ascending. Returns how many ranks there are, or -1 (see budget->stopped). */
int32_t shl_rank(int64_t n, const int64_t *invoke_ns, const int64_t *complete_ns, int32_t *call,
                 int32_t *ret, shl_budget *budget);
/* The highest rank among n returns; -1: none of them came. */
int32_t shl_last_return(int64_t n, const int32_t *ret);
/* Dense ids in order of first appearance for any 64-bit values; rows with present[i] == 0 get
 * SHL_NONE. first[id] is the row that showed it first (room for n). Returns how many, or -1. */
int32_t shl_dense(int64_t n, const int64_t *values, const uint8_t *present, int32_t *ids,
                  int32_t *first, shl_budget *budget);
/* A column of checkers.history.concurrent.Values: kind 0 is nothing, 1 an integer, 2 a form. */
typedef struct {
    const uint8_t *kind;
    const int64_t *number;
} shl_values;
/* Ids of what row i has in `second` if pick[i] == picked, else in `first`: integers less the
 * lowest, and above them one id for nothing. Returns how many ids that makes; -1 if there are
 * forms, no integers, or such as lie far apart: then nothing was done. `asked`: a value; *its_id is
 * set to its id, or to SHL_NONE if no row has it. */
int64_t shl_ids_of_two(int64_t n, const shl_values *first, const shl_values *second,
                       const uint8_t *pick, uint8_t picked, const shl_values *asked, int32_t *ids,
                       int32_t *its_id);

#endif
