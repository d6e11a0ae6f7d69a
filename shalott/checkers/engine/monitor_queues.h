/* Queues with distinct values: FIFO and unordered, linearizable or not, in linear time. */
#ifndef SHL_MONITOR_QUEUES_H
#define SHL_MONITOR_QUEUES_H

#include "engine.h"

/* What an f means; how it ended; what a value is: the codes of checkers/history/concurrent.py. */
enum { SHL_OTHER_F = 0, SHL_ENQUEUE = 1, SHL_DEQUEUE = 2 };

/* Why an answer is SHL_INVALID (rows prove it), or SHL_NOT_THIS_MONITOR (rows show it). */
enum {
    SHL_QUEUE_FRESH = 1,    /* a dequeue; the enqueue if one was called, too late */
    SHL_QUEUE_REPEATED = 2, /* the first dequeue, the second, the enqueue */
    SHL_QUEUE_ORDER = 3,    /* enqueue a, dequeue a, enqueue b, dequeue b: b overtook a */
    SHL_QUEUE_LOST = 4,     /* enqueue a, enqueue b, dequeue b: b overtook a, which never came */
    SHL_QUEUE_EMPTY = 5,    /* the empty dequeue; up to three enqueues whose values were there */

    SHL_QUEUE_TWICE = 16,   /* two enqueues of one value */
    SHL_QUEUE_NOTHING = 17, /* an enqueue of no value */
    SHL_QUEUE_OTHER = 18,   /* an f that is no queue's */
};

/* A history of one queue as ConcurrentHistory has it: n rows in the order of their calls. */
typedef struct {
    int64_t n;
    int32_t ranks; /* call and ret are below it, and all different */
    int32_t forms; /* values of kind 2 (forms) are below it, for enqueues and dequeues alike */
    const int32_t *call;
    const int32_t *ret;    /* SHL_NEVER: crashed */
    const uint8_t *type;   /* 1: failed, did not happen */
    const int32_t *f;
    const uint8_t *means;  /* of each code of f */
    const uint8_t *argument_kind; /* 0: nothing, 1: an integer, 2: a form */
    const int64_t *argument;
    const uint8_t *result_kind; /* of a dequeue; 0: the queue was empty */
    const int64_t *result;
} shl_queue_history;

/* Decides the history up to and including the event `until` (SHL_NEVER: all of it): what was called
 * later is not there, what had not completed by then crashed. */
void shl_check_fifo(const shl_queue_history *history, int32_t until, shl_budget *budget,
                    shl_answer *answer);
void shl_check_bag(const shl_queue_history *history, int32_t until, shl_budget *budget,
                   shl_answer *answer);

#endif
