/* The register monitor: zones of values, in linear time once events are ranked.
 *
 * Gibbons and Korach (SICOMP 1997): with distinct writes, all that touches one value is a cluster,
 * which must be contiguous in a linearization. f is the first return in it, s the last call. A
 * cluster can't precede another whose f is before its own s. That relation is a Ferrers one, so it
 * has a cycle only if two clusters forbid each other: two forward zones [f, s] overlap, or a
 * backward zone [s, f] lies within a forward one. A sweep over f with a running maximum of s finds
 * the first such pair.
 *
 * Ours: a successful compare-and-set glues the cluster that it ends to the one that it begins, so
 * clusters are chains of values, and within a chain what belongs to a later value may not return
 * before what belongs to an earlier one is called. What crashed is dropped when nobody observed its
 * value: without it every linearization stays one. What crashed and was observed did happen, at any
 * time after its call. The initial value was written before everything. */
#include "monitor_register.h"

#include "internal_register.h"

/* --- answers -----------------------------------------------------------------------------------*/

int shl_register_invalid(register_monitor *monitor, int32_t violation, int32_t op0, int32_t op1,
                         int32_t op2, int32_t op3)
{
    *monitor->answer = (shl_answer){SHL_INVALID, SHL_DECIDED, violation, {op0, op1, op2, op3}};
    return 0;
}

int shl_register_unknown(register_monitor *monitor, int32_t cause, int32_t why, int32_t op0,
                         int32_t op1)
{
    *monitor->answer = (shl_answer){SHL_UNKNOWN, cause, why, {op0, op1, SHL_NONE, SHL_NONE}};
    return 0;
}

/* False when the budget is spent: the answer says so. */
int shl_register_may_go_on(register_monitor *monitor)
{
    int32_t stopped = shl_check_budget(monitor->budget);
    return !stopped || shl_register_unknown(monitor, stopped, 0, SHL_NONE, SHL_NONE);
}

int32_t shl_called_at(const shl_history *history, int32_t rank)
{
    int64_t low = 0, high = history->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (history->call[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < history->n && history->call[low] == rank ? (int32_t)low : SHL_NONE;
}

int32_t shl_returned_at(const shl_history *history, int32_t rank)
{
    for (int64_t i = 0; i < history->n; i++)
        if (history->ret[i] == rank)
            return (int32_t)i;
    return SHL_NONE;
}

/* --- who observed and who wrote what -----------------------------------------------------------*/

static void gather_reads(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_READ || h->ret[i] == SHL_NEVER)
            continue;
        value_facts *facts = &monitor->values[h->a[i]];
        facts->first_read = h->ret[i] < facts->first_read ? h->ret[i] : facts->first_read;
        facts->last_read = h->call[i]; /* calls ascend */
    }
}

static void note_writer(register_monitor *monitor, int32_t value, int32_t op)
{
    value_facts *facts = &monitor->values[value];
    if (facts->writer == NOBODY)
        facts->writer = op;
    else
        facts->contested = 1;
}

static void gather_writers(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    if (monitor->initial != SHL_NONE)
        monitor->values[monitor->initial].writer = INITIALLY;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] == SHL_REGISTER_WRITE)
            note_writer(monitor, h->a[i], (int32_t)i);
        else if (h->f[i] == SHL_REGISTER_CAS && h->a[i] != h->b[i])
            note_writer(monitor, h->b[i], (int32_t)i);
        monitor->has_cas |= h->f[i] == SHL_REGISTER_CAS;
        monitor->has_refused |= h->f[i] == SHL_REGISTER_REFUSED;
    }
}

static int is_crashed_cas(const register_monitor *monitor, int32_t op)
{
    const shl_history *h = monitor->history;
    return op >= 0 && h->f[op] == SHL_REGISTER_CAS && h->ret[op] == SHL_NEVER;
}

int shl_register_observed(const value_facts *facts)
{
    return facts->first_read != SHL_NEVER || facts->consumer != NOBODY;
}

