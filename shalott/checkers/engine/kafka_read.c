/* A stream of entries, taken in as operations on partitions and their elements.
 *
 * An operation is what its completion says; where that says nothing, what its invocation said. */
#include "internal_forms.h"
#include "internal_kafka.h"

#include <string.h>

enum { MOST_OPS = 1 << 30 }; /* twice as many must fit an int32 */

/* Words that stand in a history, by their place in kafka->words; the fs in the order of their
 * codes. */
enum {
    WORD_DEBUG = 6, WORD_DEBUG_PARTITIONS, WORD_REBALANCES, WORD_REBALANCES_JSON, WORD_KEYS,
    WORD_REWINDS, WORD_REWINDS_JSON, WORDS
};

static const char *const WORD_TEXTS[WORDS] = {
    "poll", "send", "txn", "assign", "subscribe", "crash", "debug", "debug-topic-partitions",
    "rebalance-log", "rebalance_log", "keys", "seek-to-beginning?", "seek_to_beginning",
};

/* --- forms: what a key or a value is ----------------------------------------------------------*/

static int put_text(shl_kafka *k, int64_t *used, const char *text, int64_t length)
{
    while (*used + length > k->text_room)
        if (!shl_kafka_grow(k->budget, (void **)&k->text, &k->text_room, k->text_room, 1))
            return 0;
    memcpy(k->text + *used, text, (size_t)length);
    *used += length;
    return 1;
}

static int put_number(shl_kafka *k, int64_t *used, int64_t number)
{
    char digits[24];
    int at = 24, below = number < 0;
    uint64_t left = below ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + left % 10);
    while ((left /= 10));
    if (below)
        digits[--at] = '-';
    return put_text(k, used, digits + at, 24 - at);
}

static int put_form(shl_kafka *k, int64_t *used, const shl_node *nodes, int32_t at);

static int put_children(shl_kafka *k, int64_t *used, const shl_node *nodes, int32_t at)
{
    static const char *const OPENED[] = {"[", "{", "#{"};
    static const char *const CLOSED[] = {"]", "}", "}"};
    int which = nodes[at].kind - SHL_NODE_LIST;
    if (!put_text(k, used, OPENED[which], which == 2 ? 2 : 1))
        return 0;
    for (int32_t child = at + 1; child < nodes[at].next; child = nodes[child].next) {
        if (child > at + 1 && !put_text(k, used, " ", 1))
            return 0;
        if (!put_form(k, used, nodes, child))
            return 0;
    }
    return put_text(k, used, CLOSED[which], 1);
}

/* Writes a node down as EDN, so that equal ones have equal texts. */
static int put_form(shl_kafka *k, int64_t *used, const shl_node *nodes, int32_t at)
{
    const shl_node *node = &nodes[at];
    int64_t length;
    const char *text;
    switch (node->kind) {
    case SHL_NODE_NIL:
        return put_text(k, used, "nil", 3);
    case SHL_NODE_FALSE:
        return put_text(k, used, "false", 5);
    case SHL_NODE_TRUE:
        return put_text(k, used, "true", 4);
    case SHL_NODE_INTEGER:
        return put_number(k, used, node->number);
    case SHL_NODE_LIST:
    case SHL_NODE_MAP:
    case SHL_NODE_SET:
        return put_children(k, used, nodes, at);
    default:
        text = shl_entries_text(k->entries, (int32_t)node->number, &length);
        const char *mark = node->kind == SHL_NODE_KEYWORD ? ":" : "\"";
        return (node->kind == SHL_NODE_OTHER || put_text(k, used, mark, 1)) &&
               put_text(k, used, text, length) &&
               (node->kind != SHL_NODE_TEXT || put_text(k, used, mark, 1));
    }
}

/* What stands for a node among equals: 0 if there is no memory. Compound ones are known by their
 * texts. */
