/* What a process sees from one operation to the next: it goes on where it was, and never back.
 *
 * An operation that failed or is unknown leaves the process where it was, since its offsets were
 * not committed. Another assignment ends what is known of the keys that it has not. */
#include "internal_kafka.h"

#include <string.h>

/* By key, as long as `is[key]` is the number of this stretch: the last operation, and its last
 * message. */
typedef struct {
    int32_t *is, *op, *message;
    int32_t stretch;
} places;

typedef struct {
    places sends, polls;
    int32_t *in_op, *newest; /* by key: the operation that has it, and its newest message there */
    int32_t *consumed;       /* by message: the process that polled it while subscribed */
    int64_t bytes;
} travels;

static int make_travels(shl_kafka *k, travels *t)
{
    int64_t keys = k->by_key.count;
    t->bytes = (8 * keys + k->facts.messages) * (int64_t)sizeof(int32_t);
    int32_t *memory = shl_alloc_used(k->budget, t->bytes);
    if (!memory)
        return 0;
    memset(memory, 0xff, (size_t)t->bytes);
    t->sends = (places){memory, memory + keys, memory + 2 * keys, 0};
    t->polls = (places){memory + 3 * keys, memory + 4 * keys, memory + 5 * keys, 0};
    t->in_op = memory + 6 * keys;
    t->newest = memory + 7 * keys;
    t->consumed = memory + 8 * keys;
    return 1;
}

/* Only the keys that it names are still known. */
static void keep_named(const shl_kafka *k, places *where, const shl_kafka_op *op, int rewinds)
{
    int32_t stretch = ++where->stretch;
    if (rewinds)
        return;
    for (int64_t at = op->begin; at < op->begin + op->count; at++) {
        int32_t key = k->elements[at].message;
        if (where->is[key] == stretch - 1)
            where->is[key] = stretch;
    }
}

static void compare(shl_kafka *k, const places *where, int32_t number, int what,
                    const shl_kafka_element *element)
{
    int32_t key = k->messages[element->message].key;
    if (where->is[key] != where->stretch)
        return;
    int64_t delta = shl_kafka_distance(k, where->message[key], element->message);
    if (delta == 1 || (delta > 1 && what == SHL_KAFKA_SENT)) /* other clients send, too */
        return;
    shl_kafka_case found = {.delta = delta, .offset = element->offset, .key = key,
                            .first = where->message[key], .second = element->message,
                            .op = number, .other = where->op[key]};
    int kind = what == SHL_KAFKA_SENT ? SHL_KAFKA_NONMONOTONIC_SEND
               : delta > 1            ? SHL_KAFKA_POLL_SKIP
                                      : SHL_KAFKA_NONMONOTONIC_POLL;
    shl_kafka_note(k, kind, delta > 1 ? delta : -delta, &found);
}

/* Holds the first element of each key against the last one of the operation before, and if
 * `moves`, goes on to the last element of each. */
static void travel(shl_kafka *k, travels *t, places *where, int32_t number, int what, int moves)
{
    const shl_kafka_op *op = &k->ops[number];
    const shl_kafka_element *begin = k->elements + op->begin, *end = begin + op->count;
    int32_t mark = 2 * number + what; /* a transaction travels twice: as a sender, as a poller */
    for (const shl_kafka_element *at = begin; at < end; at++) {
        if (shl_kafka_what(at) != what)
            continue;
        int32_t key = k->messages[at->message].key;
        if (t->in_op[key] != mark)
            compare(k, where, number, what, at);
        t->in_op[key] = mark;
        t->newest[key] = at->message;
    }
    for (const shl_kafka_element *at = begin; moves && at < end; at++) {
        if (shl_kafka_what(at) != what)
            continue;
        int32_t key = k->messages[at->message].key;
        where->is[key] = where->stretch;
        where->op[key] = number;
        where->message[key] = t->newest[key];
    }
}

static void consume(shl_kafka *k, travels *t, int32_t number)
{
    const shl_kafka_op *op = &k->ops[number];
    for (int64_t at = op->begin; at < op->begin + op->count; at++) {
        const shl_kafka_element *element = &k->elements[at];
        if (shl_kafka_what(element) != SHL_KAFKA_POLLED)
            continue;
        if (t->consumed[element->message] == op->who) {
            shl_kafka_case found = {.offset = element->offset, .first = element->message,
                                    .key = k->messages[element->message].key,
                                    .second = SHL_NONE, .op = number, .other = SHL_NONE};
            shl_kafka_note(k, SHL_KAFKA_CONSUMED_AGAIN, -number, &found);
        }
        t->consumed[element->message] = op->who;
    }
}

static void follow(shl_kafka *k, travels *t, const int32_t *numbers, int64_t count)
{
    int subscribed = 0;
    t->sends.stretch++;
    t->polls.stretch++;
    for (int64_t i = 0; i < count; i++) {
        const shl_kafka_op *op = &k->ops[numbers[i]];
        if (op->f == SHL_KAFKA_ASSIGN || op->f == SHL_KAFKA_SUBSCRIBE) {
            if (op->type == SHL_FAIL)
                continue;
            subscribed |= op->f == SHL_KAFKA_SUBSCRIBE && op->type == SHL_OK;
            keep_named(k, &t->polls, op, op->rewinds);
            keep_named(k, &t->sends, op, 0);
        } else if (shl_kafka_carries(op)) {
            travel(k, t, &t->polls, numbers[i], SHL_KAFKA_POLLED, op->type == SHL_OK);
            if (op->type != SHL_FAIL)
                travel(k, t, &t->sends, numbers[i], SHL_KAFKA_SENT, 1);
            if (subscribed && op->type == SHL_OK)
                consume(k, t, numbers[i]);
        }
    }
}

int32_t *shl_kafka_by_process(shl_kafka *k, int64_t **ends)
{
    int64_t processes = k->by_process.count;
    int64_t *end = shl_alloc_zeroed(k->budget, (processes + 1) * (int64_t)sizeof *end);
    int32_t *numbers = shl_alloc(k->budget, k->facts.ops * (int64_t)sizeof *numbers);
    if (!end || !numbers) {
        shl_free(k->budget, end, (processes + 1) * (int64_t)sizeof *end);
        shl_free(k->budget, numbers, k->facts.ops * (int64_t)sizeof *numbers);
        return NULL;
    }
    for (int64_t number = 0; number < k->facts.ops; number++)
        end[k->ops[number].who + 1]++;
    for (int64_t who = 0; who < processes; who++)
        end[who + 1] += end[who]; /* where its operations begin; and then where they end */
    for (int32_t number = 0; number < k->facts.ops; number++)
        numbers[end[k->ops[number].who]++] = number;
    *ends = end;
    return numbers;
}

int shl_kafka_find_in_processes(shl_kafka *k)
{
    travels t;
    if (k->facts.processless)
        return 1;
    int64_t *ends;
    int32_t *numbers = shl_kafka_by_process(k, &ends);
    if (!numbers)
        return 0;
    int made = make_travels(k, &t);
    for (int64_t who = 0, begin = 0; made && who < k->by_process.count; begin = ends[who++])
        follow(k, &t, numbers + begin, ends[who] - begin);
    if (made)
        shl_free(k->budget, t.sends.is, t.bytes);
    shl_free(k->budget, ends, (k->by_process.count + 1) * (int64_t)sizeof *ends);
    shl_free(k->budget, numbers, k->facts.ops * (int64_t)sizeof *numbers);
    return made && !shl_check_budget(k->budget);
}
