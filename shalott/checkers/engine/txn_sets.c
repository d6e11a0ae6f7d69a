#include "internal_txn.h"
int32_t shl_txn_set(shl_txns *txns, int32_t key, const shl_node *nodes, int64_t count) { (void)txns;(void)key;(void)nodes;(void)count; return -1; }
int32_t shl_txn_judge_sets(shl_txns *txns) { (void)txns; return 1; }