static int form_of(shl_kafka *k, const shl_node *nodes, int32_t at, uint8_t *kind,
                   int64_t *number)
{
    *kind = nodes[at].kind;
    *number = nodes[at].number;
    if (*kind < SHL_NODE_INTEGER)
        *number = 0;
    if (*kind < SHL_NODE_LIST)
        return 1;
    int64_t used = 0, count = shl_nodes_within(&nodes[at]);
    shl_node *ordered = NULL;
    if (shl_has_no_order(&nodes[at], count)) {
        if (!(ordered = shl_in_order(&nodes[at], count, k->budget)))
            return 0;
        nodes = ordered;
        at = 0;
    }
    int done = put_form(k, &used, nodes, at);
    shl_free(k->budget, ordered, count * (int64_t)sizeof *ordered);
    if (!done)
        return 0;
    *kind = SHL_NODE_OTHER;
    *number = shl_entries_id(k->entries, k->text, used);
    return *number >= 0;
}

/* JSON has no maps from integers: "7" of a poll is the 7 of a send. */
static void as_integer(shl_kafka *k, uint8_t *kind, int64_t *number)
{
    int64_t length, read;
    if (*kind != SHL_NODE_TEXT)
        return;
    const char *text = shl_entries_text(k->entries, (int32_t)*number, &length);
    if (length > 0 && length < 19 && shl_edn_integer((shl_slice){text, length}, &read)) {
        *kind = SHL_NODE_INTEGER;
        *number = read;
    }
}

static int32_t key_at(shl_kafka *k, const shl_node *nodes, int32_t at)
{
    uint8_t kind;
    int64_t number;
    if (!form_of(k, nodes, at, &kind, &number))
        return -1;
    as_integer(k, &kind, &number);
    return shl_kafka_key_of(k, kind, number);
}

static int32_t message_at(shl_kafka *k, int32_t key, const shl_node *nodes, int32_t at)
{
    uint8_t kind;
    int64_t number;
    if (!form_of(k, nodes, at, &kind, &number))
        return -1;
    return shl_kafka_message_of(k, key, kind, number);
}

/* --- elements ---------------------------------------------------------------------------------*/

static int add_element(shl_kafka *k, int32_t message, int64_t offset, int32_t mop, int what)
{
    if (message < 0 || !shl_kafka_grow(k->budget, (void **)&k->elements, &k->element_room,
                                       k->facts.elements, sizeof *k->elements))
        return 0;
    k->elements[k->facts.elements++] =
        (shl_kafka_element){offset, message, mop * 4 + what};
    return 1;
}

/* [offset value], or the value alone. A negative offset is Kafka's word for: none was told. */
static int take_sighting(shl_kafka *k, int32_t key, const shl_node *nodes, int32_t at,
                         int32_t mop, int what)
{
    int64_t offset = -1;
    if (nodes[at].kind == SHL_NODE_LIST && nodes[at].number == 2) {
        const shl_node *first = &nodes[at + 1];
        if (first->kind == SHL_NODE_INTEGER && first->number >= 0)
            offset = first->number;
        at = first->next;
    }
    return add_element(k, message_at(k, key, nodes, at), offset, mop, what);
}

/* {key [[offset value] ...] ...} */
static int take_polled(shl_kafka *k, const shl_node *nodes, int32_t map, int32_t mop)
{
    for (int32_t at = map + 1; at < nodes[map].next;) {
        int32_t key = key_at(k, nodes, at), pairs = nodes[at].next;
        if (key < 0)
            return 0;
        if (nodes[pairs].kind == SHL_NODE_LIST) {
            for (int32_t pair = pairs + 1; pair < nodes[pairs].next; pair = nodes[pair].next)
                if (!take_sighting(k, key, nodes, pair, mop, SHL_KAFKA_POLLED))
                    return 0;
        }
        at = nodes[pairs].next;
    }
    return 1;
}

static int is_word(const shl_kafka *k, const shl_node *node, int word)
{
    return (node->kind == SHL_NODE_KEYWORD || node->kind == SHL_NODE_TEXT) &&
           node->number == k->words[word];
}

