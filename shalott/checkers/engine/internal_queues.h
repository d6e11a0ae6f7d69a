/* What the two queue monitors share: rows by what they are, a value's enqueue, a timeline. */
#ifndef SHL_INTERNAL_QUEUES_H
#define SHL_INTERNAL_QUEUES_H

#include "monitor_queues.h"

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

#endif
