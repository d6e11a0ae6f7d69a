/* Logs with contiguous offsets: appends, reads of an offset, reads of the tail. */
#ifndef SHL_MONITOR_LOG_H
#define SHL_MONITOR_LOG_H

#include "engine.h"

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
    SHL_LOG_FRESH = 1,     /* a read of a value that nobody appended */
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

#endif
