/* The graph: edges as they come, then in rows by their beginning; trees that stand for many edges;
 * and strongly connected components (Tarjan's, without recursion). */
#include "internal_txn.h"

#include <string.h>

int32_t shl_txn_edge(shl_txns *txns, int32_t from, int32_t to, int32_t kind, int32_t version)
{
    shl_graph *graph = &txns->graph;
    if (!shl_txn_room(txns->budget, (void **)&graph->edges, &graph->room, graph->count,
                      sizeof(shl_edge)))
        return 0;
    graph->edges[graph->count++] = (shl_edge){from, to, version, (uint8_t)kind};
    return (graph->count & 65535) || !shl_check_budget(txns->budget);
}

int32_t shl_txn_vertex(shl_txns *txns)
{
    return (int32_t)txns->graph.vertices++;
}

/* --- trees ------------------------------------------------------------------------------------*/

/* Vertex tree + 1 is the root, tree + count + i the leaf of i; below vertex p are 2p and 2p + 1. */
static int32_t tree_of(shl_txns *txns, int32_t count, const int32_t *leaves,
                       const int32_t *versions, int is_down, int32_t kind)
{
    int32_t tree = (int32_t)txns->graph.vertices;
    txns->graph.vertices += 2 * (int64_t)count;
    for (int32_t p = 2; p < 2 * count; p++) {
        int32_t above = tree + p / 2, below = tree + p;
        if (!shl_txn_edge(txns, is_down ? above : below, is_down ? below : above, SHL_EDGE_PASS,
                          SHL_NONE))
            return -1;
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t leaf = tree + count + i;
        if (is_down ? !shl_txn_edge(txns, leaf, leaves[i], SHL_EDGE_PASS, versions[i])
                    : !shl_txn_edge(txns, leaves[i], leaf, kind, versions[i]))
            return -1;
    }
    return tree;
}

int32_t shl_txn_tree_down(shl_txns *txns, int32_t count, const int32_t *ends,
                          const int32_t *versions)
{
    return tree_of(txns, count, ends, versions, 1, SHL_EDGE_PASS);
}

int32_t shl_txn_tree_up(shl_txns *txns, int32_t count, const int32_t *begins,
                        const int32_t *versions, int32_t kind)
{
    return tree_of(txns, count, begins, versions, 0, kind);
}

int32_t shl_txn_to_range(shl_txns *txns, int32_t from, int32_t kind, int32_t tree, int32_t count,
                         int32_t low, int32_t high)
{
    for (low += count, high += count; low < high; low /= 2, high /= 2) {
        if ((low & 1) && !shl_txn_edge(txns, from, tree + low++, kind, SHL_NONE))
            return 0;
        if ((high & 1) && !shl_txn_edge(txns, from, tree + --high, kind, SHL_NONE))
            return 0;
    }
    return 1;
}

int32_t shl_txn_from_range(shl_txns *txns, int32_t tree, int32_t count, int32_t low, int32_t high,
                           int32_t to)
{
    for (low += count, high += count; low < high; low /= 2, high /= 2) {
        if ((low & 1) && !shl_txn_edge(txns, tree + low++, to, SHL_EDGE_PASS, SHL_NONE))
            return 0;
        if ((high & 1) && !shl_txn_edge(txns, tree + --high, to, SHL_EDGE_PASS, SHL_NONE))
            return 0;
    }
    return 1;
}

