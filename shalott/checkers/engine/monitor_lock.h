/* Locks and semaphores: those that anyone may release, and those with owners. */
#ifndef SHL_MONITOR_LOCK_H
#define SHL_MONITOR_LOCK_H

#include "engine.h"

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
