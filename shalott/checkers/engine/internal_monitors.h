/* What the monitors of locks, logs and sets share. */
#ifndef SHL_INTERNAL_MONITORS_H
#define SHL_INTERNAL_MONITORS_H

#include "engine.h"

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

#endif
