/* Sets that grow: a read shows who added before it, and who after; the adds have no order of their
 * own. (Elle's paper calls such objects sets; a cycle needs rw and wr edges.)
 *
 * What is read of a key is mostly a chain by inclusion. So a key has one order of its elements, in
 * which each read is a beginning: elements that one read added to the next stand in a block, in any
 * order, and a read of a part of a block divides it. A read that does not fit is a branch of its
 * own. Whom a read saw, and whom it missed, are then ranges of that order: trees keep edges few.
 *
 * In the chain of a key, raw[i] is 1 if a read ended with element i. */
#include "internal_txn.h"

#include <stdlib.h>
#include <string.h>

enum { BRANCHES_TRIED = 8 };

/* --- reads ------------------------------------------------------------------------------------*/

static int by_id(const void *one, const void *other)
{
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

/* The versions of a read, ascending, each once. Returns how many, or -1: no memory. */
static int64_t read_versions(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count,
                             int32_t *versions)
{
    const shl_node *node = nodes;
    for (int64_t i = 0; i < count; i++) {
        int64_t raw, open = 1;
        if (!shl_txn_raw(txns, node, &raw) ||
            (versions[i] = shl_txn_version_of(txns, key, raw)) < 0)
            return -1;
        for (; open > 0; node++)
            open += (node->kind >= SHL_NODE_LIST ? node->number : 0) - 1;
    }
    qsort(versions, (size_t)count, sizeof *versions, by_id);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (!i || versions[i] != versions[i - 1])
            versions[kept++] = versions[i];
    return kept;
}

static void put_at(shl_txns *txns, shl_txn_list *chain, int64_t place, int32_t version)
{
    chain->version[place] = version;
    txns->versions[version].at = (int32_t)place;
}

/* Whether these are how the chain begins, up to the order within a block; which is then divided. */
static int divide(shl_txns *txns, shl_txn_list *chain, const int32_t *versions, int64_t count)
{
    int64_t end = count, begin = count - 1, before = 0;
    while (end < chain->length && !chain->raw[end - 1])
        end++;
    while (begin > 0 && !chain->raw[begin - 1])
        begin--;
    for (int64_t i = 0; i < count; i++) {
        int32_t at = txns->versions[versions[i]].at;
        if (at == SHL_NONE || at >= end)
            return 0;
        before += at < begin;
    }
    if (before != begin)
        return 0;
    int64_t place = begin;
    for (int64_t i = 0; i < count; i++) {
        int32_t at = txns->versions[versions[i]].at;
        if (at < place)
            continue; /* of an earlier block, or moved already */
        int32_t other = chain->version[place];
        put_at(txns, chain, place, versions[i]);
        put_at(txns, chain, at, other);
        place++;
    }
    chain->raw[count - 1] = 1;
    return 1;
}

/* The chain grows by what is new in the read, if it has all that is in the chain. -1: no memory. */
static int grow(shl_txns *txns, int32_t at, const int32_t *versions, int64_t count)
{
    shl_txn_list *chain = &txns->branches[at];
    int64_t known = 0;
    for (int64_t i = 0; i < count; i++)
        known += txns->versions[versions[i]].at != SHL_NONE;
    if (known != chain->length)
        return 0;
    if (!shl_txn_branch_room(txns, chain, count))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        if (txns->versions[versions[i]].at != SHL_NONE)
            continue;
        chain->raw[chain->length] = 0;
        put_at(txns, chain, chain->length, versions[i]);
        chain->length++;
    }
    chain->raw[count - 1] = 1;
    return 1;
}

/* A branch of this set alone. */
static int32_t branch_of_its_own(shl_txns *txns, int32_t key, int32_t chain,
                                 const int32_t *versions, int64_t count)
{
    int32_t at = txns->key_branches[key].first;
    for (int32_t tried = 0; at != chain && tried < BRANCHES_TRIED; tried++) {
        const shl_txn_list *branch = &txns->branches[at];
        if (branch->length == count &&
            !memcmp(branch->version, versions, (size_t)count * sizeof *versions))
            return at;
        at = branch->next;
    }
    at = shl_txn_new_branch(txns, key);
    if (at < 0 || !shl_txn_branch_room(txns, &txns->branches[at], count))
        return -1;
    memcpy(txns->branches[at].version, versions, (size_t)count * sizeof *versions);
    txns->branches[at].length = (int32_t)count;
    return at;
}