/* The value was observed, so if a crashed compare-and-set is its writer, that one happened, and
 * observed the value that it replaced; and so on up the chain. */
static void keep_writers(register_monitor *monitor, int32_t value)
{
    const shl_history *h = monitor->history;
    int32_t op = monitor->values[value].writer;
    while (is_crashed_cas(monitor, op) && !monitor->values[value].kept
           && !monitor->values[value].contested) {
        value_facts *facts = &monitor->values[h->a[op]];
        monitor->values[value].kept = 1;
        if (facts->consumer != NOBODY)
            facts->consumed_twice = 1;
        else
            facts->consumer = op;
        value = h->a[op];
        op = facts->writer;
    }
}

/* A compare-and-set of a value to itself is a read: nobody replaces anything. */
static void gather_consumers(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_CAS || h->ret[i] == SHL_NEVER)
            continue;
        value_facts *facts = &monitor->values[h->a[i]];
        if (h->a[i] == h->b[i]) {
            facts->first_read = h->ret[i] < facts->first_read ? h->ret[i] : facts->first_read;
            facts->last_read = h->call[i] > facts->last_read ? h->call[i] : facts->last_read;
        } else if (facts->consumer != NOBODY) {
            facts->consumed_twice = 1;
        } else {
            facts->consumer = (int32_t)i;
        }
    }
    for (int32_t value = 0; value < h->values; value++)
        if (shl_register_observed(&monitor->values[value]))
            keep_writers(monitor, value);
}

/* --- values by themselves ----------------------------------------------------------------------*/

static int32_t observer_of(const register_monitor *monitor, int32_t value)
{
    const value_facts *facts = &monitor->values[value];
    return facts->first_read != SHL_NEVER ? shl_returned_at(monitor->history, facts->first_read)
                                          : facts->consumer;
}

static int contested(register_monitor *monitor, int32_t value)
{
    const shl_history *h = monitor->history;
    int32_t first = monitor->values[value].writer;
    for (int64_t i = 0; i < h->n; i++) {
        int32_t written = h->f[i] == SHL_REGISTER_WRITE                       ? h->a[i]
                          : h->f[i] == SHL_REGISTER_CAS && h->a[i] != h->b[i] ? h->b[i]
                                                                              : SHL_NONE;
        if (written == value && i != first)
            return shl_register_unknown(monitor, SHL_NOT_THIS_MONITOR, SHL_REGISTER_CONTESTED,
                                        first < 0 ? (int32_t)i : first, (int32_t)i);
    }
    return 0;
}

static int consumed_twice(register_monitor *monitor, int32_t value)
{
    const shl_history *h = monitor->history;
    int32_t first = SHL_NONE;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_CAS || h->a[i] != value || h->b[i] == value)
            continue;
        if (h->ret[i] == SHL_NEVER
            && !(monitor->values[h->b[i]].kept && monitor->values[h->b[i]].writer == i))
            continue;
        if (first != SHL_NONE)
            return shl_register_invalid(monitor, SHL_REGISTER_TWICE, first, (int32_t)i, SHL_NONE,
                                        SHL_NONE);
        first = (int32_t)i;
    }
    return 0;
}

/* Each observed value has exactly one writer and at most one consumer, or the answer is given. */
static int values_hold(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    for (int32_t value = 0; value < h->values; value++) {
        const value_facts *facts = &monitor->values[value];
        if (shl_register_observed(facts) && facts->writer == NOBODY)
            return shl_register_invalid(monitor, SHL_REGISTER_FRESH,
                                        observer_of(monitor, value), SHL_NONE, SHL_NONE, SHL_NONE);
    }
    for (int32_t value = 0; value < h->values; value++) {
        const value_facts *facts = &monitor->values[value];
        if (facts->contested && (shl_register_observed(facts) || facts->refused))
            return contested(monitor, value);
    }
    for (int32_t value = 0; monitor->has_cas && value < h->values; value++)
        if (monitor->values[value].consumed_twice)
            return consumed_twice(monitor, value);
    return 1;
}

