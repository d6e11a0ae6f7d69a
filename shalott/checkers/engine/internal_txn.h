/* What the files of the transactions share. */
#ifndef SHL_INTERNAL_TXN_H
#define SHL_INTERNAL_TXN_H

#include "txn.h"

/* --- arrays that grow -------------------------------------------------------------------------*/

/* Room for one more item of this size at *items: doubles. 0: no memory. */
static inline int shl_txn_room(shl_budget *budget, void **items, int64_t *room, int64_t count,
                               int64_t item_bytes)
{
    if (count < *room)
        return 1;
    int64_t more = *room ? *room * 2 : 8;
    void *grown = shl_resize(budget, *items, *room * item_bytes, more * item_bytes);
    if (!grown)
        return 0;
    *items = grown;
    *room = more;
    return 1;
}

/* --- numbering --------------------------------------------------------------------------------*/

/* A hash table of ids: what each id stands for is compared by the one who asks. */
typedef struct {
    int64_t slots, used;
    int32_t *ids; /* id + 1; 0: free */
} shl_id_table;

typedef struct {
    int64_t start, count;
} shl_form;

typedef struct {
    shl_node *nodes; /* of all forms, one after the other */
    int64_t nodes_count, nodes_room;
    shl_form *forms;
    int64_t count, room;
    shl_id_table table;
} shl_forms;

/* --- edges ------------------------------------------------------------------------------------*/

typedef struct {
    int32_t from, to, version;
    uint8_t kind;
} shl_edge;

/* Vertices: the transactions; then what stands for several of them (shl_txn_vertex). Edges of a
 * vertex: from starts[vertex] to starts[vertex + 1]. */
typedef struct {
    int64_t vertices;
    int64_t count, room; /* of edges */
    shl_edge *edges; /* as they come; NULL once they are in rows */
    int64_t *starts;
    int32_t *to, *version;
    uint8_t *kind;
} shl_graph;

/* --- all of it --------------------------------------------------------------------------------*/

/* A process between its invocation and its completion: what it asked for. */
typedef struct {
    int64_t process;
    int32_t open; /* its transaction; SHL_NONE */
    int32_t count;
    int64_t room;
    shl_mop *asked;
} shl_asker;

typedef struct {
    int32_t recent; /* the branch that was read last; SHL_NONE */
    int32_t first;  /* of its branches */
} shl_key_branches;

struct shl_txns {
    shl_txn_options options;
    shl_txn_names names;
    shl_budget *budget;

    shl_forms forms;
    int64_t *keys; /* raw */
    int64_t key_count, key_room;
    shl_id_table key_table;
    shl_version *versions;
    int64_t version_count, version_room;
    shl_id_table version_table;

    shl_asker *askers;
    int64_t asker_count, asker_room;
    shl_id_table asker_table;
    shl_txn *txns;
    int64_t count, room;
    shl_mop *mops;
    int64_t mop_count, mop_room;
    int64_t events, skipped, first_skipped_line, malformed;
    int32_t has_calls;

    shl_key_branches *key_branches;
    int64_t key_branches_room;
    shl_txn_list *branches;
    int64_t branch_count, branch_room;
    int32_t *longest;
    int64_t longest_count;

    shl_graph graph;
    int64_t data_edges;
    int64_t contested, contested_keys;
    int32_t contested_version, contested_key[8];
    int64_t unwritten;
    int32_t unwritten_txn, unwritten_version;

    shl_txn_found *found;
    int64_t found_total, found_room;
    int64_t found_count[SHL_FOUND_KINDS];
    shl_txn_cycle *cycles;
    int64_t cycle_total, cycle_room;
    shl_txn_step *steps;
    int64_t step_total, step_room;
    int64_t cycle_count[SHL_LEVELS * SHL_CYCLE_KINDS];
    int64_t exists_count[SHL_LEVELS * SHL_CYCLE_KINDS];
    int32_t searches_stopped;
};

/* txn_values.c: numbers that stand for values, keys and versions. Below 0: no memory. */
int32_t shl_txn_raw(shl_txns *txns, const shl_node *node, int64_t *raw);
int32_t shl_txn_key(shl_txns *txns, int64_t raw);
int32_t shl_txn_version_of(shl_txns *txns, int32_t key, int64_t raw);
int32_t shl_txn_asker(shl_txns *txns, int64_t process);
void shl_txn_free_values(shl_txns *txns);

/* txn_branches.c: the branch of a key that this read belongs to, or one made for it. -1: no
 * memory. */
int32_t shl_txn_branch(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count);
int32_t shl_txn_new_branch(shl_txns *txns, int32_t key);
int shl_txn_branch_room(shl_txns *txns, shl_txn_list *branch, int64_t count);
/* Whether one of the two is how the other begins. */
int shl_txn_branch_begins(const shl_txn_list *branch, const int64_t *raws, int64_t count);
void shl_txn_free_branches(shl_txns *txns);

/* txn_lists.c, txn_inside.c */
int32_t shl_txn_judge_lists(shl_txns *txns);
int32_t shl_txn_judge_lists_inside(shl_txns *txns);

/* txn_versions.c. States of registers are versions, and for each key the one that it had at first.
 */
/* What a transaction had to do with a key: the first state that it met, and the last. */
typedef struct {
    int32_t txn, key;
    int32_t read, written; /* external: before it wrote, and what it left; SHL_NONE */
} shl_touch;

typedef struct {
    int32_t from, to; /* states */
} shl_order;

