/* Lists within one transaction: what it read must agree with what it read and appended before. */
#include "internal_txn.h"

#include <string.h>

/* --- within a transaction ---------------------------------------------------------------------*/

/* For each mop of a transaction, the one before it on the same key; last: of each key. */
typedef struct {
    int64_t *last, *before;
    int64_t before_room;
} own_mops;

static int32_t version_at(const shl_txns *txns, const shl_mop *read, int32_t place)
{
    return txns->branches[read->value].version[place];
}

static int same_beginning(const shl_txns *txns, const shl_mop *one, const shl_mop *other,
                          int32_t length)
{
    return one->value == other->value || length == 0 ||
           !memcmp(txns->branches[one->value].version, txns->branches[other->value].version,
                   (size_t)length * sizeof(int32_t));
}

/* The mop that read i contradicts, or SHL_NONE. */
static int64_t contradicted(const shl_txns *txns, const own_mops *own, int64_t from, int64_t i)
{
    const shl_mop *read = &txns->mops[i];
    int32_t tail = 0;
    int64_t j = own->before[i - from];
    for (; j >= 0 && !(txns->mops[j].f == SHL_MOP_READ && txns->mops[j].length != SHL_NONE);
         j = own->before[j - from]) {
        if (txns->mops[j].f == SHL_MOP_READ)
            continue;
        tail++;
        if (read->length < tail
            || version_at(txns, read, read->length - tail) != txns->mops[j].value)
            return j;
    }
    if (j < 0)
        return SHL_NONE;
    const shl_mop *earlier = &txns->mops[j];
    if (read->length != earlier->length + tail ||
        !same_beginning(txns, read, earlier, earlier->length))
        return j;
    return SHL_NONE;
}

static int saw(const shl_txns *txns, const shl_mop *read, int32_t version)
{
    if (read->length <= 0)
        return 0;
    if (read->value == txns->longest[read->key]) {
        int32_t at = txns->versions[version].at;
        return at != SHL_NONE && at < read->length;
    }
    for (int32_t p = 0; p < read->length; p++)
        if (version_at(txns, read, p) == version)
            return 1;
    return 0;
}

static int judge_own_read(shl_txns *txns, const own_mops *own, int32_t t, int64_t i, int *is_bad)
{
    int64_t other = contradicted(txns, own, txns->txns[t].mops, i);
    if (other < 0 || *is_bad)
        return 1;
    *is_bad = 1;
    shl_txn_found found = shl_txn_found_at(SHL_FOUND_INTERNAL, t, i);
    found.other = (int32_t)other;
    found.key = txns->mops[i].key;
    return shl_txn_note(txns, found);
}

static int judge_own_append(shl_txns *txns, const own_mops *own, int32_t t, int64_t i)
{
    const shl_mop *append = &txns->mops[i];
    int64_t from = txns->txns[t].mops;
    for (int64_t j = own->before[i - from]; j >= 0; j = own->before[j - from]) {
        if (txns->mops[j].f != SHL_MOP_READ || !saw(txns, &txns->mops[j], append->value))
            continue;
        shl_txn_found found = shl_txn_found_at(SHL_FOUND_FUTURE_READ, t, j);
        found.other = (int32_t)i;
        found.key = append->key;
        found.version = append->value;
        return shl_txn_note(txns, found);
    }
    return 1;
}

static int judge_within(shl_txns *txns, own_mops *own, int32_t t)
{
    const shl_txn *txn = &txns->txns[t];
    while (own->before_room < txn->count) /* one more each time doubles it */
        if (!shl_txn_room(txns->budget, (void **)&own->before, &own->before_room,
                          own->before_room, sizeof(int64_t)))
            return 0;
    int is_bad = 0;
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        int64_t before = own->last[mop->key];
        own->before[i - txn->mops] = before >= txn->mops && before < i ? before : SHL_NONE;
        own->last[mop->key] = i;
        if (mop->f == SHL_MOP_WRITE ? !judge_own_append(txns, own, t, i)
                                    : mop->length != SHL_NONE &&
                                          !judge_own_read(txns, own, t, i, &is_bad))
            return 0;
    }
    return 1;
}

static int judge_inside(shl_txns *txns)
{
    own_mops own = {shl_alloc(txns->budget, txns->key_count * 8), NULL, 0};
    int done = own.last != NULL;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        own.last[key] = SHL_NONE;
    for (int64_t t = 0; done && t < txns->count; t++)
        if (txns->txns[t].type == SHL_TXN_OK && txns->txns[t].count > 1)
            done = judge_within(txns, &own, (int32_t)t);
    shl_free(txns->budget, own.last, txns->key_count * 8);
    shl_free(txns->budget, own.before, own.before_room * 8);
    return done;
}

/* --- the order of own appends -----------------------------------------------------------------*/

/* A transaction appends one after the other: the later one comes later in the list, and is not
 * there without the earlier one. before: of each key, the last append. */
static int judge_own_order(shl_txns *txns, int64_t *before, int32_t t)
{
    const shl_txn *txn = &txns->txns[t];
    for (int64_t i = txn->mops; i < txn->mops + txn->count; i++) {
        const shl_mop *mop = &txns->mops[i];
        if (mop->f != SHL_MOP_WRITE)
            continue;
        int64_t earlier = before[mop->key];
        before[mop->key] = i;
        if (earlier < txn->mops || earlier >= i)
            continue;
        const shl_version *one = &txns->versions[txns->mops[earlier].value];
        const shl_version *other = &txns->versions[mop->value];
        if (one->contested || other->contested || other->at == SHL_NONE ||
            (one->at != SHL_NONE && one->at < other->at))
            continue;
        int is_certain = txn->type == SHL_TXN_OK; /* or it was aborted, and read nevertheless */
        shl_txn_found found = shl_txn_found_at(
            is_certain ? SHL_FOUND_CYCLIC_VERSIONS : SHL_FOUND_INCOMPATIBLE_ORDER, t, i);
        found.other = (int32_t)earlier;
        found.key = mop->key;
        found.version = mop->value;
        found.other_version = txns->mops[earlier].value;
        if (!shl_txn_note(txns, found))
            return 0;
    }
    return 1;
}

static int judge_own_orders(shl_txns *txns)
{
    int64_t *before = shl_alloc(txns->budget, txns->key_count * 8);
    int done = before != NULL;
    for (int64_t key = 0; done && key < txns->key_count; key++)
        before[key] = SHL_NONE;
    for (int64_t t = 0; done && t < txns->count; t++)
        if (shl_txn_may_have_happened(&txns->txns[t]))
            done = judge_own_order(txns, before, (int32_t)t);
    shl_free(txns->budget, before, txns->key_count * 8);
    return done;
}

int32_t shl_txn_judge_lists_inside(shl_txns *txns)
{
    return judge_inside(txns) && judge_own_orders(txns);
}