/* --- chains ------------------------------------------------------------------------------------*/

/* An operation returned at rank `ret`, before one that precedes it in the chain was called. */
static int out_of_order(register_monitor *monitor, int32_t ret, int32_t call, int32_t writer)
{
    int32_t later = shl_returned_at(monitor->history, ret);
    int32_t earlier = shl_called_at(monitor->history, call);
    int32_t violation = earlier == writer ? SHL_REGISTER_FUTURE : SHL_REGISTER_CHAIN;
    return shl_register_invalid(monitor, violation, later, earlier, SHL_NONE, SHL_NONE);
}

/* Follows a chain from `value`, whose writer was called and returned at these ranks. */
int shl_register_walk(register_monitor *monitor, int32_t value, int32_t call, int32_t ret,
                      zone *found)
{
    const shl_history *h = monitor->history;
    zone chain = {ret, call};
    for (;;) {
        const value_facts *facts = &monitor->values[value];
        if (facts->first_read < chain.s)
            return out_of_order(monitor, facts->first_read, chain.s, facts->writer);
        chain.f = facts->first_read < chain.f ? facts->first_read : chain.f;
        chain.s = facts->last_read > chain.s ? facts->last_read : chain.s;
        int32_t next = facts->consumer;
        if (next == NOBODY)
            break;
        if (h->ret[next] < chain.s)
            return out_of_order(monitor, h->ret[next], chain.s, facts->writer);
        chain.f = h->ret[next] < chain.f ? h->ret[next] : chain.f;
        chain.s = h->call[next] > chain.s ? h->call[next] : chain.s;
        monitor->walked++;
        value = h->b[next];
        /* A value that nobody observed may have several writers: each ends its own chain. */
        if (!shl_register_observed(&monitor->values[value]))
            break;
    }
    *found = chain;
    return 1;
}

static int cycle(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    uint8_t *reached = shl_alloc_zeroed(monitor->budget, h->values);
    if (!reached)
        return shl_register_unknown(monitor, monitor->budget->stopped, 0, SHL_NONE, SHL_NONE);
    for (int32_t root = 0; root < h->values; root++) {
        int32_t writer = monitor->values[root].writer;
        if (writer != INITIALLY && (writer < 0 || h->f[writer] != SHL_REGISTER_WRITE))
            continue;
        int32_t value = root;
        for (; !reached[value] && monitor->values[value].consumer != NOBODY;
             value = h->b[monitor->values[value].consumer])
            reached[value] = 1;
    }
    int32_t at = 0, ops[4] = {SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE};
    while (reached[at] || monitor->values[at].consumer == NOBODY)
        at++;
    /* Everything not reached hangs on a cycle, or is on one: go up far enough to be on it. */
    for (int32_t steps = 0; steps < h->values; steps++)
        at = h->a[monitor->values[at].writer];
    for (int32_t i = 0, value = at; i < 4 && (i == 0 || value != at); i++) {
        ops[i] = monitor->values[value].consumer;
        value = h->b[ops[i]];
    }
    shl_free(monitor->budget, reached, h->values);
    return shl_register_invalid(monitor, SHL_REGISTER_CYCLE, ops[0], ops[1], ops[2], ops[3]);
}

/* --- zones -------------------------------------------------------------------------------------*/

static int64_t kept_cas(const register_monitor *monitor)
{
    int64_t kept = 0;
    for (int32_t value = 0; monitor->has_cas && value < monitor->history->values; value++)
        kept += monitor->values[value].consumer != NOBODY;
    return kept;
}

