/* What all objects share: who wrote what, and reads of what ought not to be seen. */
#include "internal_txn.h"

shl_txn_found shl_txn_found_at(int32_t kind, int32_t txn, int64_t mop)
{
    return (shl_txn_found){kind, txn, (int32_t)mop, SHL_NONE, SHL_NONE, SHL_NONE, SHL_NONE,
                           SHL_NONE, SHL_NONE, SHL_NONE};
}

/* All are counted, the first of each kind kept. */
int32_t shl_txn_note(shl_txns *txns, shl_txn_found found)
{
    if (txns->found_count[found.kind]++ >= txns->options.kept)
        return 1;
    if (!shl_txn_room(txns->budget, (void **)&txns->found, &txns->found_room, txns->found_total,
                      sizeof found))
        return 0;
    txns->found[txns->found_total++] = found;
    return 1;
}

static void written(shl_txns *txns, int32_t at, int32_t version_at)
{
    shl_version *version = &txns->versions[version_at];
    if (!shl_txn_may_have_happened(&txns->txns[at])) {
        if (version->failed == SHL_NONE)
            version->failed = at;
    } else if (version->writer == SHL_NONE) {
        version->writer = at;
    } else if (!version->contested &&
               (version->writer != at || txns->options.object == SHL_TXN_LISTS)) {
        version->contested = 1;
        if (!txns->contested++)
            txns->contested_version = version_at;
    }
}

/* The writers of each version, and which versions are not the last that their writer wrote. */
int32_t shl_txn_find_writers(shl_txns *txns)
{
    int64_t bytes = txns->key_count * (int64_t)sizeof(int64_t);
    int64_t *last = shl_alloc(txns->budget, bytes); /* of each key: the mop that wrote it */
    if (!last)
        return 0;
    for (int64_t key = 0; key < txns->key_count; key++)
        last[key] = SHL_NONE;
    for (int64_t t = 0; t < txns->count; t++) {
        const shl_txn *txn = &txns->txns[t];
        for (int64_t i = txn->mops + txn->count - 1; i >= txn->mops; i--) {
            const shl_mop *mop = &txns->mops[i];
            if (mop->f != SHL_MOP_WRITE)
                continue;
            written(txns, (int32_t)t, mop->value);
            int64_t later = last[mop->key];
            int is_last = later < i || later >= txn->mops + txn->count;
            if (is_last)
                last[mop->key] = i;
            else if (txns->mops[later].value != mop->value && shl_txn_may_have_happened(txn))
                txns->versions[mop->value].intermediate = 1;
        }
    }
    shl_free(txns->budget, last, bytes);
    return 1;
}

/* As if no transaction had touched these keys. What breaks a model without them breaks it. */
static void leave_out(shl_txns *txns, const uint8_t *left_out)
{
    for (int64_t t = 0; t < txns->count; t++) {
        shl_txn *txn = &txns->txns[t];
        int32_t kept = 0;
        for (int64_t i = txn->mops; i < txn->mops + txn->count; i++)
            if (!left_out[txns->mops[i].key])
                txns->mops[txn->mops + kept++] = txns->mops[i];
        txn->count = kept;
    }
    for (int64_t key = 0; key < txns->key_count; key++)
        if (left_out[key])
            txns->key_branches[key] = (shl_key_branches){SHL_NONE, SHL_NONE};
}

int32_t shl_txn_find_contested(shl_txns *txns)
{
    enum { NAMED = sizeof txns->contested_key / sizeof *txns->contested_key };
    if (!txns->contested)
        return 1;
    uint8_t *has_any = shl_alloc_zeroed(txns->budget, txns->key_count);
    if (!has_any)
        return 0;
    for (int64_t v = 0; v < txns->version_count; v++) {
        int32_t key = txns->versions[v].key;
        if (!txns->versions[v].contested || has_any[key])
            continue;
        has_any[key] = 1;
        if (txns->contested_keys++ < NAMED)
            txns->contested_key[txns->contested_keys - 1] = key;
    }
    if (txns->options.contested_ignored)
        leave_out(txns, has_any);
    shl_free(txns->budget, has_any, txns->key_count);
    return 1;
}

int32_t shl_txn_judge_version(shl_txns *txns, int32_t txn, int64_t mop, int32_t version_at,
                              int is_last)
{
    const shl_version *version = &txns->versions[version_at];
    shl_txn_found found = shl_txn_found_at(SHL_FOUND_G1B, txn, mop);
    found.version = version_at;
    found.key = version->key;
    if (version->writer == SHL_NONE) {
        found.kind = version->failed == SHL_NONE ? SHL_FOUND_GARBAGE_READ : SHL_FOUND_G1A;
        found.other = version->failed;
        return shl_txn_note(txns, found);
    }
    found.other = version->writer;
    if (version->contested || !is_last || !version->intermediate || version->writer == txn)
        return 1;
    return shl_txn_note(txns, found);
}
