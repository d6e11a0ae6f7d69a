/* A history of partitions in memory: its tables, its life, the order of the judgement. */
#include "internal_forms.h"
#include "internal_kafka.h"

#include <string.h>

int shl_kafka_grow(shl_budget *budget, void **memory, int64_t *room, int64_t used, int64_t size)
{
    if (used < *room)
        return 1;
    int64_t more = *room ? *room * 2 : 256;
    void *grown = *memory ? shl_resize(budget, *memory, *room * size, more * size)
                          : shl_alloc(budget, more * size);
    if (!grown)
        return 0;
    *memory = grown;
    *room = more;
    return 1;
}

/* --- tables -----------------------------------------------------------------------------------*/

static uint64_t mixed(uint64_t number, uint64_t with)
{
    uint64_t x = (number + with * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t hash_of(const shl_kafka *k, const shl_kafka_index *index, int32_t number)
{
    if (index == &k->by_message)
        return mixed((uint64_t)k->messages[number].number,
                     (uint64_t)k->messages[number].key << 4 |
                         shl_alike(k->messages[number].kind));
    if (index == &k->by_key)
        return mixed((uint64_t)k->keys[number].number, shl_alike(k->keys[number].kind));
    return mixed((uint64_t)k->pending[number].process, 0);
}

static int more_slots(shl_kafka *k, shl_kafka_index *index)
{
    int64_t room = index->room ? index->room * 2 : 256;
    int32_t *slots = shl_alloc_used_zeroed(k->budget, room * (int64_t)sizeof *slots);
    if (!slots)
        return 0;
    for (int32_t number = 0; number < index->count; number++) {
        uint64_t slot = hash_of(k, index, number) & (uint64_t)(room - 1);
        while (slots[slot])
            slot = (slot + 1) & (uint64_t)(room - 1);
        slots[slot] = number + 1;
    }
    shl_free(k->budget, index->slots, index->room * (int64_t)sizeof *slots);
    index->slots = slots;
    index->room = room;
    return 1;
}

int32_t shl_kafka_key_of(shl_kafka *k, uint8_t kind, int64_t number)
{
    shl_kafka_index *index = &k->by_key;
    if (2 * index->count >= index->room && !more_slots(k, index))
        return -1;
    uint64_t slot = mixed((uint64_t)number, shl_alike(kind)) & (uint64_t)(index->room - 1);
    for (; index->slots[slot]; slot = (slot + 1) & (uint64_t)(index->room - 1)) {
        const shl_kafka_key *key = &k->keys[index->slots[slot] - 1];
        if (key->number == number && shl_alike(key->kind) == shl_alike(kind))
            return index->slots[slot] - 1;
    }
    if (!shl_kafka_grow(k->budget, (void **)&k->keys, &k->key_room, index->count, sizeof *k->keys))
        return -1;
    k->keys[index->count] = (shl_kafka_key){.number = number, .kind = kind};
    index->slots[slot] = (int32_t)++index->count;
    return (int32_t)(k->facts.keys = index->count) - 1;
}

int32_t shl_kafka_message_of(shl_kafka *k, int32_t key, uint8_t kind, int64_t number)
{
    shl_kafka_index *index = &k->by_message;
    if (2 * index->count >= index->room && !more_slots(k, index))
        return -1;
    uint64_t slot = mixed((uint64_t)number, (uint64_t)key << 4 | shl_alike(kind)) &
                    (uint64_t)(index->room - 1);
    for (; index->slots[slot]; slot = (slot + 1) & (uint64_t)(index->room - 1)) {
        const shl_kafka_message *message = &k->messages[index->slots[slot] - 1];
        if (message->number == number && message->key == key &&
            shl_alike(message->kind) == shl_alike(kind))
            return index->slots[slot] - 1;
    }
    if (index->count == SHL_NEVER - 1 ||
        !shl_kafka_grow(k->budget, (void **)&k->messages, &k->message_room, index->count,
                        sizeof *k->messages))
        return -1;
    k->messages[index->count] = (shl_kafka_message){
        .number = number, .offset = -1, .key = key, .writer = SHL_NONE, .reader = SHL_NONE,
        .index = SHL_NONE, .first = SHL_NONE, .last = SHL_NONE, .kind = kind,
    };
    index->slots[slot] = (int32_t)++index->count;
    return (int32_t)(k->facts.messages = index->count) - 1;
}

int32_t shl_kafka_process_of(shl_kafka *k, int64_t process)
{
    shl_kafka_index *index = &k->by_process;
    if (2 * index->count >= index->room && !more_slots(k, index))
        return -1;
    uint64_t slot = mixed((uint64_t)process, 0) & (uint64_t)(index->room - 1);
    for (; index->slots[slot]; slot = (slot + 1) & (uint64_t)(index->room - 1))
        if (k->pending[index->slots[slot] - 1].process == process)
            return index->slots[slot] - 1;
    if (!shl_kafka_grow(k->budget, (void **)&k->pending, &k->pending_room, index->count,
                        sizeof *k->pending))
        return -1;
    k->pending[index->count] = (shl_kafka_pending){.process = process};
    index->slots[slot] = (int32_t)++index->count;
    return (int32_t)index->count - 1;
}

/* --- cases ------------------------------------------------------------------------------------*/

/* Which of the kept ones is the least telling. */
static int32_t weakest(const shl_kafka *k, int kind, int64_t *rank)
{
    int32_t at = 0;
    *rank = INT64_MAX;
    for (int32_t i = 0; i < k->facts.kept[kind]; i++) {
        if (k->ranks[kind][i] < *rank) {
            *rank = k->ranks[kind][i];
            at = i;
        }
    }
    return at;
}

void shl_kafka_note(shl_kafka *k, int kind, int64_t rank, const shl_kafka_case *found)
{
    k->facts.counts[kind]++;
    int32_t at = k->facts.kept[kind];
    if (at < SHL_KAFKA_KEPT)
        k->facts.kept[kind]++;
    else if (rank <= k->worst[kind])
        return;
    else
        at = weakest(k, kind, &k->worst[kind]);
    k->cases[kind][at] = *found;
    k->ranks[kind][at] = rank;
    if (k->facts.kept[kind] == SHL_KAFKA_KEPT)
        weakest(k, kind, &k->worst[kind]);
}

/* --- life -------------------------------------------------------------------------------------*/

shl_kafka *shl_kafka_new(shl_entries *entries, shl_budget *budget)
{
    shl_kafka *k = shl_alloc_zeroed(budget, sizeof *k);
    if (!k)
        return NULL;
    k->entries = entries;
    k->budget = budget;
    k->facts.lag_key = k->facts.lag_op = SHL_NONE;
    if (!shl_kafka_learn_words(k)) {
        shl_kafka_free(k);
        return NULL;
    }
    return k;
}

void shl_kafka_free(shl_kafka *k)
{
    shl_budget *budget = k->budget;
    shl_kafka_free_cycles(k);
    for (int64_t who = 0; who < k->by_process.count; who++)
        shl_free(budget, k->pending[who].sends,
                 k->pending[who].room * (int64_t)sizeof(shl_kafka_element));
    shl_free(budget, k->ops, k->op_room * (int64_t)sizeof *k->ops);
    shl_free(budget, k->elements, k->element_room * (int64_t)sizeof *k->elements);
    shl_free(budget, k->messages, k->message_room * (int64_t)sizeof *k->messages);
    shl_free(budget, k->keys, k->key_room * (int64_t)sizeof *k->keys);
    shl_free(budget, k->pending, k->pending_room * (int64_t)sizeof *k->pending);
    shl_free(budget, k->by_message.slots, k->by_message.room * (int64_t)sizeof(int32_t));
    shl_free(budget, k->by_key.slots, k->by_key.room * (int64_t)sizeof(int32_t));
    shl_free(budget, k->by_process.slots, k->by_process.room * (int64_t)sizeof(int32_t));
    shl_free(budget, k->text, k->text_room);
    shl_free(budget, k->sightings, k->sighting_room * (int64_t)sizeof *k->sightings);
    shl_free(budget, k->order, k->sighting_room * (int64_t)sizeof *k->order);
    shl_free(budget, k, sizeof *k);
}

int32_t shl_kafka_judge(shl_kafka *k)
{
    return shl_kafka_end_open(k) && shl_kafka_make_orders(k) && shl_kafka_find_in_logs(k) &&
           shl_kafka_find_in_operations(k) && shl_kafka_find_in_processes(k) &&
           shl_kafka_find_lag(k);
}

const shl_kafka_facts *shl_kafka_found(const shl_kafka *k)
{
    return &k->facts;
}

const shl_kafka_case *shl_kafka_cases(const shl_kafka *k, int32_t kind)
{
    return k->cases[kind];
}

const shl_kafka_op *shl_kafka_ops(const shl_kafka *k)
{
    return k->ops;
}

const shl_kafka_element *shl_kafka_elements(const shl_kafka *k)
{
    return k->elements;
}

const shl_kafka_message *shl_kafka_messages(const shl_kafka *k)
{
    return k->messages;
}

const shl_kafka_key *shl_kafka_keys(const shl_kafka *k)
{
    return k->keys;
}

const shl_kafka_sighting *shl_kafka_sightings(const shl_kafka *k)
{
    return k->sightings;
}

const int32_t *shl_kafka_order(const shl_kafka *k)
{
    return k->order;
}
