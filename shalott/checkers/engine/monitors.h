/* The monitors: checks of one kind of object each, in linear time or close to it. */
#ifndef SHL_MONITORS_H
#define SHL_MONITORS_H

#include "engine.h"

/* --- registers --------------------------------------------------------------------------------*/

/* Registers whose observed values were each written once: reads, writes, compare-and-sets. */

/* shl_history.f. a: the value read or written, or what a compare-and-set expects; b: what it
 * writes. Every operation that counts has them (nil is a value with an id of its own). The column b
 * is NULL if there are no compare-and-sets at all. */
enum {
    SHL_REGISTER_READ = 0,
    SHL_REGISTER_WRITE = 1,
    SHL_REGISTER_CAS = 2,
    SHL_REGISTER_REFUSED = 3, /* a compare-and-set that failed: the register did not hold a */
    SHL_REGISTER_DROPPED = 4, /* nothing that counts; any number above is the same */
};

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_REGISTER_FRESH = 1,  /* who observed a value that no operation wrote */
    SHL_REGISTER_FUTURE = 2, /* who observed a value; its writer, which was called later */
    SHL_REGISTER_TWICE = 3,  /* two compare-and-sets that replaced one value */
    SHL_REGISTER_CYCLE = 4,  /* up to four compare-and-sets, each writing what the next expects */
    /* An operation that returned, one called later, and the values of a chain of compare-and-sets
     * that say that the later came first. */
    SHL_REGISTER_CHAIN = 5,
    /* Values A and B (or chains of them): an operation of A that returned (SHL_NONE: A is
     * the initial value) before one of B was called; one of B that returned before one of A was
     * called. */
    SHL_REGISTER_STALE = 6,
    /* A failed compare-and-set; an operation that returned before it (SHL_NONE: it is the initial
     * value) and one called after it, which together say that the register held the expected
     * value all the while. */
    SHL_REGISTER_HELD = 7,
    /* SHL_NOT_THIS_MONITOR: */
    SHL_REGISTER_CONTESTED = 8, /* two writers of one value that was observed */
    SHL_REGISTER_OPEN = 9,      /* a failed compare-and-set that only a search weighs */
};

/* initial: the id of the value that the register holds at first; SHL_NONE: no operation has it. */
void shl_check_register(const shl_history *history, int32_t initial, shl_budget *budget,
                        shl_answer *answer);

/* --- queues -----------------------------------------------------------------------------------*/

/* Queues with distinct values: FIFO and unordered, linearizable or not, in linear time. */

/* What an f means; how it ended; what a value is: the codes of checkers/history/concurrent.py. */
enum { SHL_OTHER_F = 0, SHL_ENQUEUE = 1, SHL_DEQUEUE = 2 };

/* Why an answer is SHL_INVALID (rows prove it), or SHL_NOT_THIS_MONITOR (rows show it). */
enum {
    SHL_QUEUE_FRESH = 1,    /* a dequeue; the enqueue if one was called, too late */
    SHL_QUEUE_REPEATED = 2, /* the first dequeue, the second, the enqueue */
    SHL_QUEUE_ORDER = 3,    /* enqueue a, dequeue a, enqueue b, dequeue b: b overtook a */
    SHL_QUEUE_LOST = 4,     /* enqueue a, enqueue b, dequeue b: b overtook a, which never came */
    SHL_QUEUE_EMPTY = 5,    /* the empty dequeue; up to three enqueues whose values were there */

    SHL_QUEUE_TURN = 6,     /* a dequeue; up to three enqueues of what came before it meanwhile */
    SHL_QUEUE_NESTED = 7,   /* none: see shl_check_stack */

    SHL_QUEUE_TWICE = 16,   /* two enqueues of one value */
    SHL_QUEUE_NOTHING = 17, /* an enqueue of no value */
    SHL_QUEUE_OTHER = 18,   /* an f that is no queue's */
    SHL_QUEUE_CRASHED = 19, /* a dequeue that crashed, and may have taken one of several */
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

/* Those of priority queues and stacks decide whole histories only. turn[row]: of the element of an
 * enqueue, in [0, turns); the lowest is dequeued first, and of equal ones any. */
void shl_check_priority(const shl_queue_history *history, const int32_t *turn, int32_t turns,
                        shl_budget *budget, shl_answer *answer);
/* core: room for n. If the answer is SHL_QUEUE_NESTED, the first ops[0] in it are the pushes of
 * values of which none can have been the lowest. */
void shl_check_stack(const shl_queue_history *history, int32_t *core, shl_budget *budget,
                     shl_answer *answer);

/* --- counters ---------------------------------------------------------------------------------*/

/* Counters that are only ever raised, by one and the same amount. */

/* shl_history.f. a: of a read, how many raises it tells of; below 0 or above n for any that can't
 * be. */
enum {
    SHL_COUNTER_RAISE = 0,
    SHL_COUNTER_READ = 1, /* completed; any number above is an operation that does not count */
};

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_COUNTER_AHEAD = 1, /* a read; what showed before its call that there were more raises, or
                              SHL_NONE */
    SHL_COUNTER_BEHIND = 2, /* a read of more raises than can have been */
};

/* *reached: how many raises there must have been before it, or can have been by its return. */
void shl_check_counter(const shl_history *history, int32_t *reached, shl_budget *budget,
                       shl_answer *answer);

