/* What an operation shows by itself: aborted and precommitted reads, and sends and polls of one key
 * that skip messages or go back. */
#include "internal_kafka.h"

#include <string.h>

/* By key: which operation was here last, and the newest message of it. */
typedef struct {
    int32_t *op[2]; /* of the sends, of the polls */
    int32_t *message[2];
    int32_t *moved; /* the operation during which a rebalance moved the key */
    int32_t *told;  /* the operation whose precommitted read of the key was told */
    int32_t *sent;  /* by message: the operation that sends it */
    int64_t bytes;
} marks;

static int make_marks(shl_kafka *k, marks *m)
{
    int64_t keys = k->by_key.count;
    m->bytes = (6 * keys + k->facts.messages) * (int64_t)sizeof(int32_t);
    int32_t *memory = shl_alloc_used(k->budget, m->bytes);
    if (!memory)
        return 0;
    memset(memory, 0xff, (size_t)m->bytes);
    *m = (marks){{memory, memory + keys}, {memory + 2 * keys, memory + 3 * keys},
                 memory + 4 * keys, memory + 5 * keys, memory + 6 * keys, m->bytes};
    return 1;
}

static void find_within(shl_kafka *k, marks *m, int32_t number, const shl_kafka_element *element)
{
    int what = shl_kafka_what(element);
    int32_t key = k->messages[element->message].key;
    int32_t before = m->op[what][key] == number ? m->message[what][key] : SHL_NONE;
    m->op[what][key] = number;
    m->message[what][key] = element->message;
    if (before == SHL_NONE || (what == SHL_KAFKA_POLLED && m->moved[key] == number))
        return;
    int64_t delta = shl_kafka_distance(k, before, element->message);
    if (delta == 1)
        return;
    shl_kafka_case found = {.delta = delta, .offset = element->offset, .key = key,
                            .first = before, .second = element->message, .op = number,
                            .other = SHL_NONE};
    int kind = what == SHL_KAFKA_POLLED
                   ? (delta > 1 ? SHL_KAFKA_INT_POLL_SKIP : SHL_KAFKA_INT_NONMONOTONIC_POLL)
                   : (delta > 1 ? SHL_KAFKA_INT_SEND_SKIP : SHL_KAFKA_INT_NONMONOTONIC_SEND);
    shl_kafka_note(k, kind, delta > 1 ? delta : -delta, &found);
}

static void find_aborted(shl_kafka *k, int32_t number, const shl_kafka_element *element)
{
    const shl_kafka_message *message = &k->messages[element->message];
    if (k->ops[number].type != SHL_OK || !(message->flags & SHL_KAFKA_SENT_FAIL) ||
        message->flags & (SHL_KAFKA_SENT_OK | SHL_KAFKA_SENT_INFO))
        return;
    shl_kafka_case found = {.offset = element->offset, .key = message->key,
                            .first = element->message, .second = SHL_NONE,
                            .op = message->writer, .other = number};
    shl_kafka_note(k, SHL_KAFKA_G1A, -number, &found);
}

/* Its own send, before it could be committed: once a key. */
static void find_precommitted(shl_kafka *k, marks *m, int32_t number,
                              const shl_kafka_element *element)
{
    int32_t key = k->messages[element->message].key;
    if (m->sent[element->message] != number || m->told[key] == number)
        return;
    m->told[key] = number;
    shl_kafka_case found = {.offset = element->offset, .key = key, .first = element->message,
                            .second = SHL_NONE, .op = number, .other = SHL_NONE};
    shl_kafka_note(k, SHL_KAFKA_PRECOMMITTED, -number, &found);
}

static void find_in(shl_kafka *k, marks *m, int32_t number)
{
    const shl_kafka_op *op = &k->ops[number];
    const shl_kafka_element *begin = k->elements + op->begin, *end = begin + op->count;
    for (const shl_kafka_element *at = begin; at < end; at++) {
        if (shl_kafka_what(at) == SHL_KAFKA_SENT)
            m->sent[at->message] = number;
        else if (shl_kafka_what(at) == SHL_KAFKA_MOVED)
            m->moved[at->message] = number;
    }
    for (const shl_kafka_element *at = begin; at < end; at++) {
        int what = shl_kafka_what(at);
        if (what > SHL_KAFKA_POLLED)
            continue;
        find_within(k, m, number, at);
        if (what == SHL_KAFKA_POLLED) {
            find_aborted(k, number, at);
            find_precommitted(k, m, number, at);
        }
    }
}

int shl_kafka_find_in_operations(shl_kafka *k)
{
    marks m;
    if (!make_marks(k, &m))
        return 0;
    for (int32_t number = 0; number < k->facts.ops; number++)
        if (shl_kafka_carries(&k->ops[number]))
            find_in(k, &m, number);
    shl_free(k->budget, m.op[0], m.bytes);
    return !shl_check_budget(k->budget);
}
