/* The graph of the operations that send and poll, searched as that of any transactions (txn.h).
 *
 * wr: one sent what another polled. ww: one's message stands before another's, with none of others
 * between them. rw: the newest that one polled of a key stands before what another sent. Operations
 * are the transactions, in the order of their calls, and messages the versions. */
#include "internal_kafka.h"
#include "internal_txn.h"

typedef struct {
    shl_kafka *k;
    shl_txns *txns;
    int32_t *txn_of; /* by operation; SHL_NONE: it is none, or it failed */
    int32_t *newest; /* by key: the place of the newest that was polled; 2 keys, with its mark */
} drawing;

/* Operations by the entry that called them: each entry calls at most one. */
static int number_ops(shl_kafka *k, drawing *d)
{
    int64_t bytes = (k->facts.entries + 1) * (int64_t)sizeof(int32_t), count = 0;
    int32_t *by_call = shl_alloc_zeroed(k->budget, bytes);
    if (!by_call)
        return 0;
    for (int32_t number = 0; number < k->facts.ops; number++) {
        d->txn_of[number] = SHL_NONE;
        if (shl_kafka_carries(&k->ops[number])) {
            by_call[k->ops[number].called] = number + 1;
            count++;
        }
    }
    k->cycle_ops = shl_alloc(k->budget, count * (int64_t)sizeof *k->cycle_ops);
    d->txns->txns = shl_alloc(k->budget, count * (int64_t)sizeof(shl_txn));
    k->cycle_op_count = k->cycle_ops ? count : 0;
    d->txns->room = d->txns->txns ? count : 0;
    int done = k->cycle_ops && d->txns->txns;
    for (int64_t call = 0; done && call < k->facts.entries; call++) {
        if (!by_call[call])
            continue;
        int32_t number = by_call[call] - 1, at = (int32_t)d->txns->count++;
        const shl_kafka_op *op = &k->ops[number];
        k->cycle_ops[at] = number;
        if (op->type != SHL_FAIL)
            d->txn_of[number] = at;
        d->txns->txns[at] = (shl_txn){
            .type = op->type, .process = op->who, .ret = op->ended,
            .call = op->called == op->ended ? SHL_NONE : op->called, /* when it began is unknown */
        };
    }
    shl_free(k->budget, by_call, bytes);
    return done;
}

static int32_t writer_of(const drawing *d, int32_t message)
{
    int32_t writer = d->k->messages[message].writer;
    return writer == SHL_NONE ? SHL_NONE : d->txn_of[writer];
}

static int draw_wr(drawing *d)
{
    shl_kafka *k = d->k;
    int64_t bytes = d->txns->count * (int64_t)sizeof(int32_t);
    int32_t *drawn = shl_alloc_zeroed(k->budget, bytes); /* by writer: the last reader + 1 */
    int done = drawn != NULL;
    for (int64_t number = 0; done && number < k->facts.ops; number++) {
        int32_t reader = d->txn_of[number];
        const shl_kafka_op *op = &k->ops[number];
        for (int64_t at = op->begin; done && reader >= 0 && at < op->begin + op->count; at++) {
            const shl_kafka_element *element = &k->elements[at];
            if (shl_kafka_what(element) != SHL_KAFKA_POLLED)
                continue;
            int32_t writer = writer_of(d, element->message);
            if (writer == SHL_NONE || writer == reader || drawn[writer] == reader + 1)
                continue;
            drawn[writer] = reader + 1;
            done = shl_txn_edge(d->txns, writer, reader, SHL_EDGE_WR, element->message);
        }
    }
    shl_free(k->budget, drawn, bytes);
    return done;
}

static int draw_ww(drawing *d)
{
    const shl_kafka *k = d->k;
    for (int64_t number = 0; number < k->by_key.count; number++) {
        const shl_kafka_key *key = &k->keys[number];
        int32_t before = SHL_NONE;
        for (int64_t at = key->begin; at < key->begin + key->length; at++) {
            int32_t writer = writer_of(d, k->order[at]);
            if (writer == SHL_NONE)
                continue;
            int is_its_place = k->messages[k->order[at]].index == at - key->begin;
            if (before != SHL_NONE && before != writer && is_its_place &&
                !shl_txn_edge(d->txns, before, writer, SHL_EDGE_WW, k->order[at]))
                return 0;
            before = writer;
        }
    }
    return 1;
}

