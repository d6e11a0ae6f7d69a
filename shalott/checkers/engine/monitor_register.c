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
 * before what belongs to an earlier one is called. What crashed is dropped when no operation
 * observed its value: without it every linearization stays one. What crashed and was observed did
 * happen, at any time after its call. The initial value was written before everything. */
#include "internal_monitors.h"

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
    if (facts->writer == NO_OP)
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
        if (facts->consumer != NO_OP)
            facts->consumed_twice = 1;
        else
            facts->consumer = op;
        value = h->a[op];
        op = facts->writer;
    }
}

/* A compare-and-set of a value to itself is a read: it replaces nothing. */
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
        } else if (facts->consumer != NO_OP) {
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
        if (shl_register_observed(facts) && facts->writer == NO_OP)
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
        for (; !reached[value] && monitor->values[value].consumer != NO_OP;
             value = h->b[monitor->values[value].consumer])
            reached[value] = 1;
    }
    int32_t at = 0, ops[4] = {SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE};
    while (reached[at] || monitor->values[at].consumer == NO_OP)
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
        kept += monitor->values[value].consumer != NO_OP;
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

static int zones_agree(register_monitor *monitor)
{
    zone initially = {-1, -1};
    if (monitor->initial != SHL_NONE && shl_register_observed(&monitor->values[monitor->initial])
        && !shl_register_walk(monitor, monitor->initial, -1, -1, &initially))
        return 0;
    return lay_zones(monitor) && shl_register_sweep(monitor, initially);
}

/* --- reads and writes only --------------------------------------------------------------------*/

/* Three passes without branches that depend on the data. */

enum { NOT_WRITTEN = -2, SEVERAL = -3, AHEAD = 16 };

/* One value: when it was written and read. */
typedef struct {
    int32_t call; /* of its write; -1: it was there at first; NOT_WRITTEN; SEVERAL writes */
    int32_t ret;
    int32_t first_read; /* the first rank at which a read returned it, or SHL_NEVER */
    int32_t last_read;  /* the last at which one was called, or -1 */
} cluster;

static void gather(const shl_history *history, cluster *clusters)
{
    const shl_history h = *history;
    for (int64_t i = 0; i < h.n; i++) {
        /* Values come in any order: each is asked for some rows ahead. */
        int32_t soon = h.a[i + AHEAD < h.n ? i + AHEAD : i];
        __builtin_prefetch(&clusters[soon < 0 ? 0 : soon], 1);
        int32_t call = h.call[i], ret = h.ret[i];
        int writes = h.f[i] == SHL_REGISTER_WRITE;
        int reads = (h.f[i] == SHL_REGISTER_READ) & (ret != SHL_NEVER);
        cluster *here = &clusters[h.a[i] < 0 ? 0 : h.a[i]];
        cluster now = *here;
        int32_t read_ret = reads ? ret : SHL_NEVER, read_call = reads ? call : -1;
        int32_t write_call = now.call == NOT_WRITTEN ? call : SEVERAL;
        now.first_read = read_ret < now.first_read ? read_ret : now.first_read;
        now.last_read = read_call > now.last_read ? read_call : now.last_read;
        now.call = writes ? write_call : now.call;
        now.ret = writes ? ret : now.ret;
        *here = now;
    }
}

static int32_t first_writer(const shl_history *h, int32_t value, int32_t after)
{
    for (int64_t i = after + 1; i < h->n; i++)
        if (h->f[i] == SHL_REGISTER_WRITE && h->a[i] == value)
            return (int32_t)i;
    return SHL_NONE;
}

static int written_twice(register_monitor *monitor, int32_t value)
{
    int32_t one = first_writer(monitor->history, value, -1);
    int32_t other = value == monitor->initial ? one : first_writer(monitor->history, value, one);
    return shl_register_unknown(monitor, SHL_NOT_THIS_MONITOR, SHL_REGISTER_CONTESTED, one, other);
}

/* A value was read that was not written, or not yet. */
static int refuse(register_monitor *monitor, const cluster *here)
{
    const shl_history *h = monitor->history;
    int32_t reader = shl_returned_at(h, here->first_read);
    if (here->call == NOT_WRITTEN)
        return shl_register_invalid(monitor, SHL_REGISTER_FRESH, reader, SHL_NONE, SHL_NONE,
                                    SHL_NONE);
    return shl_register_invalid(monitor, SHL_REGISTER_FUTURE, reader, shl_called_at(h, here->call),
                                SHL_NONE, SHL_NONE);
}

/* Values that no operation read may have several writers: each is a zone of its own. */
static void lay_unread(register_monitor *monitor, const cluster *clusters)
{
    const shl_history *h = monitor->history;
    for (int64_t i = 0; i < h->n; i++)
        if (h->f[i] == SHL_REGISTER_WRITE && h->ret[i] != SHL_NEVER
            && clusters[h->a[i]].call == SEVERAL
            && clusters[h->a[i]].first_read == SHL_NEVER)
            monitor->s_of[h->ret[i]] = h->call[i];
}

/* *undecided: a value that was read and has several writers. It is left out, since what is wrong
 * with the others is wrong with it or without. */
static int lay(register_monitor *monitor, const cluster *clusters, int32_t *undecided)
{
    int several = 0;
    *undecided = SHL_NONE;
    for (int32_t value = 0; value < monitor->history->values; value++) {
        const cluster *here = &clusters[value];
        int unread = here->first_read == SHL_NEVER;
        /* SEVERAL and NOT_WRITTEN are below every rank: one comparison finds all that is wrong. */
        if (!unread && (here->call < -1 || here->first_read < here->call)) {
            if (here->call != SEVERAL)
                return refuse(monitor, here);
            *undecided = value;
        }
        several |= here->call == SEVERAL;
        if (here->call < 0 || (unread && here->ret == SHL_NEVER))
            continue;
        int32_t f = here->ret < here->first_read ? here->ret : here->first_read;
        monitor->s_of[f] = here->call > here->last_read ? here->call : here->last_read;
    }
    if (several)
        lay_unread(monitor, clusters);
    return 1;
}

static void check_plain(register_monitor *monitor)
{
    const shl_history *h = monitor->history;
    int64_t bytes = (h->values + 1) * (int64_t)sizeof(cluster);
    cluster *clusters = shl_alloc_used(monitor->budget, bytes);
    if (!clusters) {
        shl_register_unknown(monitor, monitor->budget->stopped, 0, SHL_NONE, SHL_NONE);
        return;
    }
    for (int32_t value = 0; value <= h->values; value++)
        clusters[value] = (cluster){NOT_WRITTEN, NOT_WRITTEN, SHL_NEVER, -1};
    if (monitor->initial != SHL_NONE)
        clusters[monitor->initial].call = clusters[monitor->initial].ret = -1;
    gather(h, clusters);
    int32_t undecided;
    if (shl_register_may_go_on(monitor) && lay(monitor, clusters, &undecided)
        && shl_register_may_go_on(monitor)) {
        zone initially = {-1, -1};
        if (monitor->initial != SHL_NONE && clusters[monitor->initial].call != SEVERAL)
            initially.s = clusters[monitor->initial].last_read;
        if (shl_register_sweep(monitor, initially) && undecided != SHL_NONE)
            written_twice(monitor, undecided);
    }
    shl_free(monitor->budget, clusters, bytes);
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
        monitor->values[value] = (value_facts){.writer = NO_OP, .consumer = NO_OP,
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
        check_plain(&monitor);
    shl_free(budget, monitor.s_of, bytes);
}