/* [:send key value] or [:poll {...}]; 1, 0 if there is no memory, -1 if it is neither. */
static int take_mop(shl_kafka *k, const shl_node *nodes, int32_t at, int32_t mop)
{
    if (nodes[at].kind != SHL_NODE_LIST || !nodes[at].number)
        return -1;
    int32_t head = at + 1, second = nodes[head].next;
    if (is_word(k, &nodes[head], SHL_KAFKA_POLL)) {
        if (nodes[at].number == 1 || nodes[second].kind == SHL_NODE_NIL)
            return 1; /* it has not been answered */
        return nodes[second].kind == SHL_NODE_MAP ? take_polled(k, nodes, second, mop) : -1;
    }
    if (!is_word(k, &nodes[head], SHL_KAFKA_SEND) || nodes[at].number < 3)
        return -1;
    int32_t key = key_at(k, nodes, second);
    return key >= 0 &&
           take_sighting(k, key, nodes, nodes[second].next, mop, SHL_KAFKA_SENT);
}

/* Of a value, what it says; 0: no memory. */
static int take_mops(shl_kafka *k, const shl_node *nodes, int32_t value, int64_t line)
{
    int32_t mop = 0;
    int taken = nodes[value].kind == SHL_NODE_LIST ? 1 : -1;
    if (taken == 1 && nodes[value].number && nodes[value + 1].kind != SHL_NODE_LIST) {
        taken = take_mop(k, nodes, value, 0); /* one alone, without a list around it */
    } else if (taken == 1) {
        for (int32_t at = value + 1; taken == 1 && at < nodes[value].next; at = nodes[at].next)
            taken = take_mop(k, nodes, at, mop++);
    }
    if (taken < 0 && !k->facts.odd++)
        k->facts.odd_line = line;
    return taken != 0;
}

static int take_keys(shl_kafka *k, const shl_node *nodes, int32_t list, int what)
{
    if (nodes[list].kind != SHL_NODE_LIST && nodes[list].kind != SHL_NODE_SET)
        return 1;
    for (int32_t at = list + 1; at < nodes[list].next; at = nodes[at].next)
        if (!add_element(k, key_at(k, nodes, at), -1, 0, what))
            return 0;
    return 1;
}

/* What a map has under one of two words; -1: nothing. */
static int32_t under(const shl_kafka *k, const shl_node *nodes, int32_t map, int word, int other)
{
    if (map < 0 || nodes[map].kind != SHL_NODE_MAP)
        return -1;
    for (int32_t at = map + 1; at < nodes[map].next; at = nodes[nodes[at].next].next)
        if (is_word(k, &nodes[at], word) || is_word(k, &nodes[at], other))
            return nodes[at].next;
    return -1;
}

/* :rebalance-log [{:keys [k1 k2]} ...] */
static int take_rebalances(shl_kafka *k, const shl_node *nodes, int32_t root)
{
    int32_t log = under(k, nodes, root, WORD_REBALANCES, WORD_REBALANCES_JSON);
    if (log < 0 || nodes[log].kind != SHL_NODE_LIST)
        return 1;
    for (int32_t at = log + 1; at < nodes[log].next; at = nodes[at].next) {
        int32_t keys = under(k, nodes, at, WORD_KEYS, WORD_KEYS);
        if (keys >= 0 && !take_keys(k, nodes, keys, SHL_KAFKA_MOVED))
            return 0;
    }
    return 1;
}

/* --- operations -------------------------------------------------------------------------------*/

static void mark(shl_kafka *k, const shl_kafka_op *op)
{
    static const uint8_t SENT_AS[] = {
        [SHL_OK] = SHL_KAFKA_SENT_OK, [SHL_FAIL] = SHL_KAFKA_SENT_FAIL,
        [SHL_INFO] = SHL_KAFKA_SENT_INFO,
    };
    int32_t number = (int32_t)k->facts.ops;
    for (int64_t at = op->begin; at < op->begin + op->count; at++) {
        shl_kafka_message *message = &k->messages[k->elements[at].message];
        if (shl_kafka_what(&k->elements[at]) == SHL_KAFKA_SENT) {
            message->flags |= SENT_AS[op->type];
            message->writer = number;
        } else if (shl_kafka_what(&k->elements[at]) == SHL_KAFKA_POLLED) {
            if (message->reader == SHL_NONE ||
                (op->type == SHL_OK && !(message->flags & SHL_KAFKA_READ_OK)))
                message->reader = number;
            message->flags |= op->type == SHL_OK ? SHL_KAFKA_READ | SHL_KAFKA_READ_OK
                                                 : SHL_KAFKA_READ;
        }
    }
}

