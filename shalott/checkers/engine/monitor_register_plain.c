/* The register monitor for histories of reads and writes only: three passes without branches that
 * depend on the data. monitor_register.c has the theory, and does the rest. */
#include "internal_register.h"

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

static int contested(register_monitor *monitor, int32_t value)
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

/* Values that nobody read may have several writers: each is a zone of its own. */
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

void shl_register_plain(register_monitor *monitor)
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
            contested(monitor, undecided);
    }
    shl_free(monitor->budget, clusters, bytes);
}