int32_t shl_txn_to_all_but(shl_txns *txns, int32_t from, int32_t kind, int32_t tree,
                           int32_t count, const int32_t *ends)
{
    int32_t low = 0, high = count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (ends[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    int32_t after = low < count && ends[low] == from ? low + 1 : low;
    return shl_txn_to_range(txns, from, kind, tree, count, 0, low) &&
           shl_txn_to_range(txns, from, kind, tree, count, after, count);
}

/* --- rows -------------------------------------------------------------------------------------*/

/* Of one vertex, edges of data come first, then those of processes and of time: what is found
 * first among equals is the stronger argument. */
int32_t shl_txn_rows(shl_txns *txns)
{
    shl_graph *graph = &txns->graph;
    shl_budget *budget = txns->budget;
    int64_t *next = shl_alloc(budget, graph->vertices * 8);
    graph->starts = shl_alloc_zeroed(budget, (graph->vertices + 1) * 8);
    graph->to = shl_alloc(budget, graph->count * 4);
    graph->version = shl_alloc(budget, graph->count * 4);
    graph->kind = shl_alloc(budget, graph->count);
    int done = next && graph->starts && graph->to && graph->version && graph->kind;
    if (done) {
        for (int64_t e = 0; e < graph->count; e++)
            graph->starts[graph->edges[e].from + 1]++;
        for (int64_t v = 0; v < graph->vertices; v++)
            graph->starts[v + 1] += graph->starts[v];
        memcpy(next, graph->starts, (size_t)graph->vertices * 8);
        for (int64_t e = 0; e < graph->count; e++) {
            int64_t at = next[graph->edges[e].from]++;
            graph->to[at] = graph->edges[e].to;
            graph->version[at] = graph->edges[e].version;
            graph->kind[at] = graph->edges[e].kind;
        }
    }
    shl_free(budget, next, graph->vertices * 8);
    shl_free(budget, graph->edges, graph->room * (int64_t)sizeof(shl_edge));
    graph->edges = NULL;
    return done;
}

void shl_txn_free_graph(shl_txns *txns)
{
    shl_graph *graph = &txns->graph;
    shl_free(txns->budget, graph->edges, graph->room * (int64_t)sizeof(shl_edge));
    shl_free(txns->budget, graph->starts, (graph->vertices + 1) * 8);
    shl_free(txns->budget, graph->to, graph->count * 4);
    shl_free(txns->budget, graph->version, graph->count * 4);
    shl_free(txns->budget, graph->kind, graph->count);
}

/* --- components -------------------------------------------------------------------------------*/

typedef struct {
    const shl_rows *rows;
    const uint8_t *is_member; /* NULL: all */
    int32_t *component, *lowest; /* of a vertex: SHL_NONE until it is done; the lowest it reaches */
    int32_t *stack, *path;
    int64_t *next; /* of each vertex on the path, which edge comes next */
    int64_t on_stack, on_path, entered, components;
} tarjan;

static void enter(tarjan *of, int32_t vertex)
{
    of->lowest[vertex] = (int32_t)++of->entered;
    of->stack[of->on_stack++] = vertex;
    of->next[of->on_path] = of->rows->starts[vertex];
    of->path[of->on_path++] = vertex;
}

/* The vertex at the path's end has no more edges: whether it closes a component. */
static void leave(tarjan *of, int32_t order)
{
    int32_t vertex = of->path[--of->on_path];
    if (of->lowest[vertex] == order) {
        int32_t member;
        do {
            member = of->stack[--of->on_stack];
            of->component[member] = (int32_t)of->components;
        } while (member != vertex);
        of->components++;
    }
    if (of->on_path) {
        int32_t *above = &of->lowest[of->path[of->on_path - 1]];
        if (of->component[vertex] == SHL_NONE && of->lowest[vertex] < *above)
            *above = of->lowest[vertex];
    }
}

/* lowest[] starts as the order of entry; order[] keeps that of those on the path. */
static void explore(tarjan *of, int32_t root, int32_t *order)
{
    enter(of, root);
    order[0] = of->lowest[root];
    while (of->on_path) {
        int32_t vertex = of->path[of->on_path - 1];
        int64_t *next = &of->next[of->on_path - 1];
        int64_t end = of->rows->starts[vertex + 1];
        int32_t into = SHL_NONE;
        for (; *next < end && into == SHL_NONE; (*next)++) {
            int32_t to = of->rows->to[*next];
            if (of->rows->kind && !(of->rows->allowed >> of->rows->kind[*next] & 1))
                continue;
            if (of->is_member && !of->is_member[to])
                continue;
            if (!of->lowest[to])
                into = to;
            else if (of->component[to] == SHL_NONE && of->lowest[to] < of->lowest[vertex])
                of->lowest[vertex] = of->lowest[to];
        }
        if (into == SHL_NONE) {
            leave(of, order[of->on_path - 1]);
        } else {
            enter(of, into);
            order[of->on_path - 1] = of->lowest[into];
        }
    }
}

int64_t shl_txn_components(shl_budget *budget, const shl_rows *rows, const int32_t *members,
                           int64_t member_count, const uint8_t *is_member, int32_t *component)
{
    int64_t n = rows->vertices, count = members ? member_count : n;
    int64_t bytes = n * 4, few = count * 4;
    tarjan of = {rows, is_member, component, NULL, NULL, NULL, NULL, 0, 0, 0, 0};
    of.lowest = members ? shl_alloc(budget, bytes) : shl_alloc_zeroed(budget, bytes);
    of.stack = shl_alloc(budget, few);
    of.path = shl_alloc(budget, few);
    of.next = shl_alloc(budget, count * 8);
    int32_t *order = shl_alloc(budget, few);
    int done = of.lowest && of.stack && of.path && of.next && order;
    for (int64_t i = 0; done && i < count; i++) {
        int32_t vertex = members ? members[i] : (int32_t)i;
        component[vertex] = SHL_NONE;
        of.lowest[vertex] = 0;
    }
    for (int64_t i = 0; done && i < count; i++) {
        int32_t vertex = members ? members[i] : (int32_t)i;
        if (!of.lowest[vertex])
            explore(&of, vertex, order);
        if ((i & 65535) == 0 && shl_check_budget(budget))
            done = 0;
    }
    shl_free(budget, of.lowest, bytes);
    shl_free(budget, of.stack, few);
    shl_free(budget, of.path, few);
    shl_free(budget, of.next, count * 8);
    shl_free(budget, order, few);
    return done ? of.components : -1;
}