static int add_op(shl_kafka *k, shl_kafka_op *op)
{
    if (!shl_kafka_grow(k->budget, (void **)&k->ops, &k->op_room, k->facts.ops, sizeof *op) ||
        k->facts.elements - op->begin > INT32_MAX || k->facts.ops >= MOST_OPS)
        return 0;
    op->count = (int32_t)(k->facts.elements - op->begin);
    k->facts.by_f[op->f][op->type]++;
    if (shl_kafka_carries(op))
        mark(k, op);
    k->ops[k->facts.ops++] = *op;
    return 1;
}

static shl_kafka_op op_of(const shl_kafka *k, const shl_kafka_pending *begun, int32_t who)
{
    return (shl_kafka_op){
        .line = begun->line, .index = begun->index, .called_line = begun->line,
        .called_index = begun->index, .called_ns = begun->time_ns, .ended_ns = -1,
        .begin = k->facts.elements, .process = begun->process, .who = who,
        .called = begun->called, .ended = SHL_NEVER, .type = SHL_INFO, .f = begun->f,
    };
}

static int take_sends_of(shl_kafka *k, const shl_kafka_pending *begun)
{
    for (int32_t at = 0; at < begun->count; at++) {
        const shl_kafka_element *send = &begun->sends[at];
        if (!add_element(k, send->message, send->offset, send->mop >> 2, send->mop & 3))
            return 0;
    }
    return 1;
}

/* An operation that was begun and is not going to be ended. */
static int give_up(shl_kafka *k, int32_t who)
{
    shl_kafka_pending *begun = &k->pending[who];
    shl_kafka_op op = op_of(k, begun, who);
    begun->open = 0;
    k->facts.open++;
    return take_sends_of(k, begun) && add_op(k, &op);
}

/* Reads what an entry says behind the elements that are there. */
static int take_value(shl_kafka *k, const shl_batch *batch, const shl_entry_node *entry, uint8_t f)
{
    if (f <= SHL_KAFKA_TXN)
        return take_mops(k, batch->nodes, entry->value, entry->line) &&
               take_rebalances(k, batch->nodes, entry->root);
    if (f == SHL_KAFKA_ASSIGN || f == SHL_KAFKA_SUBSCRIBE)
        return take_keys(k, batch->nodes, entry->value, SHL_KAFKA_NAMED);
    return 1;
}

static int says_nothing(const shl_batch *batch, const shl_entry_node *entry)
{
    return entry->value < 0 || batch->nodes[entry->value].kind == SHL_NODE_NIL;
}

static int begin(shl_kafka *k, const shl_batch *batch, const shl_entry_node *entry, int32_t who,
                 uint8_t f)
{
    shl_kafka_pending *begun = &k->pending[who];
    if (begun->open) {
        k->facts.reused++;
        if (!give_up(k, who))
            return 0;
        begun = &k->pending[who];
    }
    begun->line = entry->line;
    begun->index = entry->index;
    begun->time_ns = entry->time;
    begun->called = (int32_t)k->facts.entries;
    begun->f = f;
    begun->open = 1;
    begun->count = 0;
    int64_t from = k->facts.elements;
    if (!says_nothing(batch, entry) && !take_value(k, batch, entry, f))
        return 0;
    int64_t said = k->facts.elements - from;
    k->facts.elements = from; /* kept aside till the completion comes */
    if (said > begun->room) {
        int64_t old = begun->room * (int64_t)sizeof *begun->sends;
        int64_t bytes = said * (int64_t)sizeof *begun->sends;
        shl_kafka_element *grown = begun->sends ? shl_resize(k->budget, begun->sends, old, bytes)
                                                : shl_alloc(k->budget, bytes);
        if (!grown)
            return 0;
        begun->sends = grown;
        begun->room = (int32_t)said;
    }
    if (said)
        memcpy(begun->sends, k->elements + from, (size_t)said * sizeof *begun->sends);
    begun->count = (int32_t)said;
    return 1;
}

