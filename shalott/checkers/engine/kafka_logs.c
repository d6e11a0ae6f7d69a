/* What a key's log shows by itself: messages that are lost, twice there, never seen, never sent. */
#include "internal_kafka.h"

static shl_kafka_case case_of(const shl_kafka *k, int32_t number)
{
    const shl_kafka_message *message = &k->messages[number];
    return (shl_kafka_case){.offset = message->offset, .key = message->key, .first = number,
                            .second = SHL_NONE, .op = message->writer, .other = message->reader};
}

/* A message that stands at more than one offset. */
static int find_duplicates(shl_kafka *k)
{
    int64_t bytes = k->facts.messages * (int64_t)sizeof(int32_t);
    int32_t *times = shl_alloc_zeroed(k->budget, bytes);
    if (!times)
        return 0;
    for (int64_t at = 0; at < k->sighting_count; at++)
        times[k->sightings[at].message]++;
    for (int64_t at = 0; at < k->sighting_count; at++) {
        const shl_kafka_sighting *seen = &k->sightings[at];
        if (times[seen->message] < 2 || k->messages[seen->message].first != seen->index)
            continue;
        shl_kafka_case found = case_of(k, seen->message);
        found.offset = seen->offset;
        found.delta = times[seen->message];
        shl_kafka_note(k, SHL_KAFKA_DUPLICATE, found.delta, &found);
    }
    shl_free(k->budget, times, bytes);
    return 1;
}

/* Which message proves how far the key was read, and by that what else should have been. */
static int32_t furthest_read(const shl_kafka *k, const shl_kafka_key *key)
{
    int32_t furthest = SHL_NONE;
    for (int64_t at = key->sightings; at < key->sightings + key->sighted; at++) {
        const shl_kafka_sighting *seen = &k->sightings[at];
        if (k->messages[seen->message].flags & SHL_KAFKA_READ_OK &&
            k->messages[seen->message].first == seen->index)
            furthest = seen->message;
    }
    return furthest;
}

/* Several messages at one offset, or one message at several, leave open how far a read reached: the
 * read is held to a message's first place, and what should have been read to its last one. */
static void find_lost(shl_kafka *k, const shl_kafka_key *key)
{
    int32_t furthest = furthest_read(k, key);
    if (furthest == SHL_NONE)
        return;
    int32_t bound = k->messages[furthest].first;
    for (int64_t at = key->sightings; at < key->sightings + key->sighted; at++) {
        const shl_kafka_sighting *seen = &k->sightings[at];
        const shl_kafka_message *message = &k->messages[seen->message];
        if (seen->index > bound)
            break;
        if (message->last != seen->index || message->flags & SHL_KAFKA_READ_OK ||
            message->writer == SHL_NONE || !shl_kafka_committed(k, &k->ops[message->writer]))
            continue;
        shl_kafka_case found = case_of(k, seen->message);
        found.second = furthest;
        found.other = k->messages[furthest].reader;
        found.delta = bound - message->first;
        shl_kafka_note(k, SHL_KAFKA_LOST, -seen->index, &found);
    }
}

/* Per key how many acknowledged messages no client polled. */
static int find_unseen(shl_kafka *k)
{
    int64_t bytes = k->by_key.count * (int64_t)sizeof(shl_kafka_case);
    shl_kafka_case *by_key = shl_alloc_zeroed(k->budget, bytes);
    if (!by_key)
        return 0;
    for (int32_t number = 0; number < k->facts.messages; number++) {
        const shl_kafka_message *message = &k->messages[number];
        if (message->flags & SHL_KAFKA_READ && message->writer == SHL_NONE) {
            shl_kafka_case found = case_of(k, number);
            shl_kafka_note(k, SHL_KAFKA_UNWRITTEN, -number, &found);
        }
        if (!(message->flags & SHL_KAFKA_SENT_OK) || message->flags & SHL_KAFKA_READ_OK)
            continue;
        k->facts.unseen++;
        if (!by_key[message->key].delta++) {
            int64_t first = by_key[message->key].delta;
            by_key[message->key] = case_of(k, number);
            by_key[message->key].delta = first;
        }
    }
    for (int64_t key = 0; key < k->by_key.count; key++)
        if (by_key[key].delta)
            shl_kafka_note(k, SHL_KAFKA_UNSEEN, by_key[key].delta, &by_key[key]);
    shl_free(k->budget, by_key, bytes);
    return 1;
}

int shl_kafka_find_in_logs(shl_kafka *k)
{
    if (!find_duplicates(k) || !find_unseen(k))
        return 0;
    for (int64_t key = 0; key < k->by_key.count; key++)
        find_lost(k, &k->keys[key]);
    return !shl_check_budget(k->budget);
}