/* monitor->s_of[f] is the s of the chain whose first return has rank f. */
static int lay_zones(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_WRITE)
            continue;
        zone found = {h->ret[i], h->call[i]};
        if (shl_register_observed(&monitor->values[h->a[i]])) {
            if (!shl_register_walk(monitor, h->a[i], h->call[i], h->ret[i], &found))
                return 0;
        } else if (h->ret[i] == SHL_NEVER) {
            continue;
        }
        monitor->s_of[found.f] = found.s;
    }
    return monitor->walked == kept_cas(monitor) || cycle(monitor);
}

static int stale(register_monitor *monitor, zone one, zone other)
{
    const shl_history *h = monitor->history;
    return shl_register_invalid(monitor, SHL_REGISTER_STALE,
                                one.f < 0 ? SHL_NONE : shl_returned_at(h, one.f),
                                shl_called_at(h, other.s), shl_returned_at(h, other.f),
                                shl_called_at(h, one.s));
}

/* SHL_NONE is below every f, so ranks that begin no zone need no test of their own. */
int shl_register_sweep(register_monitor *monitor, zone widest)
{
    const int32_t *s_of = monitor->s_of;
    int32_t ranks = monitor->history->ranks;
    for (int32_t f = 0; f < ranks; f++) {
        int32_t s = s_of[f];
        if ((widest.s > f) & (widest.f < s))
            return stale(monitor, widest, (zone){f, s});
        widest.f = s > widest.s ? f : widest.f;
        widest.s = s > widest.s ? s : widest.s;
    }
    return 1;
}

static int zones_agree(register_monitor *monitor)
{
    zone initially = {-1, -1};
    if (monitor->initial != SHL_NONE && shl_register_observed(&monitor->values[monitor->initial])
        && !shl_register_walk(monitor, monitor->initial, -1, -1, &initially))
        return 0;
    return lay_zones(monitor) && shl_register_sweep(monitor, initially);
}

/* --- the check ---------------------------------------------------------------------------------*/

static int holds(register_monitor *monitor)
{
    gather_writers(monitor);
    gather_reads(monitor);
    if (monitor->has_cas)
        gather_consumers(monitor);
    if (monitor->has_refused)
        shl_register_gather_refused(monitor);
    if (!shl_register_may_go_on(monitor) || !values_hold(monitor))
        return 0;
    if (!shl_register_may_go_on(monitor) || !zones_agree(monitor))
        return 0;
    return !monitor->has_refused
           || (shl_register_may_go_on(monitor) && shl_register_refused_agree(monitor));
}

static void check_with_cas(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    int64_t bytes = h->values * (int64_t)sizeof(value_facts);
    monitor->values = shl_alloc(monitor->budget, bytes);
    if (!monitor->values) {
        shl_register_unknown(monitor, monitor->budget->stopped, 0, SHL_NONE, SHL_NONE);
        return;
    }
    for (int32_t value = 0; value < h->values; value++)
        monitor->values[value] = (value_facts){.writer = NOBODY, .consumer = NOBODY,
                                            .first_read = SHL_NEVER, .last_read = -1};
    holds(monitor);
    shl_free(monitor->budget, monitor->values, bytes);
}

void shl_check_register(const shl_history *history, int32_t initial, shl_budget *budget,
                        shl_answer *answer)
{
    int64_t bytes = history->ranks * (int64_t)sizeof(int32_t);
    register_monitor monitor = {.history = history, .initial = initial, .budget = budget,
                          .answer = answer};
    *answer = (shl_answer){SHL_VALID, SHL_DECIDED, 0, {SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE}};
    monitor.s_of = shl_alloc_used(budget, bytes);
    if (!monitor.s_of) {
        shl_register_unknown(&monitor, budget->stopped, 0, SHL_NONE, SHL_NONE);
        return;
    }
    for (int32_t rank = 0; rank < history->ranks; rank++)
        monitor.s_of[rank] = SHL_NONE;
    if (history->b)
        check_with_cas(&monitor);
    else
        shl_register_plain(&monitor);
    shl_free(budget, monitor.s_of, bytes);
}
