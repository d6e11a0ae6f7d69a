/* Reads of lists. All reads of a key are beginnings of each other wherever all is well: so a read
 * is kept as a branch of its key, and a length. A second branch is an incompatible order. */
#include "internal_txn.h"

#include <string.h>

enum { BRANCHES_TRIED = 8 };

/* The values of a read. 0: no memory. */
static int read_raws(shl_txns *txns, const shl_node *nodes, int64_t count, int64_t *raws)
{
    const shl_node *node = nodes;
    for (int64_t i = 0; i < count; i++) {
        if (node->kind == SHL_NODE_INTEGER && node->number > INT32_MIN) {
            raws[i] = node->number;
            node++;
            continue;
        }
        if (!shl_txn_raw(txns, node, &raws[i]))
            return 0;
        int64_t open = 1;
        for (; open > 0; node++)
            open += (node->kind >= SHL_NODE_LIST ? node->number : 0) - 1;
    }
    return 1;
}

int shl_txn_branch_begins(const shl_txn_list *branch, const int64_t *raws, int64_t count)
{
    int64_t common = branch->length < count ? branch->length : count;
    return common == 0 || (branch->raw[common - 1] == raws[common - 1] &&
                           !memcmp(branch->raw, raws, (size_t)common * sizeof *raws));
}

int shl_txn_branch_room(shl_txns *txns, shl_txn_list *branch, int64_t count)
{
    if (count <= branch->room)
        return 1;
    int64_t room = branch->room * 2 > count ? branch->room * 2 : count + 4;
    int64_t *raw = shl_resize(txns->budget, branch->raw, branch->room * 8, room * 8);
    if (!raw)
        return 0;
    branch->raw = raw;
    int32_t *version = shl_resize(txns->budget, branch->version, branch->room * 4, room * 4);
    if (!version) { /* what was made larger becomes what it was */
        branch->raw = shl_resize(txns->budget, raw, room * 8, branch->room * 8);
        return 0;
    }
    branch->version = version;
    branch->room = room;
    return 1;
}

static int extend(shl_txns *txns, int32_t at, const int64_t *raws, int64_t count)
{
    if (!shl_txn_branch_room(txns, &txns->branches[at], count))
        return 0;
    shl_txn_list *branch = &txns->branches[at];
    for (int64_t i = branch->length; i < count; i++) {
        int32_t version = shl_txn_version_of(txns, branch->key, raws[i]);
        if (version < 0)
            return 0;
        branch->raw[i] = raws[i];
        branch->version[i] = version;
        branch->length = (int32_t)(i + 1);
    }
    branch->a_read = SHL_NONE;
    return 1;
}

int32_t shl_txn_new_branch(shl_txns *txns, int32_t key)
{
    if (!shl_txn_room(txns->budget, (void **)&txns->branches, &txns->branch_room,
                      txns->branch_count, sizeof(shl_txn_list)))
        return -1;
    shl_key_branches *of_key = &txns->key_branches[key];
    txns->branches[txns->branch_count] =
        (shl_txn_list){key, of_key->first, 0, 0, SHL_NONE, SHL_NONE, 0, NULL, NULL};
    of_key->first = (int32_t)txns->branch_count;
    return (int32_t)txns->branch_count++;
}

static int32_t branch_that_agrees(const shl_txns *txns, int32_t key, const int64_t *raws,
                                  int64_t count)
{
    const shl_key_branches *of_key = &txns->key_branches[key];
    if (of_key->recent != SHL_NONE
        && shl_txn_branch_begins(&txns->branches[of_key->recent], raws, count))
        return of_key->recent;
    int32_t at = of_key->first;
    for (int32_t tried = 0; at != SHL_NONE && tried < BRANCHES_TRIED; tried++) {
        if (shl_txn_branch_begins(&txns->branches[at], raws, count))
            return at;
        at = txns->branches[at].next;
    }
    return SHL_NONE;
}

int32_t shl_txn_branch(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count)
{
    int64_t few[256];
    int64_t *raws = count <= 256 ? few : shl_alloc(txns->budget, count * 8);
    if (!raws)
        return -1;
    int32_t at = -1;
    if (read_raws(txns, nodes, count, raws)) {
        at = branch_that_agrees(txns, key, raws, count);
        if (at == SHL_NONE)
            at = shl_txn_new_branch(txns, key);
        if (at >= 0 && count > txns->branches[at].length && !extend(txns, at, raws, count))
            at = -1;
    }
    if (raws != few)
        shl_free(txns->budget, raws, count * 8);
    if (at >= 0) {
        txns->key_branches[key].recent = at;
        txns->branches[at].reads++;
    }
    return at;
}

void shl_txn_free_branches(shl_txns *txns)
{
    for (int64_t i = 0; i < txns->branch_count; i++) {
        shl_txn_list *branch = &txns->branches[i];
        shl_free(txns->budget, branch->raw, branch->room * 8);
        shl_free(txns->budget, branch->version, branch->room * 4);
    }
    shl_free(txns->budget, txns->branches, txns->branch_room * (int64_t)sizeof(shl_txn_list));
    shl_free(txns->budget, txns->longest, txns->longest_count * (int64_t)sizeof(int32_t));
}