/* --- sets -------------------------------------------------------------------------------------*/

/* Sets: add, remove, contains; and reads of the whole set where nothing is removed. */

/* shl_history.f. a: the element, or which of the sets a read returned. What crashed is ADD or
 * REMOVE; the others have completed. */
enum {
    SHL_SET_ADD = 0,     /* did not say if it changed anything */
    SHL_SET_ADDED = 1,   /* was absent, and no longer is */
    SHL_SET_REMOVE = 2,  /* did not say */
    SHL_SET_REMOVED = 3, /* was present, and no longer is */
    SHL_SET_HAS = 4,     /* was present (also an add that changed nothing) */
    SHL_SET_LACKS = 5,   /* was absent (also a remove that changed nothing) */
    SHL_SET_READ = 6,    /* any number above is an operation that does not count */
};

/* The different sets that were read, smallest first: set i has the elements from starts[i] to
 * starts[i + 1], each once. */
typedef struct {
    int32_t count;
    const int64_t *starts;
    const int32_t *elements;
} shl_read_sets;

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_SET_FRESH = 1, /* who found an element that no operation added */
    SHL_SET_AGAIN = 2, /* two that each added an element that none removed, or removed one that
                          was added once */
    SHL_SET_FUTURE = 3, /* who found the element; its add, called later */
    SHL_SET_LOST = 4,   /* who missed the element; who had it there before, and after or SHL_NONE */
    SHL_SET_STALE = 5,  /* a remove; who found the element later */
    SHL_SET_DIFFERENT = 6, /* two reads, each with an element that the other has not */
    SHL_SET_ORDER = 7, /* who returned; who was called later, although it must have come earlier */
    /* SHL_NOT_THIS_MONITOR: */
    SHL_SET_SEVERAL = 8, /* two adds of an element that was removed and looked at */
    SHL_SET_WHOLE = 9,   /* a remove; a read of the whole set */
};

void shl_check_set(const shl_history *history, const shl_read_sets *sets, shl_budget *budget,
                   shl_answer *answer);

/* --- logs -------------------------------------------------------------------------------------*/

/* Logs with contiguous offsets: appends, reads of an offset, reads of the tail. */

/* shl_history.f. a: the value appended or read; b: the offset (of a tail: how many there are),
 * where anything of history->n or more may be told as history->n. */
enum {
    SHL_LOG_APPEND = 0, /* completed: b is its offset; crashed: b is not looked at */
    SHL_LOG_READ = 1,   /* found a at b */
    SHL_LOG_END = 2,    /* a read that found nothing at b */
    SHL_LOG_TAIL = 3,   /* any number above is an operation that does not count */
};

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_LOG_FRESH = 1,     /* a read of a value that no operation appended */
    SHL_LOG_TWICE = 2,     /* two appends at one offset */
    SHL_LOG_DIFFERS = 3,   /* a read; the append or the other read of that offset */
    SHL_LOG_ELSEWHERE = 4, /* a read; the append of its value, or another read, at another offset */
    SHL_LOG_GAP = 5,   /* what shows that an offset above one was filled which no append can fill */
    SHL_LOG_ORDER = 6, /* who returned and needs an offset filled; who was called later, and needs
                          it or one before it not yet filled */
    /* SHL_NOT_THIS_MONITOR: */
    SHL_LOG_CONTESTED = 7, /* two crashed appends of one value that was read at an unexplained
                              offset; the read */
};

void shl_check_log(const shl_history *history, shl_budget *budget, shl_answer *answer);

/* --- locks ------------------------------------------------------------------------------------*/

/* Locks and semaphores: those that anyone may release, and those with owners. */

/* shl_history.f; any number above is an operation that does not count. */
enum { SHL_LOCK_ACQUIRE = 0, SHL_LOCK_RELEASE = 1 };

/* shl_answer.violation, and what its ops are. */
enum {
    SHL_LOCK_HELD = 1, /* an acquire that can't have been possible; the last acquire before it */
    SHL_LOCK_FREE = 2, /* a release likewise; the last release before it, or SHL_NONE */
    SHL_LOCK_OVERLAP = 3,  /* two acquires that held the lock at once; the release of the first */
    SHL_LOCK_TOKEN = 4,    /* two acquires; the second's token is not greater */
    SHL_LOCK_REENTERED = 5, /* an acquire by its owner, once too often; the owner's first */
    SHL_LOCK_NOT_OWNED = 6, /* a release by a process that did not hold the lock */
    /* SHL_NOT_THIS_MONITOR: */
    SHL_LOCK_PROCESS = 7, /* an operation of a process that had another one open, or crashed */
};

/* Anyone may release; `permits` may be out at once (a mutex: 1). */
void shl_check_anonymous_lock(const shl_history *history, int32_t permits, shl_budget *budget,
                              shl_answer *answer);

/* Only who holds it may acquire it again, `limit` times at most (0: any number), and release it.
 * history->a: processes, densely numbered. tokens: what each acquire returned, which must grow,
 * where `known`; NULL: none has any. */
void shl_check_owned_lock(const shl_history *history, int32_t limit, const int64_t *tokens,
                          const uint8_t *known, shl_budget *budget, shl_answer *answer);

#endif
