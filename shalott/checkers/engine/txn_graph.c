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
    int32_t *component, *lowest; /* of a vertex: SHL_NONE until it is done; the lowest it reaches */
    int32_t *stack, *path, *order; /* order: when each of the path was entered */
    int64_t *next; /* of each of the path, which edge comes next */
    int64_t on_stack, on_path, entered, components;
} tarjan;

static void enter(tarjan *of, int32_t vertex)
{
    of->lowest[vertex] = (int32_t)++of->entered;
    of->stack[of->on_stack++] = vertex;
    of->next[of->on_path] = of->rows->starts[vertex];
    of->order[of->on_path] = of->lowest[vertex];
    of->path[of->on_path++] = vertex;
}

/* The vertex at the path's end has no more edges: it may close a component. */
static void leave(tarjan *of)
{
    int32_t vertex = of->path[--of->on_path];
    if (of->lowest[vertex] == of->order[of->on_path]) {
        int32_t member;
        do {
            member = of->stack[--of->on_stack];
            of->component[member] = (int32_t)of->components;
        } while (member != vertex);
        of->components++;
    } else {
        int32_t *above = &of->lowest[of->path[of->on_path - 1]];
        if (of->lowest[vertex] < *above)
            *above = of->lowest[vertex];
    }
}

static void explore(tarjan *of, int32_t root)
{
    const shl_rows *rows = of->rows;
    enter(of, root);
    while (of->on_path) {
        int32_t vertex = of->path[of->on_path - 1], into = SHL_NONE;
        int64_t end = rows->starts[vertex + 1], at = of->next[of->on_path - 1];
        for (; at < end && into == SHL_NONE; at++) {
            int32_t to = rows->to[at];
            if (rows->kind && !(rows->allowed >> rows->kind[at] & 1))
                continue;
            if (!of->lowest[to])
                into = to;
            else if (of->component[to] == SHL_NONE && of->lowest[to] < of->lowest[vertex])
                of->lowest[vertex] = of->lowest[to];
        }
        of->next[of->on_path - 1] = at;
        if (into == SHL_NONE)
            leave(of);
        else
            enter(of, into);
    }
}

int64_t shl_txn_components(shl_budget *budget, const shl_rows *rows, int32_t *component)
{
    int64_t n = rows->vertices, bytes = n * 4;
    tarjan of = {.rows = rows, .component = component};
    of.lowest = shl_alloc_zeroed(budget, bytes);
    of.stack = shl_alloc(budget, bytes);
    of.path = shl_alloc(budget, bytes);
    of.order = shl_alloc(budget, bytes);
    of.next = shl_alloc(budget, n * 8);
    int done = of.lowest && of.stack && of.path && of.order && of.next;
    for (int64_t v = 0; done && v < n; v++)
        component[v] = SHL_NONE;
    for (int64_t v = 0; done && v < n; v++) {
        if (!of.lowest[v])
            explore(&of, (int32_t)v);
        done = (v & 65535) || !shl_check_budget(budget);
    }
    shl_free(budget, of.lowest, bytes);
    shl_free(budget, of.stack, bytes);
    shl_free(budget, of.path, bytes);
    shl_free(budget, of.order, bytes);
    shl_free(budget, of.next, n * 8);
    return done ? of.components : -1;
}
