/* What the register monitor asks of chains of values: how each is followed, whether their zones
 * agree, and whether compare-and-sets that failed fit in. monitor_register.c has the theory. */
#include "internal_monitors.h"

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

int shl_register_observed(const value_facts *facts)
{
    return facts->first_read != SHL_NEVER || facts->consumer != NO_OP;
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
        if (next == NO_OP)
            break;
        if (h->ret[next] < chain.s)
            return out_of_order(monitor, h->ret[next], chain.s, facts->writer);
        chain.f = h->ret[next] < chain.f ? h->ret[next] : chain.f;
        chain.s = h->call[next] > chain.s ? h->call[next] : chain.s;
        monitor->walked++;
        value = h->b[next];
        /* A value that no operation observed may have several writers: each ends its own chain. */
        if (!shl_register_observed(&monitor->values[value]))
            break;
    }
    *found = chain;
    return 1;
}

/* --- zones ------------------------------------------------------------------------------------*/

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

/* --- failed compare-and-sets ------------------------------------------------------------------*/

/* The register monitor's second half: compare-and-sets that failed.
 *
 * One that expected v and failed says that at some moment between its call and its return the
 * register did not hold v. Each can be before v or after it, and together they make a scheduling
 * problem, which is not decided here in general. What is decided, ours and sound:
 *
 * - Invalid, if what touches v (and its chain) says that v was there before the call and still
 *   after the return.
 * - Valid, if one linearization of all the rest has such a moment for each. It is made in the order
 *   of min(f, s) of the chains, each operation as early as it can be: values are replaced soon. A
 *   crashed write that no operation observed may have happened between two chains, where one is
 *   called early enough: k gaps that need one are served by the k first called, in order.
 * - Unknown otherwise. */

/* When one value is in the register, in the linearization that is tried, and in every one. A point
 * in time t is the moment right after the event of rank t. */
typedef struct {
    int32_t begun;       /* written at this point */
    int32_t left;        /* the last that had to happen while it was there */
    int32_t replaced;    /* the next value is written at this point; SHL_NEVER: none is */
    int32_t surely_by;   /* in every linearization it is written before this event */
    int32_t surely_till; /* ... and replaced after this one */
    int32_t wanted_by;   /* a crashed write has to replace it before this event; or SHL_NEVER */
    int32_t ends_chain;
} tenure;

typedef struct {
    register_monitor *monitor;
    tenure *tenures;   /* per value */
    int32_t *chain_at; /* per rank: the write that begins the chain whose min(f, s) it is */
    int32_t now;       /* the point up to which the linearization is made */
    int32_t holder;    /* the value in the register now, or SHL_NONE */
} schedule;

void shl_register_gather_refused(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    for (int64_t i = 0; i < h->n; i++)
        if (h->f[i] == SHL_REGISTER_REFUSED)
            monitor->values[h->a[i]].refused = 1;
}

static void advance(schedule *made, int32_t rank)
{
    made->now = rank > made->now ? rank : made->now;
}

static void put(schedule *made, int32_t value, int32_t call)
{
    advance(made, call);
    if (made->holder != SHL_NONE)
        made->tenures[made->holder].replaced = made->now;
    made->tenures[value].begun = made->now;
    made->tenures[value].left = made->now;
    made->holder = value;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* From the end of a chain to its root: what returned while a value was there, or later. */
static void look_back(schedule *made, int32_t value, int32_t root)
{
    const register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    int32_t by = SHL_NEVER;
    for (;;) {
        int32_t writer = monitor->values[value].writer;
        by = smaller(by, monitor->values[value].first_read);
        by = smaller(by, writer == INITIALLY ? -1 : h->ret[writer]);
        made->tenures[value].surely_by = by;
        if (value == root)
            return;
        value = h->a[writer];
    }
}

static void schedule_chain(schedule *made, int32_t root, int32_t call)
{
    const register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    int32_t value = root, till = call;
    for (;;) {
        put(made, value, call);
        tenure *here = &made->tenures[value];
        const value_facts *facts = &monitor->values[value];
        advance(made, facts->last_read);
        here->left = made->now;
        till = call > till ? call : till;
        till = facts->last_read > till ? facts->last_read : till;
        here->surely_till = till;
        if (facts->consumer == NO_OP)
            break;
        call = h->call[facts->consumer];
        value = h->b[facts->consumer];
    }
    made->tenures[value].ends_chain = 1;
    /* A value that no operation observed may have several writers, and then is not asked about. */
    if (!monitor->values[value].contested)
        look_back(made, value, root);
}

static void order_chains(schedule *made)
{
    register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    for (int32_t rank = 0; rank < h->ranks; rank++)
        made->chain_at[rank] = SHL_NONE;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_WRITE)
            continue;
        zone found = {h->ret[i], h->call[i]};
        if (shl_register_observed(&monitor->values[h->a[i]]))
            shl_register_walk(monitor, h->a[i], h->call[i], h->ret[i], &found);
        else if (h->ret[i] == SHL_NEVER)
            continue;
        made->chain_at[smaller(found.f, found.s)] = (int32_t)i;
    }
}

static void linearize(schedule *made)
{
    const register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    order_chains(made);
    if (monitor->initial != SHL_NONE)
        schedule_chain(made, monitor->initial, -1);
    for (int32_t rank = 0; rank < h->ranks; rank++) {
        int32_t root = made->chain_at[rank];
        if (root != SHL_NONE)
            schedule_chain(made, h->a[root], h->call[root]);
    }
}

