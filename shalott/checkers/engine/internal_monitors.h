/* What the files of the monitors share. */
#ifndef SHL_INTERNAL_MONITORS_H
#define SHL_INTERNAL_MONITORS_H

#include "monitors.h"

/* --- answers and returns ----------------------------------------------------------------------*/

/* What the monitors of locks, logs and sets share. */

static inline void shl_monitor_valid(shl_answer *answer)
{
    *answer = (shl_answer){SHL_VALID, SHL_DECIDED, 0, {SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE}};
}

/* True when the budget is spent: the answer says so. */
static inline int shl_monitor_stops(shl_budget *budget, shl_answer *answer)
{
    int32_t stopped = shl_check_budget(budget);
    if (stopped)
        *answer = (shl_answer){SHL_UNKNOWN, stopped, 0,
                               {SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE}};
    return stopped != 0;
}

/* Per rank: the operation that returns there, or SHL_NONE. NULL: no memory. */
static inline int32_t *shl_monitor_returners(const shl_history *history, shl_budget *budget)
{
    int32_t *returner = shl_alloc(budget, history->ranks * (int64_t)sizeof(int32_t));
    if (!returner)
        return returner;
    for (int32_t rank = 0; rank < history->ranks; rank++)
        returner[rank] = SHL_NONE;
    for (int64_t i = 0; i < history->n; i++)
        if (history->ret[i] != SHL_NEVER)
            returner[history->ret[i]] = (int32_t)i;
    return returner;
}

/* --- queues -----------------------------------------------------------------------------------*/

/* What the two queue monitors share: rows by what they are, a value's enqueue, a timeline. */

enum row_class { ENQUEUES, DEQUEUES, EMPTIES, CRASHED, LEFT_OUT, STRANGE, CLASSES };

/* An event of the timeline, by rank. Positive: the enqueue of a value was called that a dequeue
 * returned; its return's rank + 1. Negative: an enqueue took effect at the latest; minus (the rank
 * of its dequeue's call + 1). Zero: nothing that matters. And three that stand apart: */
enum {
    DEQUEUE_CALLED = INT32_MAX,     /* of a value that was certainly there by then */
    CRASHED_CALLED = INT32_MAX - 1, /* a dequeue that never returned */
    NEVER_DEQUEUED = INT32_MAX - 2, /* an enqueue returned whose value no dequeue returned */
};

/* A value's mark: 0, its enqueue's row + 1, or minus that once a dequeue returned it. Values that
 * lie close together have their marks in an array; the marks of others are hashed. */
typedef struct {
    int64_t low, range, forms; /* of the integers; then the forms */
    int64_t slots;             /* of the hash table; 0: an array */
    int32_t *marks;
    int64_t bytes;
} marks_by_value;

typedef struct {
    const shl_queue_history *history;
    shl_budget *budget;
    shl_answer *answer;
    int32_t until, ranks; /* ranks: of the part that is looked at */
    int64_t n;
    int32_t *rows; /* of each class, one class after the other */
    int64_t from[CLASSES + 1];
    marks_by_value values;
    int32_t *timeline; /* ranks + 1 events, the last a place for what never came; may be NULL */
    int64_t timeline_bytes;
    int64_t residual; /* completed enqueues whose value no completed dequeue returned */
} queue_check;

/* The span of a value that was dequeued, as tight as its dequeue makes it. */
typedef struct {
    int32_t enqueue, dequeue;           /* rows */
    int32_t enqueue_call, enqueue_ret;  /* ret: at the latest */
    int32_t dequeue_call, dequeue_ret;
} value_span;

/* Sorts the rows and pairs enqueues with dequeues. Returns 1 to go on; 0 when the answer is there:
 * a violation, a history for another monitor, or a limit reached. queue_close frees in any case. */
int queue_open(queue_check *check, int with_timeline);
void queue_close(queue_check *check);
/* Checks the empty dequeues, if there are any; the timeline is used up. Returns 0 on a
 * violation. */
int queue_check_empties(queue_check *check);