/* A key's chain is its first branch, which is the last of its list: kept as the recent one. */
int32_t shl_txn_set(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count,
                    int32_t *length)
{
    int32_t *versions = shl_alloc(txns->budget, count * 4);
    int64_t distinct = versions ? read_versions(txns, key, nodes, count, versions) : -1;
    int32_t at = -1;
    if (distinct > 0) {
        shl_key_branches *of_key = &txns->key_branches[key];
        if (of_key->recent == SHL_NONE)
            of_key->recent = shl_txn_new_branch(txns, key);
        int32_t chain = of_key->recent;
        int fits = chain < 0 ? -1
                   : distinct <= txns->branches[chain].length
                       ? divide(txns, &txns->branches[chain], versions, distinct)
                       : grow(txns, chain, versions, distinct);
        at = fits > 0   ? chain
             : fits < 0 ? -1
                        : branch_of_its_own(txns, key, chain, versions, distinct);
    }
    *length = (int32_t)distinct;
    shl_free(txns->budget, versions, count * 4);
    return at;
}

/* --- what needs no cycle ----------------------------------------------------------------------*/

static int32_t chain_of(const shl_txns *txns, int32_t key)
{
    return txns->key_branches[key].recent;
}

static int saw(const shl_txns *txns, const shl_mop *read, int32_t version)
{
    if (read->length <= 0)
        return 0;
    if (read->value == chain_of(txns, read->key)) {
        int32_t at = txns->versions[version].at;
        return at != SHL_NONE && at < read->length;
    }
    return bsearch(&version, txns->branches[read->value].version, (size_t)read->length,
                   sizeof version, by_id) != NULL;
}

static int judge_elements(shl_txns *txns, int32_t t, int64_t i)
{
    const shl_mop *read = &txns->mops[i];
    const shl_txn_list *branch = &txns->branches[read->value];
    for (int32_t p = 0; p < read->length; p++)
        if (txns->versions[branch->version[p]].writer == SHL_NONE)
            return shl_txn_judge_version(txns, t, i, branch->version[p], 0);
    return 1;
}

/* The mop that a read contradicts: an add that it lacks, or an earlier read that differs by more
 * than what was added since; or SHL_NONE. */
static int64_t contradicted(const shl_txns *txns, const shl_txn *txn, int64_t i)
{
    const shl_mop *read = &txns->mops[i];
    for (int64_t j = i - 1; j >= txn->mops; j--) {
        const shl_mop *mop = &txns->mops[j];
        if (mop->key != read->key || (mop->f == SHL_MOP_READ && mop->length == SHL_NONE))
            continue;
        if (mop->f == SHL_MOP_WRITE) {
            if (!saw(txns, read, mop->value))
                return j;
            continue;
        }
        int32_t fresh = 0;
        for (int64_t k = j + 1; k < i; k++)
            fresh += txns->mops[k].key == read->key && txns->mops[k].f == SHL_MOP_WRITE &&
                     !saw(txns, mop, txns->mops[k].value);
        if (read->length != mop->length + fresh)
            return j;
        for (int32_t p = 0; p < mop->length && mop->value != read->value; p++)
            if (!saw(txns, read, txns->branches[mop->value].version[p]))
                return j;
        return SHL_NONE;
    }
    return SHL_NONE;
}

