/* The log monitor: when was each offset filled?
 *
 * Offset o is filled at an instant T(o), and T grows with o. It lies after the call of its append,
 * of reads that found nothing there, and of tails that counted o; before the return of its append,
 * of reads that found something there, and of tails that counted o + 1. So with l and u the
 * largest and smallest of these: linearizable iff each offset has one value and each value is where
 * it was appended, and the running maximum of l stays below what remains as minimum of u.
 *
 * A crashed append is the one of an offset whose value was read, if no other appended that value
 * there. Offsets below a filled one with neither are filled by the crashed appends that are left,
 * the earliest called at the lowest offset: an exchange argument says that this is the best. The
 * other crashed appends are dropped: no read saw them, and they can go to the end. */
#include "internal_monitors.h"

typedef struct {
    int32_t value;  /* SHL_NONE: not known */
    int32_t append; /* who filled it, or SHL_NONE */
    int32_t read;   /* who read it first, or SHL_NONE */
    int32_t after;  /* the last called of those that it is filled after, or SHL_NONE */
    int32_t before; /* the first to return of those that it is filled before, or SHL_NONE */
} offset;

/* Who appended a value and crashed: the first, and how many. */
typedef struct {
    int32_t first;
    int32_t count;
    int32_t completed; /* one that did not crash */
    int32_t used_at;   /* the offset that the crashed one explains */
} appends;

typedef struct {
    const shl_history *history;
    offset *offsets;
    appends *values;
    int64_t length; /* so many offsets are filled for sure */
    int32_t shows;  /* who shows it */
    shl_answer *answer;
} log_monitor;

static int answered(log_monitor *log, int32_t verdict, int32_t violation, int32_t op0, int32_t op1,
                    int32_t op2)
{
    int32_t cause = verdict == SHL_UNKNOWN ? SHL_NOT_THIS_MONITOR : SHL_DECIDED;
    *log->answer = (shl_answer){verdict, cause, violation, {op0, op1, op2, SHL_NONE}};
    return 0;
}

static int invalid(log_monitor *log, int32_t violation, int32_t op0, int32_t op1)
{
    return answered(log, SHL_INVALID, violation, op0, op1, SHL_NONE);
}

static void filled_after(log_monitor *log, int64_t at, int64_t op)
{
    const shl_history *h = log->history;
    offset *here = &log->offsets[at];
    if (here->after == SHL_NONE || h->call[op] > h->call[here->after])
        here->after = (int32_t)op;
}

static void filled_before(log_monitor *log, int64_t at, int64_t op)
{
    const shl_history *h = log->history;
    offset *here = &log->offsets[at];
    if (here->before == SHL_NONE || h->ret[op] < h->ret[here->before])
        here->before = (int32_t)op;
    if (at >= log->length) {
        log->length = at + 1;
        log->shows = (int32_t)op;
    }
}

/* --- what is where -----------------------------------------------------------------------------*/

static int gather_appends(log_monitor *log)
{
    const shl_history *h = log->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_LOG_APPEND)
            continue;
        appends *value = &log->values[h->a[i]];
        if (h->ret[i] == SHL_NEVER) {
            value->first = value->count++ ? value->first : (int32_t)i;
            continue;
        }
        offset *here = &log->offsets[h->b[i]];
        if (here->append != SHL_NONE && h->b[i] < h->n)
            return invalid(log, SHL_LOG_TWICE, here->append, (int32_t)i);
        here->append = (int32_t)i;
        here->value = h->a[i];
        value->completed = (int32_t)i;
        filled_after(log, h->b[i], i);
        filled_before(log, h->b[i], i);
    }
    return 1;
}

static int reads(log_monitor *log, int64_t op)
{
    const shl_history *h = log->history;
    offset *here = &log->offsets[h->b[op]];
    filled_before(log, h->b[op], op);
    if (h->b[op] == h->n)
        return 1; /* there are not so many appends: found to be a gap below */
    if (here->value != SHL_NONE && here->value != h->a[op])
        return invalid(log, SHL_LOG_DIFFERS, (int32_t)op,
                       here->append == SHL_NONE ? here->read : here->append);
    here->value = h->a[op];
    here->read = here->read == SHL_NONE ? (int32_t)op : here->read;
    return 1;
}

static int gather_reads(log_monitor *log)
{
    const shl_history *h = log->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] == SHL_LOG_APPEND || h->f[i] > SHL_LOG_TAIL || h->ret[i] == SHL_NEVER)
            continue;
        if (h->f[i] == SHL_LOG_READ && !reads(log, i))
            return 0;
        if (h->f[i] != SHL_LOG_READ)
            filled_after(log, h->b[i], i);
        if (h->f[i] == SHL_LOG_TAIL && h->b[i] > 0)
            filled_before(log, h->b[i] - 1, i);
    }
    return 1;
}