typedef struct {
    shl_txns *txns;
    int64_t states;
    shl_touch *touches; /* by key, then by transaction */
    int64_t touch_count, touch_room;
    int64_t *key_starts; /* of each key in `touches` */
    int32_t *initial;    /* of each key: a version that stands for what it held at first */
    shl_order *orders;       /* of all sources that agree; then those of one that is tried */
    int64_t order_count, order_room;
    int64_t *reader_starts; /* of each state in `readers` */
    int32_t *readers;
} shl_registers;
/* Fills orders, and notes cyclic versions. 0: no memory. */
int32_t shl_txn_find_orders(shl_registers *registers);

/* txn_registers.c, txn_sets.c */
int32_t shl_txn_judge_registers(shl_txns *txns);
/* The branch that a set which was read is a beginning of, as long as *length. -1: no memory. */
int32_t shl_txn_set(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count,
                    int32_t *length);
int32_t shl_txn_judge_sets(shl_txns *txns);

/* txn_found.c: what all three kinds of object share. 0: no memory. */
int32_t shl_txn_note(shl_txns *txns, shl_txn_found found);
shl_txn_found shl_txn_found_at(int32_t kind, int32_t txn, int64_t mop);
int32_t shl_txn_find_writers(shl_txns *txns);
/* Which keys have versions that several may have written; they are left out, if it was asked. */
int32_t shl_txn_find_contested(shl_txns *txns);
/* A read that ended with `version`: written by one that failed, by none, or not last. */
int32_t shl_txn_judge_version(shl_txns *txns, int32_t txn, int64_t mop, int32_t version,
                              int is_last);

/* txn_graph.c */
int32_t shl_txn_edge(shl_txns *txns, int32_t from, int32_t to, int32_t kind, int32_t version);
int32_t shl_txn_vertex(shl_txns *txns);
/* A tree over `count` transactions: an edge from one to all of a range takes a few edges to inner
 * vertices, instead of one for each. Down: from the vertices to the transactions (versions: what
 * each wrote). Up: from the transactions, by edges of this kind. Below 0: no memory. */
int32_t shl_txn_tree_down(shl_txns *txns, int32_t count, const int32_t *ends,
                          const int32_t *versions);
int32_t shl_txn_tree_up(shl_txns *txns, int32_t count, const int32_t *begins,
                        const int32_t *versions, int32_t kind);
/* Edges between one transaction and all of a tree in [low, high). */
int32_t shl_txn_to_range(shl_txns *txns, int32_t from, int32_t kind, int32_t tree, int32_t count,
                         int32_t low, int32_t high);
/* To each of `ends` (ascending), the tree's, but itself. */
int32_t shl_txn_to_all_but(shl_txns *txns, int32_t from, int32_t kind, int32_t tree,
                           int32_t count, const int32_t *ends);
int32_t shl_txn_from_range(shl_txns *txns, int32_t tree, int32_t count, int32_t low, int32_t high,
                           int32_t to);
/* Strongly connected components of rows of edges: component[v] is the same for all of one, and
 * an edge never leads to a higher one. `allowed`: which kinds count, as bits; kind NULL: all.
 * Returns how many, or -1. */
typedef struct {
    int64_t vertices;
    const int64_t *starts;
    const int32_t *to;
    const uint8_t *kind;
    uint32_t allowed;
} shl_rows;
int64_t shl_txn_components(shl_budget *budget, const shl_rows *rows, int32_t *component);
int32_t shl_txn_rows(shl_txns *txns);
void shl_txn_free_graph(shl_txns *txns);

/* txn_order.c */
int32_t shl_txn_order(shl_txns *txns);

/* txn_part.c: one component of a graph by itself. */
typedef struct {
    int64_t vertices, edges;
    int64_t *starts;
    int32_t *to, *version, *origin; /* origin: the vertex of the whole graph */
    uint8_t *kind;
    int64_t edge_room; /* what was taken for the edges */
} shl_part;

/* The components of `whole` with more than one vertex, by the edges that are allowed, each as a
 * part with those edges. `visit` answers 0 to stop. */
typedef int32_t shl_visit_part(void *user, const shl_part *part);
int32_t shl_txn_each_part(shl_budget *budget, const shl_part *whole, uint32_t allowed,
                          shl_visit_part *visit, void *user);

/* txn_walk.c: shortest paths. */
enum { SHL_WALK_FREE = 0, SHL_WALK_ALTERNATING = 1 }; /* ALTERNATING: no two rw in a row */
typedef struct {
    shl_budget *budget;
    const shl_part *part;
    uint32_t allowed;
    int32_t mode;
    const uint8_t *blocked; /* vertices that no way may meet; NULL: none */
    int32_t *length; /* of each state: how long the way to it is; SHL_NONE */
    int64_t *edge;   /* the edge that led to it */
    int32_t *from;   /* the state before it */
    int32_t *reached; /* all states with a length */
    int32_t *now, *next; /* those to look at, and those one step further */
    int64_t count, now_count, next_count;
    int64_t start, goal;
    int64_t steps, steps_max; /* edges looked at; 0: any number */
    int64_t checked_at;
} shl_walk;

int32_t shl_walk_open(shl_walk *walk, shl_budget *budget, const shl_part *part);
void shl_walk_close(shl_walk *walk);
/* How many edges of a kind other than PASS lead from the vertex `start` to `goal`, at most
 * length_max; from a vertex to itself: around, and at least one. -1: there is no such way, or the
 * steps are used up. after_rw: the edge before start was one of rw. The way is then in walk->edge
 * and walk->from, from walk->goal back to walk->start. */
int32_t shl_walk_to(shl_walk *walk, int32_t start, int after_rw, int32_t goal,
                    int32_t length_max);
int shl_walk_is_used_up(const shl_walk *walk);

/* txn_cycles.c */
int32_t shl_txn_search(shl_txns *txns);

static inline int shl_txn_may_have_happened(const shl_txn *txn)
{
    return txn->type != SHL_TXN_FAIL;
}

#endif