/* --- does it agree with the failed ones? -------------------------------------------------------*/

static int held(register_monitor *monitor, const tenure *value, int32_t op)
{
    const shl_history *h = monitor->history;
    int32_t before = value->surely_by < 0 ? SHL_NONE : shl_returned_at(h, value->surely_by);
    return shl_register_invalid(monitor, SHL_REGISTER_HELD, op, before,
                                shl_called_at(h, value->surely_till), SHL_NONE);
}

/* SHL_NONE, or the first operation that this linearization has no moment for. */
static int32_t first_open(schedule *made, int *decided)
{
    register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    int32_t open = SHL_NONE;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_REFUSED)
            continue;
        tenure *value = &made->tenures[h->a[i]];
        if (value->begun == SHL_NEVER || value->begun > h->call[i] || value->replaced < h->ret[i])
            continue;
        if (value->surely_by < h->call[i] && value->surely_till > h->ret[i]) {
            held(monitor, value, (int32_t)i);
            *decided = 1;
            return SHL_NONE;
        }
        if (value->ends_chain && value->left < h->ret[i])
            value->wanted_by = smaller(value->wanted_by, h->ret[i]);
        else if (open == SHL_NONE)
            open = (int32_t)i;
    }
    return open;
}

static int is_spare(const register_monitor *monitor, int64_t op, int32_t f, int32_t value)
{
    const shl_history *h = monitor->history;
    return h->f[op] == f && h->ret[op] == SHL_NEVER && !monitor->values[value].refused
           && !shl_register_observed(&monitor->values[value]);
}

/* A crashed compare-and-set that expected a chain's last value can only replace that one. */
static void use_spare_cas(schedule *made)
{
    const shl_history *h = made->monitor->history;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->f[i] != SHL_REGISTER_CAS || !is_spare(made->monitor, i, SHL_REGISTER_CAS, h->b[i]))
            continue;
        tenure *value = &made->tenures[h->a[i]];
        if (value->ends_chain && h->call[i] < value->wanted_by)
            value->wanted_by = SHL_NEVER;
    }
}

static int32_t next_spare_write(const register_monitor *monitor, int64_t from)
{
    const shl_history *h = monitor->history;
    for (int64_t i = from; i < h->n; i++)
        if (is_spare(monitor, i, SHL_REGISTER_WRITE, h->a[i]))
            return (int32_t)i;
    return SHL_NONE;
}

/* Gaps in order of time, spare writes in order of their calls. */
static int use_spare_writes(schedule *made)
{
    const register_monitor *monitor = made->monitor;
    const shl_history *h = monitor->history;
    int64_t from = 0;
    for (int32_t rank = -1; rank < h->ranks; rank++) {
        int32_t root = rank < 0 ? SHL_NONE : made->chain_at[rank];
        int32_t value = rank < 0 ? monitor->initial : root == SHL_NONE ? SHL_NONE : h->a[root];
        if (value == SHL_NONE)
            continue;
        while (monitor->values[value].consumer != NO_OP)
            value = h->b[monitor->values[value].consumer];
        if (made->tenures[value].wanted_by == SHL_NEVER)
            continue;
        int32_t spare = next_spare_write(monitor, from);
        if (spare == SHL_NONE || h->call[spare] > made->tenures[value].wanted_by)
            return 0;
        from = spare + 1;
    }
    return 1;
}

static int32_t first_refused(const shl_history *history)
{
    int64_t i = 0;
    while (history->f[i] != SHL_REGISTER_REFUSED)
        i++;
    return (int32_t)i;
}

static int agree(schedule *made)
{
    register_monitor *monitor = made->monitor;
    int decided = 0;
    linearize(made);
    int32_t open = first_open(made, &decided);
    if (decided)
        return 0;
    if (open == SHL_NONE) {
        use_spare_cas(made);
        if (use_spare_writes(made))
            return 1;
        open = first_refused(monitor->history);
    }
    return shl_register_unknown(monitor, SHL_NOT_THIS_MONITOR, SHL_REGISTER_OPEN, open, SHL_NONE);
}

int shl_register_refused_agree(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    int64_t tenure_bytes = h->values * (int64_t)sizeof(tenure);
    int64_t rank_bytes = h->ranks * (int64_t)sizeof(int32_t);
    schedule made = {.monitor = monitor, .now = -1, .holder = SHL_NONE};
    int agreed;
    made.tenures = shl_alloc(monitor->budget, tenure_bytes);
    made.chain_at = shl_alloc(monitor->budget, rank_bytes);
    if (made.tenures && made.chain_at) {
        for (int32_t value = 0; value < h->values; value++)
            made.tenures[value] = (tenure){SHL_NEVER, SHL_NEVER, SHL_NEVER, SHL_NEVER,
                                           -1,        SHL_NEVER, 0};
        agreed = agree(&made);
    } else {
        agreed = shl_register_unknown(monitor, monitor->budget->stopped, 0, SHL_NONE, SHL_NONE);
    }
    shl_free(monitor->budget, made.chain_at, rank_bytes);
    shl_free(monitor->budget, made.tenures, tenure_bytes);
    return agreed;
}
