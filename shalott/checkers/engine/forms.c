/* Sets and maps have no order: where their elements are written in another one, it is the same
 * value. They are compared with what is in them in one order, that of kinds and numbers. */
#include "internal_forms.h"

#include <stdlib.h>
#include <string.h>

int64_t shl_nodes_within(const shl_node *node)
{
    int64_t open = 1, count = 0;
    while (open > 0) {
        open--;
        if (node[count].kind >= SHL_NODE_LIST)
            open += node[count].number;
        count++;
    }
    return count;
}

static int is_unordered(const shl_node *node)
{
    return (node->kind == SHL_NODE_MAP && node->number > 2) ||
           (node->kind == SHL_NODE_SET && node->number > 1);
}

int shl_has_no_order(const shl_node *node, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (is_unordered(&node[i]))
            return 1;
    return 0;
}

/* An element of a set, or a key of a map and its value. */
typedef struct {
    const shl_node *at;
    int64_t count;
} piece;

static int by_nodes(const void *one, const void *other)
{
    const piece *a = one, *b = other;
    for (int64_t i = 0; i < a->count && i < b->count; i++) {
        uint8_t mine = shl_alike(a->at[i].kind), its = shl_alike(b->at[i].kind);
        if (mine != its)
            return mine < its ? -1 : 1;
        if (a->at[i].number != b->at[i].number)
            return a->at[i].number < b->at[i].number ? -1 : 1;
    }
    return (a->count > b->count) - (a->count < b->count);
}

/* The elements of one set or map, each of which is in order. `bytes`: of all of them. */
static int sort_pieces(shl_node *node, size_t bytes, shl_budget *budget)
{
    int64_t each = node->kind == SHL_NODE_MAP ? 2 : 1, count = node->number / each;
    piece *pieces = shl_alloc(budget, count * (int64_t)sizeof *pieces);
    shl_node *sorted = shl_alloc(budget, (int64_t)bytes), *to = sorted;
    const shl_node *at = node + 1;
    int done = pieces && sorted;
    for (int64_t i = 0; done && i < count; i++) {
        int64_t own = shl_nodes_within(at);
        pieces[i] = (piece){at, own + (each == 2 ? shl_nodes_within(at + own) : 0)};
        at += pieces[i].count;
    }
    if (done) {
        qsort(pieces, (size_t)count, sizeof *pieces, by_nodes);
        for (int64_t i = 0; i < count; to += pieces[i++].count)
            memcpy(to, pieces[i].at, (size_t)pieces[i].count * sizeof *to);
        memcpy(node + 1, sorted, bytes);
    }
    shl_free(budget, pieces, count * (int64_t)sizeof *pieces);
    shl_free(budget, sorted, (int64_t)bytes);
    return done;
}

shl_node *shl_in_order(const shl_node *node, int64_t count, shl_budget *budget)
{
    shl_node *copy = shl_alloc(budget, count * (int64_t)sizeof *copy);
    int done = copy != NULL;
    if (done)
        memcpy(copy, node, (size_t)count * sizeof *copy);
    for (int64_t i = count - 1; done && i >= 0; i--) { /* what is within comes first */
        int64_t within = shl_nodes_within(&copy[i]);
        if (is_unordered(&copy[i]))
            done = sort_pieces(&copy[i], (size_t)(within - 1) * sizeof *copy, budget);
    }
    for (int64_t i = 0; done && i < count; i++)
        copy[i].next = (int32_t)(i + shl_nodes_within(&copy[i]));
    if (!done)
        shl_free(budget, copy, count * (int64_t)sizeof *copy);
    return done ? copy : NULL;
}
