/* The order of each key: which message stands at which offset, and which offsets there are.
 *
 * What was polled is believed whatever became of the operation, since a consumer is never given
 * what might be taken back; what was sent is believed if it must have been committed. Offsets have
 * gaps (a transaction's marker takes one up), so an order counts the offsets that are known. */
#include "internal_kafka.h"

#include <string.h>

int shl_kafka_committed(const shl_kafka *k, const shl_kafka_op *op)
{
    if (op->type != SHL_INFO)
        return op->type == SHL_OK;
    for (int64_t at = op->begin; at < op->begin + op->count; at++)
        if (shl_kafka_what(&k->elements[at]) == SHL_KAFKA_SENT &&
            k->messages[k->elements[at].message].flags & SHL_KAFKA_READ_OK)
            return 1;
    return 0;
}

/* Most sightings repeat the first one of their message. */
static int see(shl_kafka *k, int32_t number, int64_t offset)
{
    shl_kafka_message *message = &k->messages[number];
    if (message->flags & SHL_KAFKA_SEEN && message->offset == offset)
        return 1;
    if (!shl_kafka_grow(k->budget, (void **)&k->sightings, &k->sighting_room, k->sighting_count,
                        sizeof *k->sightings))
        return 0;
    if (!(message->flags & SHL_KAFKA_SEEN)) {
        message->flags |= SHL_KAFKA_SEEN;
        message->offset = offset;
    }
    k->sightings[k->sighting_count++] = (shl_kafka_sighting){offset, number, SHL_NONE};
    k->keys[message->key].sighted++;
    return 1;
}

static int see_all(shl_kafka *k)
{
    for (int64_t number = 0; number < k->facts.ops; number++) {
        const shl_kafka_op *op = &k->ops[number];
        if (!shl_kafka_carries(op))
            continue;
        int committed = shl_kafka_committed(k, op);
        for (int64_t at = op->begin; at < op->begin + op->count; at++) {
            const shl_kafka_element *element = &k->elements[at];
            int what = shl_kafka_what(element);
            if (element->offset >= 0 && (what == SHL_KAFKA_POLLED ||
                                         (what == SHL_KAFKA_SENT && committed)) &&
                !see(k, element->message, element->offset))
                return 0;
        }
    }
    return !shl_check_budget(k->budget);
}

/* --- sorting ----------------------------------------------------------------------------------*/

static int is_before(const shl_kafka_sighting *a, const shl_kafka_sighting *b)
{
    return a->offset != b->offset ? a->offset < b->offset : a->message < b->message;
}

/* Merges runs that are in order, of which there are few: clients send and poll in order. */
static void sort_run(shl_kafka_sighting *rows, shl_kafka_sighting *spare, int64_t n)
{
    int64_t runs = 2;
    while (runs > 1) {
        runs = 0;
        for (int64_t low = 0, middle, high; low < n; low = high, runs++) {
            for (middle = low + 1; middle < n && !is_before(&rows[middle], &rows[middle - 1]);)
                middle++;
            for (high = middle + (middle < n); high < n &&
                                               !is_before(&rows[high], &rows[high - 1]);)
                high++;
            memcpy(spare, rows + low, (size_t)(middle - low) * sizeof *rows);
            int64_t left = 0, lefts = middle - low, right = middle;
            for (int64_t at = low; left < lefts; at++)
                rows[at] = right >= high || !is_before(&rows[right], &spare[left])
                               ? spare[left++] : rows[right++];
        }
    }
}

/* By key, and in each key by offset; a sighting that came twice is left out. */
static int sort_sightings(shl_kafka *k)
{
    int64_t bytes = k->sighting_count * (int64_t)sizeof *k->sightings, placed = 0;
    shl_kafka_sighting *by_key = shl_alloc(k->budget, bytes);
    if (!by_key)
        return 0;
    for (int64_t key = 0; key < k->by_key.count; key++) {
        k->keys[key].sightings = placed;
        placed += k->keys[key].sighted;
        k->keys[key].sighted = 0;
    }
    for (int64_t at = 0; at < k->sighting_count; at++) {
        shl_kafka_key *key = &k->keys[k->messages[k->sightings[at].message].key];
        by_key[key->sightings + key->sighted++] = k->sightings[at];
    }
    int64_t kept = 0;
    for (int64_t number = 0; number < k->by_key.count; number++) {
        shl_kafka_key *key = &k->keys[number];
        shl_kafka_sighting *rows = by_key + key->sightings;
        sort_run(rows, k->sightings + kept, key->sighted); /* what stood there was copied */
        key->sightings = kept;
        for (int64_t at = 0; at < key->sighted; at++)
            if (!at || is_before(&rows[at - 1], &rows[at]))
                k->sightings[kept++] = rows[at];
        key->sighted = kept - key->sightings;
    }
    k->sighting_count = kept;
    shl_free(k->budget, by_key, bytes);
    return !shl_check_budget(k->budget);
}

/* --- orders -----------------------------------------------------------------------------------*/

/* Of several messages at one offset, the one that the order has there: one that stands nowhere
 * else, so that the others keep a place; among those one that a client polled. */
static int32_t chosen(const shl_kafka *k, const shl_kafka_sighting *rows, int64_t count)
{
    int32_t best = rows[0].message, best_worth = -1;
    for (int64_t at = 0; at < count; at++) {
        const shl_kafka_message *message = &k->messages[rows[at].message];
        int worth = 2 * (message->first == message->last) +
                    (message->flags & SHL_KAFKA_READ_OK ? 1 : 0);
        if (worth > best_worth) {
            best = rows[at].message;
            best_worth = worth;
        }
    }
    return best;
}

static int64_t end_of_offset(const shl_kafka *k, int64_t at, int64_t end)
{
    int64_t offset = k->sightings[at].offset;
    while (at < end && k->sightings[at].offset == offset)
        at++;
    return at;
}

static void order_key(shl_kafka *k, int32_t number)
{
    shl_kafka_key *key = &k->keys[number];
    int64_t end = key->sightings + key->sighted;
    int32_t index = 0;
    for (int64_t at = key->sightings; at < end; index++) {
        for (int64_t next = end_of_offset(k, at, end); at < next; at++) {
            shl_kafka_message *message = &k->messages[k->sightings[at].message];
            k->sightings[at].index = index;
            message->last = index;
            if (message->first == SHL_NONE)
                message->first = index;
        }
    }
    key->begin = k->order_length;
    key->length = index;
    index = 0;
    for (int64_t at = key->sightings; at < end; index++) {
        int64_t next = end_of_offset(k, at, end), count = next - at;
        int32_t message = chosen(k, k->sightings + at, count);
        k->order[k->order_length++] = message;
        k->messages[message].index = index;
        if (count > 1) {
            shl_kafka_case found = {.delta = count, .offset = k->sightings[at].offset,
                                    .key = number, .first = k->sightings[at].message,
                                    .second = k->sightings[at + 1].message, .op = SHL_NONE,
                                    .other = SHL_NONE, .index = index};
            shl_kafka_note(k, SHL_KAFKA_INCONSISTENT, -count, &found);
        }
        at = next;
    }
}

int shl_kafka_make_orders(shl_kafka *k)
{
    if (!see_all(k) || !sort_sightings(k))
        return 0;
    k->order = shl_alloc(k->budget, k->sighting_room * (int64_t)sizeof *k->order);
    if (!k->order)
        return 0;
    for (int32_t key = 0; key < k->by_key.count; key++)
        order_key(k, key);
    k->facts.placed = k->order_length;
    return 1;
}
