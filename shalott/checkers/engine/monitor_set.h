/* Sets: add, remove, contains; and reads of the whole set where nothing is removed. */
#ifndef SHL_MONITOR_SET_H
#define SHL_MONITOR_SET_H

#include "engine.h"

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
    SHL_SET_FRESH = 1, /* who found an element that nobody added */
    SHL_SET_AGAIN = 2, /* two that each added an element which nobody removed, or removed one that
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

#endif
