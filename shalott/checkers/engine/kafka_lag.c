/* How far polls are behind: for how long, at least, the newest that a poll knows has been old.
 *
 * An offset is old as soon as a higher one is known to be there. A process begins before the first
 * message of what it is assigned. */
#include "internal_kafka.h"

/* When a key was first known to reach an offset: both ascend. */
typedef struct {
    int64_t offset, time_ns;
} stair;

typedef struct {
    stair *stairs;     /* of each key, one key's behind the other's */
    int64_t *ends;     /* by key */
    int64_t *newest;   /* by key: the highest offset so far; then the process's */
    int64_t *old_from; /* by key: since when the process's newest is old */
    int32_t *is;       /* by key: the stretch in which the process has it */
    int32_t *has;      /* the keys that the process has */
    int64_t held, bytes, stair_bytes;
    int32_t stretch, oldest; /* the key that is old for longest; SHL_NONE: to be found anew */
} lags;

static int climbs(const shl_kafka *k, const shl_kafka_op *op, const shl_kafka_element *element,
                  const int64_t *newest)
{
    return shl_kafka_what(element) <= SHL_KAFKA_POLLED && op->type != SHL_FAIL &&
           op->ended_ns >= 0 &&
           element->offset > newest[k->messages[element->message].key];
}

/* Counts the stairs of each key, or writes them down. */
static void climb(const shl_kafka *k, lags *l, int writes)
{
    for (int64_t key = 0; key < k->by_key.count; key++)
        l->newest[key] = -1;
    for (int64_t number = 0; number < k->facts.ops; number++) {
        const shl_kafka_op *op = &k->ops[number];
        if (!shl_kafka_carries(op))
            continue;
        for (int64_t at = op->begin; at < op->begin + op->count; at++) {
            const shl_kafka_element *element = &k->elements[at];
            if (!climbs(k, op, element, l->newest))
                continue;
            int32_t key = k->messages[element->message].key;
            l->newest[key] = element->offset;
            if (writes)
                l->stairs[l->ends[key]] = (stair){element->offset, op->ended_ns};
            l->ends[writes ? key : key + 1]++;
        }
    }
}

static int make_lags(shl_kafka *k, lags *l)
{
    int64_t keys = k->by_key.count;
    *l = (lags){.bytes = (3 * keys + 1) * 8 + 2 * keys * 4};
    l->ends = shl_alloc_zeroed(k->budget, l->bytes);
    if (!l->ends)
        return 0;
    l->newest = l->ends + keys + 1;
    l->old_from = l->newest + keys;
    l->is = (int32_t *)(l->old_from + keys);
    l->has = l->is + keys;
    climb(k, l, 0);
    for (int64_t key = 0; key < keys; key++)
        l->ends[key + 1] += l->ends[key];
    l->stair_bytes = l->ends[keys] * (int64_t)sizeof(stair);
    l->stairs = shl_alloc(k->budget, l->stair_bytes);
    if (!l->stairs) {
        shl_free(k->budget, l->ends, l->bytes);
        return 0;
    }
    climb(k, l, 1); /* now the ends are where each key's stairs end */
    return 1;
}

/* Since when there is more than this offset; INT64_MAX: there is no more. */
static int64_t old_from(const lags *l, int32_t key, int64_t offset)
{
    int64_t low = key ? l->ends[key - 1] : 0, high = l->ends[key];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (l->stairs[middle].offset > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low < l->ends[key] ? l->stairs[low].time_ns : INT64_MAX;
}

static void hold(lags *l, int32_t key, int64_t offset)
{
    int has = l->is[key] == l->stretch;
    if (has && l->newest[key] >= offset)
        return;
    if (!has)
        l->has[l->held++] = key;
    l->is[key] = l->stretch;
    l->newest[key] = offset;
    l->old_from[key] = old_from(l, key, offset);
    if (l->oldest == key)
        l->oldest = SHL_NONE;
    else if (l->oldest != SHL_NONE && l->old_from[key] < l->old_from[l->oldest])
        l->oldest = key;
}

static void assign(const shl_kafka *k, lags *l, const shl_kafka_op *op)
{
    int32_t before = l->stretch++;
    l->held = 0;
    l->oldest = SHL_NONE;
    for (int64_t at = op->begin; op->f == SHL_KAFKA_ASSIGN && at < op->begin + op->count; at++) {
        int32_t key = k->elements[at].message;
        hold(l, key, l->is[key] == before ? l->newest[key] : -1);
    }
}

static void measure(shl_kafka *k, lags *l, int32_t number)
{
    const shl_kafka_op *op = &k->ops[number];
    for (int64_t at = op->begin; at < op->begin + op->count; at++)
        if (shl_kafka_what(&k->elements[at]) <= SHL_KAFKA_POLLED)
            hold(l, k->messages[k->elements[at].message].key, k->elements[at].offset);
    if (l->oldest == SHL_NONE) {
        for (int64_t at = 0; at < l->held; at++)
            if (l->oldest == SHL_NONE || l->old_from[l->has[at]] < l->old_from[l->oldest])
                l->oldest = l->has[at];
    }
    if (l->oldest == SHL_NONE || op->called_ns < 0)
        return;
    int64_t lag = op->called_ns - l->old_from[l->oldest];
    shl_kafka_facts *facts = &k->facts;
    if (lag < facts->lag || lag <= 0 || (lag == facts->lag && number > facts->lag_op))
        return;
    facts->lag = lag;
    facts->lag_time = op->called_ns;
    facts->lag_process = op->process;
    facts->lag_key = l->oldest;
    facts->lag_op = number;
}

int shl_kafka_find_lag(shl_kafka *k)
{
    lags l;
    int64_t *ends;
    if (k->facts.processless || !k->facts.ops)
        return 1;
    int32_t *numbers = shl_kafka_by_process(k, &ends);
    if (!numbers)
        return 0;
    int made = make_lags(k, &l);
    int64_t at = 0;
    for (int64_t who = 0; made && who < k->by_process.count; who++) {
        l.stretch += 2; /* nothing is held over from another process */
        l.held = 0;
        l.oldest = SHL_NONE;
        for (; at < ends[who]; at++) {
            const shl_kafka_op *op = &k->ops[numbers[at]];
            if (op->type != SHL_OK)
                continue;
            if (op->f == SHL_KAFKA_ASSIGN || op->f == SHL_KAFKA_SUBSCRIBE)
                assign(k, &l, op);
            else if (op->f == SHL_KAFKA_POLL || op->f == SHL_KAFKA_TXN)
                measure(k, &l, numbers[at]);
        }
    }
    if (made) {
        shl_free(k->budget, l.stairs, l.stair_bytes);
        shl_free(k->budget, l.ends, l.bytes);
    }
    shl_free(k->budget, ends, (k->by_process.count + 1) * (int64_t)sizeof *ends);
    shl_free(k->budget, numbers, k->facts.ops * (int64_t)sizeof *numbers);
    return made && !shl_check_budget(k->budget);
}