static int rewinds(const shl_kafka *k, const shl_batch *batch, const shl_entry_node *entry)
{
    int32_t said = under(k, batch->nodes, entry->root, WORD_REWINDS, WORD_REWINDS_JSON);
    return said >= 0 && batch->nodes[said].kind == SHL_NODE_TRUE;
}

/* Why the outcome is unknown. */
static int note_cause(shl_kafka *k, const shl_batch *batch, const shl_entry_node *entry)
{
    shl_kafka_facts *facts = &k->facts;
    int64_t used = 0;
    if (!put_form(k, &used, batch->nodes, entry->error))
        return 0;
    int32_t cause = shl_entries_id(k->entries, k->text, used), at = 0;
    while (at < facts->cause_count && facts->causes[at] != cause)
        at++;
    if (at == (int32_t)(sizeof facts->causes / sizeof facts->causes[0]))
        return 1;
    facts->cause_count += at == facts->cause_count;
    facts->causes[at] = cause;
    facts->cause_counts[at]++;
    return cause >= 0;
}

static int end(shl_kafka *k, const shl_batch *batch, const shl_entry_node *entry, int32_t who,
               uint8_t f)
{
    shl_kafka_pending *begun = &k->pending[who];
    if (!begun->open) {
        k->facts.uncalled++;
        begun->line = entry->line;
        begun->index = entry->index;
        begun->time_ns = -1;
        begun->called = (int32_t)k->facts.entries;
        begun->count = 0;
    }
    begun->f = f;
    shl_kafka_op op = op_of(k, begun, who);
    begun->open = 0;
    op.line = entry->line;
    op.index = entry->index;
    op.ended_ns = entry->time;
    op.ended = (int32_t)k->facts.entries;
    op.type = entry->type;
    if (op.type == SHL_INFO && shl_kafka_carries(&op) && entry->error >= 0 &&
        !note_cause(k, batch, entry))
        return 0;
    op.rewinds = f == SHL_KAFKA_ASSIGN && rewinds(k, batch, entry);
    int taken = says_nothing(batch, entry) ? take_sends_of(k, begun)
                                           : take_value(k, batch, entry, f);
    return taken && add_op(k, &op);
}

static int f_of(const shl_kafka *k, const shl_entry_node *entry)
{
    for (int f = 0; f < WORD_REBALANCES; f++)
        if (entry->f == k->words[f])
            return f < SHL_KAFKA_OTHER ? f : SHL_KAFKA_OTHER;
    return -1;
}

int32_t shl_kafka_take(shl_kafka *k, const shl_batch *batch)
{
    for (int64_t at = 0; at < batch->count; at++) {
        const shl_entry_node *entry = &batch->entries[at];
        if (entry->process == SHL_NEMESIS)
            continue;
        int f = f_of(k, entry);
        if (f < 0) {
            if (!k->facts.unknown_f++)
                k->facts.unknown_line = entry->line;
            continue;
        }
        k->facts.processless |= entry->process == SHL_NO_PROCESS;
        if (entry->process == SHL_NO_PROCESS && entry->type == SHL_INVOKE)
            continue; /* which completion is its own can't be known */
        int32_t who = shl_kafka_process_of(k, entry->process);
        if (who < 0 || k->facts.entries == SHL_NEVER - 1)
            return 0;
        k->facts.untimed += entry->time < 0;
        int taken = entry->type == SHL_INVOKE ? begin(k, batch, entry, who, (uint8_t)f)
                                              : end(k, batch, entry, who, (uint8_t)f);
        if (!taken)
            return 0;
        k->facts.entries++;
    }
    return !shl_check_budget(k->budget);
}

int shl_kafka_end_open(shl_kafka *k)
{
    for (int32_t who = 0; who < k->by_process.count; who++)
        if (k->pending[who].open && !give_up(k, who))
            return 0;
    return 1;
}

int shl_kafka_learn_words(shl_kafka *k)
{
    for (int word = 0; word < WORDS; word++) {
        const char *text = WORD_TEXTS[word];
        k->words[word] = shl_entries_id(k->entries, text, (int32_t)strlen(text));
        if (k->words[word] < 0)
            return 0;
    }
    return 1;
}