/* --- who filled what has no known append -------------------------------------------------------*/

/* A value was read at an offset that no completed append filled: a crashed one did. */
static int explain(log_monitor *log, int64_t at)
{
    offset *here = &log->offsets[at];
    appends *value = &log->values[here->value];
    if (value->count > 1)
        return answered(log, SHL_UNKNOWN, SHL_LOG_CONTESTED, value->first, here->read, SHL_NONE);
    if (!value->count)
        return value->completed == SHL_NONE
                   ? invalid(log, SHL_LOG_FRESH, here->read, SHL_NONE)
                   : invalid(log, SHL_LOG_ELSEWHERE, here->read, value->completed);
    if (value->used_at != SHL_NONE)
        return invalid(log, SHL_LOG_ELSEWHERE, here->read, log->offsets[value->used_at].read);
    value->used_at = (int32_t)at;
    here->append = value->first;
    filled_after(log, at, value->first);
    return 1;
}

static int explain_reads(log_monitor *log)
{
    for (int64_t at = 0; at < log->length; at++)
        if (log->offsets[at].append == SHL_NONE && log->offsets[at].value != SHL_NONE
            && !explain(log, at))
            return 0;
    return 1;
}

static int is_left(const log_monitor *log, int64_t op)
{
    const shl_history *h = log->history;
    if (h->f[op] != SHL_LOG_APPEND || h->ret[op] != SHL_NEVER)
        return 0;
    const appends *value = &log->values[h->a[op]];
    return value->used_at == SHL_NONE || value->first != op;
}

static int fill_gaps(log_monitor *log)
{
    int64_t next = 0;
    for (int64_t at = 0; at < log->length; at++) {
        offset *here = &log->offsets[at];
        if (here->append != SHL_NONE)
            continue;
        while (next < log->history->n && !is_left(log, next))
            next++;
        if (next == log->history->n)
            return invalid(log, SHL_LOG_GAP, log->shows, SHL_NONE);
        here->append = (int32_t)next;
        filled_after(log, at, next++);
    }
    return 1;
}

/* --- when --------------------------------------------------------------------------------------*/

/* Makes `before` of each offset that of the offsets from there on. */
static void look_ahead(log_monitor *log)
{
    const int32_t *ret = log->history->ret;
    int32_t soonest = SHL_NONE;
    for (int64_t at = log->length - 1; at >= 0; at--) {
        int32_t here = log->offsets[at].before;
        if (soonest == SHL_NONE || (here != SHL_NONE && ret[here] < ret[soonest]))
            soonest = here;
        log->offsets[at].before = soonest;
    }
}

static int in_order(log_monitor *log)
{
    const shl_history *h = log->history;
    int32_t latest = SHL_NONE;
    look_ahead(log);
    for (int64_t at = 0; at < log->length; at++) {
        int32_t after = log->offsets[at].after, before = log->offsets[at].before;
        if (latest == SHL_NONE || (after != SHL_NONE && h->call[after] > h->call[latest]))
            latest = after;
        if (latest != SHL_NONE && h->call[latest] > h->ret[before])
            return invalid(log, SHL_LOG_ORDER, before, latest);
    }
    return 1;
}

static void check(log_monitor *log, shl_budget *budget)
{
    if (gather_appends(log) && gather_reads(log) && !shl_monitor_stops(budget, log->answer)
        && explain_reads(log) && fill_gaps(log) && !shl_monitor_stops(budget, log->answer))
        in_order(log);
}

void shl_check_log(const shl_history *history, shl_budget *budget, shl_answer *answer)
{
    int64_t offset_bytes = (history->n + 1) * (int64_t)sizeof(offset);
    int64_t value_bytes = history->values * (int64_t)sizeof(appends);
    log_monitor log = {.history = history, .answer = answer, .shows = SHL_NONE};
    log.offsets = shl_alloc(budget, offset_bytes);
    log.values = shl_alloc(budget, value_bytes);
    shl_monitor_valid(answer);
    if (log.offsets && log.values) {
        for (int64_t at = 0; at <= history->n; at++)
            log.offsets[at] = (offset){SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE};
        for (int32_t value = 0; value < history->values; value++)
            log.values[value] = (appends){SHL_NONE, 0, SHL_NONE, SHL_NONE};
        check(&log, budget);
    } else {
        shl_monitor_stops(budget, answer);
    }
    shl_free(budget, log.values, value_bytes);
    shl_free(budget, log.offsets, offset_bytes);
}
