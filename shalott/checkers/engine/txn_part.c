/* Components of a graph, each as a small graph of its own: what is searched in it costs what it
 * is large, not what the whole is. */
#include "internal_txn.h"

#include <string.h>

typedef struct {
    int64_t count;
    int32_t *component; /* of each vertex */
    int64_t *starts;    /* of each component in `members` */
    int32_t *members, *place; /* place: of a vertex in its component */
} components;

static int find_members(shl_budget *budget, const shl_part *whole, components *of)
{
    int64_t n = whole->vertices;
    of->starts = shl_alloc_zeroed(budget, (of->count + 1) * 8);
    of->members = shl_alloc(budget, n * 4);
    of->place = shl_alloc(budget, n * 4);
    if (!of->starts || !of->members || !of->place)
        return 0;
    for (int64_t v = 0; v < n; v++)
        of->place[v] = (int32_t)of->starts[of->component[v] + 1]++;
    for (int64_t c = 0; c < of->count; c++)
        of->starts[c + 1] += of->starts[c];
    for (int64_t v = 0; v < n; v++)
        of->members[of->starts[of->component[v]] + of->place[v]] = (int32_t)v;
    return 1;
}

static void free_part(shl_budget *budget, shl_part *part)
{
    shl_free(budget, part->starts, (part->vertices + 1) * 8);
    shl_free(budget, part->origin, part->vertices * 4);
    shl_free(budget, part->to, part->edge_room * 4);
    shl_free(budget, part->version, part->edge_room * 4);
    shl_free(budget, part->kind, part->edge_room);
}

static int make_part(shl_budget *budget, const shl_part *whole, const components *of, int64_t c,
                     uint32_t allowed, shl_part *part)
{
    const int32_t *members = of->members + of->starts[c];
    *part = (shl_part){.vertices = of->starts[c + 1] - of->starts[c]};
    for (int64_t i = 0; i < part->vertices; i++)
        part->edge_room += whole->starts[members[i] + 1] - whole->starts[members[i]];
    part->starts = shl_alloc(budget, (part->vertices + 1) * 8);
    part->origin = shl_alloc(budget, part->vertices * 4);
    part->to = shl_alloc(budget, part->edge_room * 4);
    part->version = shl_alloc(budget, part->edge_room * 4);
    part->kind = shl_alloc(budget, part->edge_room);
    if (!part->starts || !part->origin || !part->to || !part->version || !part->kind)
        return 0;
    for (int64_t i = 0; i < part->vertices; i++) {
        part->starts[i] = part->edges;
        part->origin[i] = whole->origin ? whole->origin[members[i]] : members[i];
        for (int64_t e = whole->starts[members[i]]; e < whole->starts[members[i] + 1]; e++) {
            if (!(allowed >> whole->kind[e] & 1) || of->component[whole->to[e]] != c)
                continue;
            part->to[part->edges] = of->place[whole->to[e]];
            part->version[part->edges] = whole->version[e];
            part->kind[part->edges++] = whole->kind[e];
        }
    }
    part->starts[part->vertices] = part->edges;
    return 1;
}

int32_t shl_txn_each_part(shl_budget *budget, const shl_part *whole, uint32_t allowed,
                          shl_visit_part *visit, void *user)
{
    components of = {.component = shl_alloc(budget, whole->vertices * 4)};
    shl_rows rows = {whole->vertices, whole->starts, whole->to, whole->kind, allowed};
    if (of.component)
        of.count = shl_txn_components(budget, &rows, of.component);
    int32_t done = of.component && of.count >= 0;
    if (done && of.count < whole->vertices) {
        done = find_members(budget, whole, &of);
        for (int64_t c = 0; done && c < of.count; c++) {
            if (of.starts[c + 1] - of.starts[c] < 2)
                continue;
            shl_part part;
            done = make_part(budget, whole, &of, c, allowed, &part) && visit(user, &part) &&
                   !shl_check_budget(budget);
            free_part(budget, &part);
        }
        shl_free(budget, of.starts, (of.count + 1) * 8);
        shl_free(budget, of.members, whole->vertices * 4);
        shl_free(budget, of.place, whole->vertices * 4);
    }
    shl_free(budget, of.component, whole->vertices * 4);
    return done;
}
