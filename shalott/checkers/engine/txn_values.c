/* Numbers for values: a plain integer is itself; any other form (a text, a vector) gets a number at
 * the lower end of the integers, where no history has any (and if one has, it becomes a form). */
#include "internal_forms.h"
#include "internal_txn.h"

#include <string.h>

enum { FIRST_IDS = 1024 };
#define FORMS_BELOW (INT64_MIN + ((int64_t)1 << 40))

static uint64_t mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

/* --- the table --------------------------------------------------------------------------------*/

static void put_id(shl_id_table *table, uint64_t hash, int32_t id)
{
    uint64_t at = hash & (uint64_t)(table->slots - 1);
    while (table->ids[at])
        at = (at + 1) & (uint64_t)(table->slots - 1);
    table->ids[at] = id + 1;
}

typedef uint64_t hash_of_id(const shl_txns *txns, int32_t id);

/* Makes room for one more. 0: no memory. */
static int grow_table(shl_txns *txns, shl_id_table *table, hash_of_id *hash_of)
{
    if (table->used * 2 < table->slots)
        return 1;
    shl_id_table grown = {table->slots ? table->slots * 2 : FIRST_IDS, table->used, NULL};
    grown.ids = shl_alloc_zeroed(txns->budget, grown.slots * (int64_t)sizeof(int32_t));
    if (!grown.ids)
        return 0;
    for (int64_t id = 0; id < table->used; id++)
        put_id(&grown, hash_of(txns, (int32_t)id), (int32_t)id);
    shl_free(txns->budget, table->ids, table->slots * (int64_t)sizeof(int32_t));
    *table = grown;
    return 1;
}

/* --- forms ------------------------------------------------------------------------------------*/

static uint64_t hash_of_nodes(const shl_node *nodes, int64_t count)
{
    uint64_t hash = (uint64_t)count;
    for (int64_t i = 0; i < count; i++)
        hash = mixed(mixed(hash, shl_alike(nodes[i].kind)), (uint64_t)nodes[i].number);
    return hash;
}

static uint64_t hash_of_form(const shl_txns *txns, int32_t id)
{
    const shl_form *form = &txns->forms.forms[id];
    return hash_of_nodes(txns->forms.nodes + form->start, form->count);
}

static int is_form(const shl_forms *forms, int32_t id, const shl_node *nodes, int64_t count)
{
    const shl_form *form = &forms->forms[id];
    if (form->count != count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const shl_node *mine = &forms->nodes[form->start + i];
        if (shl_alike(mine->kind) != shl_alike(nodes[i].kind) || mine->number != nodes[i].number)
            return 0;
    }
    return 1;
}

static int32_t new_form(shl_txns *txns, const shl_node *nodes, int64_t count)
{
    shl_forms *forms = &txns->forms;
    if (!shl_txn_room(txns->budget, (void **)&forms->forms, &forms->room, forms->count,
                      sizeof(shl_form)))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        if (!shl_txn_room(txns->budget, (void **)&forms->nodes, &forms->nodes_room,
                          forms->nodes_count + i, sizeof(shl_node)))
            return -1;
        forms->nodes[forms->nodes_count + i] = nodes[i];
        forms->nodes[forms->nodes_count + i].next = (int32_t)i; /* places are not compared */
    }
    forms->forms[forms->count] = (shl_form){forms->nodes_count, count};
    forms->nodes_count += count;
    forms->table.used++;
    return (int32_t)forms->count++;
}

/* The form of a value, a new one if there is none yet. 0: no memory. */
static int find_form(shl_txns *txns, const shl_node *node, int64_t count, int64_t *raw)
{
    uint64_t hash = hash_of_nodes(node, count);
    if (!grow_table(txns, &txns->forms.table, hash_of_form))
        return 0;
    shl_id_table *table = &txns->forms.table;
    uint64_t at = hash & (uint64_t)(table->slots - 1);
    while (table->ids[at] && !is_form(&txns->forms, table->ids[at] - 1, node, count))
        at = (at + 1) & (uint64_t)(table->slots - 1);
    if (!table->ids[at]) {
        int32_t id = new_form(txns, node, count);
        if (id < 0)
            return 0;
        table->ids[at] = id + 1;
    }
    *raw = INT64_MIN + table->ids[at] - 1;
    return 1;
}

int32_t shl_txn_raw(shl_txns *txns, const shl_node *node, int64_t *raw)
{
    if (node->kind == SHL_NODE_INTEGER && node->number >= FORMS_BELOW) {
        *raw = node->number;
        return 1;
    }
    int64_t count = shl_nodes_within(node);
    if (!shl_has_no_order(node, count))
        return find_form(txns, node, count, raw);
    shl_node *ordered = shl_in_order(node, count, txns->budget);
    int done = ordered && find_form(txns, ordered, count, raw);
    shl_free(txns->budget, ordered, count * (int64_t)sizeof *ordered);
    return done;
}

int64_t shl_txn_form(const shl_txns *txns, int64_t raw, const shl_node **nodes)
{
    if (raw >= FORMS_BELOW || raw - INT64_MIN >= txns->forms.count)
        return 0;
    const shl_form *form = &txns->forms.forms[raw - INT64_MIN];
    *nodes = txns->forms.nodes + form->start;
    return form->count;
}