/* A value that no dequeue is known to have taken, and must have been taken by then. */
typedef struct {
    int32_t by, enqueue;
} due;

enum { LOOKS = 1 << 26 }; /* at what might make a value due, at most: what follows is a guess */

/* Gives the first of them the first crashed dequeue's call, and so on, into leaves[enqueue].
 * Answers how many got one. */
int64_t queue_serve(const queue_check *check, due *dues, int64_t count, int32_t *leaves);

value_span queue_span(const queue_check *check, int32_t dequeue);
int queue_is_residual(const queue_check *check, int32_t enqueue);
void queue_violation(queue_check *check, int32_t violation, int32_t a, int32_t b, int32_t c,
                     int32_t d);

static inline int64_t queue_count(const queue_check *check, enum row_class class)
{
    return check->from[class + 1] - check->from[class];
}

static inline const int32_t *queue_rows(const queue_check *check, enum row_class class)
{
    return check->rows + check->from[class];
}

static inline int32_t queue_ret(const queue_check *check, int32_t row)
{
    int32_t ret = check->history->ret[row];
    return ret > check->until ? SHL_NEVER : ret;
}

/* The two ranks that an event may hold, without branches: of a dequeue's call, less than 0 if the
 * event holds none; and of a dequeue's return, more than any rank if it holds none. */
static inline int32_t dequeue_called(int32_t event)
{
    return (int32_t)(0u - (uint32_t)event - 1u);
}

static inline uint32_t dequeue_returned(int32_t event)
{
    return (uint32_t)event - 1u;
}

/* --- registers --------------------------------------------------------------------------------*/

enum { NO_OP = -1, INITIALLY = -2 };

typedef struct {
    int32_t writer;     /* an operation, NO_OP, or INITIALLY */
    int32_t consumer;   /* the compare-and-set that replaced it, or NO_OP */
    int32_t first_read; /* the first rank at which a read of it returned, or SHL_NEVER */
    int32_t last_read;  /* the last rank at which one was called, or -1 */
    uint8_t contested;  /* it has several writers */
    uint8_t consumed_twice;
    uint8_t kept;    /* its writer is a crashed compare-and-set, and happened */
    uint8_t refused; /* a compare-and-set that expected it failed */
} value_facts;

/* A cluster or chain: its first return and its last call. */
typedef struct {
    int32_t f, s;
} zone;

typedef struct {
    const shl_history *history;
    int32_t initial;
    shl_budget *budget;
    shl_answer *answer;
    value_facts *values;
    int32_t *s_of;  /* per rank: the s of the chain whose f it is, or SHL_NONE */
    int64_t walked; /* compare-and-sets met on chains */
    int has_cas, has_refused;
} register_monitor;

/* Both give the monitor's answer and return 0, so that the caller can return it too. */
int shl_register_invalid(register_monitor *monitor, int32_t violation, int32_t op0, int32_t op1,
                         int32_t op2, int32_t op3);
int shl_register_unknown(register_monitor *monitor, int32_t cause, int32_t why, int32_t op0,
                         int32_t op1);

/* False when the budget is spent: the answer says so. */
int shl_register_may_go_on(register_monitor *monitor);

/* The operation of an event, or SHL_NONE. */
int32_t shl_called_at(const shl_history *history, int32_t rank);
int32_t shl_returned_at(const shl_history *history, int32_t rank);

/* A read returned it, or a compare-and-set replaced it. */
int shl_register_observed(const value_facts *facts);

/* Follows a chain from `value`, whose writer was called and returned at these ranks; 0: it
 * contradicts itself, and the answer says how. */
int shl_register_walk(register_monitor *monitor, int32_t value, int32_t call, int32_t ret,
                      zone *found);

/* Whether the zones in monitor->s_of and the one of the initial value agree; if not, the answer. */
int shl_register_sweep(register_monitor *monitor, zone initially);

void shl_register_gather_refused(register_monitor *monitor);
/* Given that all else is linearizable: 1 if it is with the failed compare-and-sets too. */
int shl_register_refused_agree(register_monitor *monitor);

#endif