static int judge_within(shl_txns *txns, int32_t t)
{
    const shl_txn *txn = &txns->txns[t];
    int is_bad = 0;
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        if (mop->f == SHL_MOP_READ && mop->length != SHL_NONE) {
            int64_t other = is_bad ? SHL_NONE : contradicted(txns, txn, i);
            if (other == SHL_NONE)
                continue;
            is_bad = 1;
            shl_txn_found found = shl_txn_found_at(SHL_FOUND_INTERNAL, t, i);
            found.other = (int32_t)other;
            found.key = mop->key;
            if (!shl_txn_note(txns, found))
                return 0;
        }
        for (int64_t j = txn->mops; mop->f == SHL_MOP_WRITE && j < i; j++) {
            const shl_mop *read = &txns->mops[j];
            if (read->f != SHL_MOP_READ || read->key != mop->key || !saw(txns, read, mop->value) ||
                txns->versions[mop->value].contested)
                continue;
            shl_txn_found found = shl_txn_found_at(SHL_FOUND_FUTURE_READ, t, j);
            found.other = (int32_t)i;
            found.key = mop->key;
            found.version = mop->value;
            if (!shl_txn_note(txns, found))
                return 0;
            break;
        }
    }
    return 1;
}

/* --- edges ------------------------------------------------------------------------------------*/

/* The elements of one key whose writer is known: those of its chain, then the others. */
typedef struct {
    int64_t start; /* in `writers` and `versions` of the whole */
    int32_t count;
    int32_t up, down; /* its trees; SHL_NONE: not made yet */
} key_elements;

typedef struct {
    shl_txns *txns;
    key_elements *keys;
    int32_t *writers, *versions;
    int32_t *places; /* of each version among those of its key; SHL_NONE */
} sets;

static int is_known(const shl_version *version)
{
    return version->writer != SHL_NONE && !version->contested;
}

static void list_elements(sets *of)
{
    shl_txns *txns = of->txns;
    for (int64_t v = 0; v < txns->version_count; v++)
        if (is_known(&txns->versions[v]))
            of->keys[txns->versions[v].key].count++;
    int64_t start = 0;
    for (int64_t key = 0; key < txns->key_count; key++) {
        of->keys[key] = (key_elements){start, of->keys[key].count, SHL_NONE, SHL_NONE};
        start += of->keys[key].count;
        of->keys[key].count = 0;
    }
    for (int64_t key = 0; key < txns->key_count; key++) {
        int32_t chain = chain_of(txns, (int32_t)key);
        for (int32_t p = 0; chain >= 0 && p < txns->branches[chain].length; p++) {
            int32_t version = txns->branches[chain].version[p];
            if (!is_known(&txns->versions[version]))
                continue;
            of->places[version] = of->keys[key].count++;
            of->versions[of->keys[key].start + of->places[version]] = version;
        }
    }
    for (int32_t v = 0; v < txns->version_count; v++) {
        const shl_version *version = &txns->versions[v];
        if (!is_known(version) || version->at != SHL_NONE)
            continue;
        of->places[v] = of->keys[version->key].count++;
        of->versions[of->keys[version->key].start + of->places[v]] = v;
    }
    for (int64_t key = 0; key < txns->key_count; key++)
        for (int32_t i = 0; i < of->keys[key].count; i++)
            of->writers[of->keys[key].start + i] =
                txns->versions[of->versions[of->keys[key].start + i]].writer;
}

static int make_trees(sets *of, int32_t key)
{
    key_elements *here = &of->keys[key];
    if (here->down != SHL_NONE)
        return 1;
    const int32_t *writers = of->writers + here->start, *versions = of->versions + here->start;
    here->up = shl_txn_tree_up(of->txns, here->count, writers, versions, SHL_EDGE_WR);
    if (here->up < 0)
        return 0;
    here->down = shl_txn_tree_down(of->txns, here->count, writers, versions);
    return here->down >= 0;
}

/* One edge, or a range of edges, between a reader and those who added [low, high). */
static int edges_of_range(sets *of, int32_t reader, int32_t key, int32_t low, int32_t high,
                          int is_seen)
{
    const key_elements *here = &of->keys[key];
    if (low >= high)
        return 1;
    return is_seen ? shl_txn_from_range(of->txns, here->up, here->count, low, high, reader)
                   : shl_txn_to_range(of->txns, reader, SHL_EDGE_RW, here->down, here->count, low,
                                      high);
}