/* From a reader to who sent the next message behind the newest that it polled of a key. */
static int draw_rw_of(drawing *d, int32_t reader, int32_t key)
{
    const shl_kafka *k = d->k;
    const shl_kafka_key *of = &k->keys[key];
    for (int64_t at = of->begin + d->newest[key] + 1; at < of->begin + of->length; at++) {
        int32_t writer = writer_of(d, k->order[at]);
        if (writer != SHL_NONE && writer != reader)
            return shl_txn_edge(d->txns, reader, writer, SHL_EDGE_RW, k->order[at]);
    }
    return 1;
}

static int draw_rw(drawing *d)
{
    const shl_kafka *k = d->k;
    for (int64_t number = 0; number < k->facts.ops; number++) {
        int32_t reader = d->txn_of[number];
        const shl_kafka_op *op = &k->ops[number];
        for (int draws = 0; reader >= 0 && draws < 2; draws++) { /* first which is the newest */
            for (int64_t at = op->begin; at < op->begin + op->count; at++) {
                const shl_kafka_element *element = &k->elements[at];
                const shl_kafka_message *message = &k->messages[element->message];
                if (shl_kafka_what(element) != SHL_KAFKA_POLLED || message->index == SHL_NONE)
                    continue;
                int32_t *newest = &d->newest[message->key];
                if (!draws) {
                    *newest = message->index > *newest ? message->index : *newest;
                } else if (*newest != SHL_NONE) {
                    if (!draw_rw_of(d, reader, message->key))
                        return 0;
                    *newest = SHL_NONE; /* drawn, and ready for the next operation */
                }
            }
        }
    }
    return 1;
}

static int draw(drawing *d, int32_t ww, int32_t rw)
{
    shl_txns *txns = d->txns;
    for (int64_t key = 0; key < d->k->by_key.count; key++)
        d->newest[key] = SHL_NONE;
    if (!number_ops(d->k, d))
        return 0;
    txns->events = d->k->facts.entries;
    txns->has_calls = !d->k->facts.processless;
    txns->graph.vertices = txns->count;
    if (!draw_wr(d) || (ww && !draw_ww(d)) || (rw && !draw_rw(d)))
        return 0;
    txns->data_edges = txns->graph.count;
    txns->asker_count = d->k->by_process.count; /* of which the order needs the number only */
    int done = shl_txn_order(txns);
    txns->asker_count = 0;
    return done && shl_txn_rows(txns) && shl_txn_search(txns);
}

int32_t shl_kafka_find_cycles(shl_kafka *k, int32_t ww, int32_t rw, int32_t kept,
                              int64_t search_steps)
{
    shl_txn_options options = {.kept = kept, .search_steps = search_steps};
    shl_txn_names names = {0};
    int64_t bytes = (k->facts.ops + k->by_key.count) * (int64_t)sizeof(int32_t);
    int32_t *memory = shl_alloc(k->budget, bytes);
    k->txns = shl_txns_new(&options, &names, k->budget);
    drawing d = {k, k->txns, memory, memory + k->facts.ops};
    int done = memory && k->txns && draw(&d, ww, rw);
    if (k->txns) { /* the cycles are found, and what they were found in is large */
        shl_txn_free_graph(k->txns);
        k->txns->graph = (shl_graph){0};
    }
    shl_free(k->budget, memory, bytes);
    return done;
}

void shl_kafka_free_cycles(shl_kafka *k)
{
    shl_txns_free(k->txns);
    shl_free(k->budget, k->cycle_ops, k->cycle_op_count * (int64_t)sizeof *k->cycle_ops);
}

const shl_txns *shl_kafka_txns(const shl_kafka *k)
{
    return k->txns;
}

int32_t shl_kafka_op_of_txn(const shl_kafka *k, int32_t txn)
{
    return k->cycle_ops[txn];
}