/* --- keys, versions, processes ----------------------------------------------------------------*/

static uint64_t hash_of_key(const shl_txns *txns, int32_t id)
{
    return mixed(0, (uint64_t)txns->keys[id]);
}

int32_t shl_txn_key(shl_txns *txns, int64_t raw)
{
    if (!grow_table(txns, &txns->key_table, hash_of_key))
        return -1;
    shl_id_table *table = &txns->key_table;
    uint64_t at = mixed(0, (uint64_t)raw) & (uint64_t)(table->slots - 1);
    for (; table->ids[at]; at = (at + 1) & (uint64_t)(table->slots - 1))
        if (txns->keys[table->ids[at] - 1] == raw)
            return table->ids[at] - 1;
    if (!shl_txn_room(txns->budget, (void **)&txns->keys, &txns->key_room, txns->key_count,
                      sizeof(int64_t)))
        return -1;
    if (!shl_txn_room(txns->budget, (void **)&txns->key_branches, &txns->key_branches_room,
                      txns->key_count, sizeof(shl_key_branches)))
        return -1;
    txns->keys[txns->key_count] = raw;
    txns->key_branches[txns->key_count] = (shl_key_branches){SHL_NONE, SHL_NONE};
    table->used++;
    table->ids[at] = (int32_t)++txns->key_count;
    return table->ids[at] - 1;
}

static uint64_t hash_of_version(const shl_txns *txns, int32_t id)
{
    return mixed((uint64_t)txns->versions[id].key + 1, (uint64_t)txns->versions[id].raw);
}

int32_t shl_txn_version_of(shl_txns *txns, int32_t key, int64_t raw)
{
    if (!grow_table(txns, &txns->version_table, hash_of_version))
        return -1;
    shl_id_table *table = &txns->version_table;
    uint64_t at = mixed((uint64_t)key + 1, (uint64_t)raw) & (uint64_t)(table->slots - 1);
    for (; table->ids[at]; at = (at + 1) & (uint64_t)(table->slots - 1)) {
        const shl_version *version = &txns->versions[table->ids[at] - 1];
        if (version->raw == raw && version->key == key)
            return table->ids[at] - 1;
    }
    if (!shl_txn_room(txns->budget, (void **)&txns->versions, &txns->version_room,
                      txns->version_count, sizeof(shl_version)))
        return -1;
    txns->versions[txns->version_count] =
        (shl_version){raw, key, SHL_NONE, SHL_NONE, SHL_NONE, 0, 0};
    table->used++;
    table->ids[at] = (int32_t)++txns->version_count;
    return table->ids[at] - 1;
}

static uint64_t hash_of_asker(const shl_txns *txns, int32_t id)
{
    return mixed(0, (uint64_t)txns->askers[id].process);
}

int32_t shl_txn_asker(shl_txns *txns, int64_t process)
{
    if (!grow_table(txns, &txns->asker_table, hash_of_asker))
        return -1;
    shl_id_table *table = &txns->asker_table;
    uint64_t at = mixed(0, (uint64_t)process) & (uint64_t)(table->slots - 1);
    for (; table->ids[at]; at = (at + 1) & (uint64_t)(table->slots - 1))
        if (txns->askers[table->ids[at] - 1].process == process)
            return table->ids[at] - 1;
    if (!shl_txn_room(txns->budget, (void **)&txns->askers, &txns->asker_room, txns->asker_count,
                      sizeof(shl_asker)))
        return -1;
    txns->askers[txns->asker_count] = (shl_asker){process, SHL_NONE, 0, 0, NULL};
    table->used++;
    table->ids[at] = (int32_t)++txns->asker_count;
    return table->ids[at] - 1;
}

static void free_table(shl_txns *txns, shl_id_table *table)
{
    shl_free(txns->budget, table->ids, table->slots * (int64_t)sizeof(int32_t));
}

void shl_txn_free_values(shl_txns *txns)
{
    shl_budget *budget = txns->budget;
    for (int64_t i = 0; i < txns->asker_count; i++)
        shl_free(budget, txns->askers[i].asked, txns->askers[i].room * (int64_t)sizeof(shl_mop));
    shl_free(budget, txns->askers, txns->asker_room * (int64_t)sizeof(shl_asker));
    shl_free(budget, txns->forms.nodes, txns->forms.nodes_room * (int64_t)sizeof(shl_node));
    shl_free(budget, txns->forms.forms, txns->forms.room * (int64_t)sizeof(shl_form));
    shl_free(budget, txns->keys, txns->key_room * (int64_t)sizeof(int64_t));
    shl_free(budget, txns->key_branches,
             txns->key_branches_room * (int64_t)sizeof(shl_key_branches));
    shl_free(budget, txns->versions, txns->version_room * (int64_t)sizeof(shl_version));
    free_table(txns, &txns->forms.table);
    free_table(txns, &txns->key_table);
    free_table(txns, &txns->version_table);
    free_table(txns, &txns->asker_table);
}