/* All in [low, high) but what the reader added itself. */
static int edges_but_own(sets *of, int32_t reader, int32_t key, int32_t low, int32_t high,
                         int is_seen)
{
    const int32_t *writers = of->writers + of->keys[key].start;
    const shl_txn *txn = &of->txns->txns[reader];
    while (low < high) {
        int32_t own = high; /* the first of its own from low on */
        for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
            const shl_mop *mop = &of->txns->mops[i];
            if (mop->key != key || mop->f != SHL_MOP_WRITE)
                continue;
            int32_t place = of->places[mop->value];
            if (place >= low && place < own && writers[place] == reader)
                own = place;
        }
        if (!edges_of_range(of, reader, key, low, own, is_seen))
            return 0;
        low = own + 1;
    }
    return 1;
}

static int edges_one_by_one(sets *of, int32_t reader, const shl_mop *read)
{
    shl_txns *txns = of->txns;
    const key_elements *here = &of->keys[read->key];
    for (int32_t i = 0; i < here->count; i++) {
        int32_t version = of->versions[here->start + i], writer = of->writers[here->start + i];
        if (writer == reader)
            continue;
        int done = saw(txns, read, version)
                       ? shl_txn_edge(txns, writer, reader, SHL_EDGE_WR, version)
                       : shl_txn_edge(txns, reader, writer, SHL_EDGE_RW, version);
        if (!done)
            return 0;
    }
    return 1;
}

static int edges_of_read(sets *of, int32_t reader, const shl_mop *read)
{
    shl_txns *txns = of->txns;
    if (!of->keys[read->key].count)
        return 1;
    int32_t chain = chain_of(txns, read->key);
    if (read->value != SHL_NONE && read->value != chain)
        return edges_one_by_one(of, reader, read);
    int32_t cut = 0; /* how many with a known writer it saw */
    for (int32_t p = read->length - 1; p >= 0 && !cut; p--)
        cut = of->places[txns->branches[chain].version[p]] + 1;
    return make_trees(of, read->key) && edges_but_own(of, reader, read->key, 0, cut, 1) &&
           edges_but_own(of, reader, read->key, cut, of->keys[read->key].count, 0);
}

static int judge_txn(sets *of, int32_t t)
{
    shl_txns *txns = of->txns;
    const shl_txn *txn = &txns->txns[t];
    int is_ok = txn->type == SHL_TXN_OK;
    if (!shl_txn_may_have_happened(txn) || (is_ok && !judge_within(txns, t)))
        return shl_txn_may_have_happened(txn) ? 0 : 1;
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        if (mop->f != SHL_MOP_READ || mop->length == SHL_NONE)
            continue;
        if (is_ok && mop->value != SHL_NONE && !judge_elements(txns, t, i))
            return 0;
        if (!edges_of_read(of, t, mop))
            return 0;
    }
    return 1;
}

int32_t shl_txn_judge_sets(shl_txns *txns)
{
    shl_budget *budget = txns->budget;
    int64_t bytes = txns->version_count * 4;
    sets of = {.txns = txns};
    of.keys = shl_alloc_zeroed(budget, txns->key_count * (int64_t)sizeof *of.keys);
    of.writers = shl_alloc(budget, bytes);
    of.versions = shl_alloc(budget, bytes);
    of.places = shl_alloc(budget, bytes);
    int32_t done = of.keys && of.writers && of.versions && of.places;
    for (int64_t v = 0; done && v < txns->version_count; v++)
        of.places[v] = SHL_NONE;
    if (done)
        list_elements(&of);
    for (int64_t t = 0; done && t < txns->count; t++)
        done = judge_txn(&of, (int32_t)t);
    shl_free(budget, of.keys, txns->key_count * (int64_t)sizeof *of.keys);
    shl_free(budget, of.writers, bytes);
    shl_free(budget, of.versions, bytes);
    shl_free(budget, of.places, bytes);
    return done;
}
