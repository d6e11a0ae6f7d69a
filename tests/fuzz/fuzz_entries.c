/* Feeds any bytes to the readers of entries (checkers/engine/entries*.c), for libFuzzer, under
 * AddressSanitizer and UndefinedBehaviorSanitizer; see scripts/fuzz.
 *
 * The first byte says the dialect, the second how long the pieces are. What is checked beyond "no
 * crash": a file read in pieces is the file read at once, with the same complaint at the same
 * place; trees are trees; what is printed is read back as the same; no memory is left. */
#include "../../shalott/checkers/engine/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

typedef struct {
    char *bytes;
    size_t length;
} text;

static void append(text *to, const char *bytes, int64_t length)
{
    if (!length)
        return;
    to->bytes = realloc(to->bytes, to->length + (size_t)length);
    memcpy(to->bytes + to->length, bytes, (size_t)length);
    to->length += (size_t)length;
}

static void check_node(shl_entries *entries, const shl_batch *batch, int32_t at, int32_t end)
{
    const shl_node *node = &batch->nodes[at];
    demand(node->next > at && node->next <= end, "a node ends within what it is in");
    demand(node->kind <= SHL_NODE_SET, "a node is of a kind");
    if (node->kind < SHL_NODE_LIST) {
        int64_t length = 0;
        demand(node->next == at + 1, "a scalar has no children");
        if (node->kind > SHL_NODE_INTEGER)
            demand(shl_entries_text(entries, node->number, &length) != NULL && length >= 0,
                   "a text is there");
        return;
    }
    int64_t children = 0;
    for (int32_t child = at + 1; child < node->next; child = batch->nodes[child].next) {
        check_node(entries, batch, child, node->next);
        children++;
    }
    demand(children == node->number, "as many children as it says");
    demand(node->kind != SHL_NODE_MAP || children % 2 == 0, "a map has pairs");
}

static void take(shl_entries *entries, text *printed)
{
    const shl_batch *batch = shl_entries_batch(entries);
    int64_t length = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        const shl_entry_node *entry = &batch->entries[i];
        demand(entry->type <= SHL_INVOKE && entry->line > 0, "an entry has a type and a line");
        demand(entry->value < batch->nodes[entry->root].next, "its value is within it");
        check_node(entries, batch, entry->root, (int32_t)batch->node_count);
    }
    const char *bytes = shl_entries_print(entries, SHL_ENTRIES_EDN, &length);
    demand(bytes != NULL, "there is memory to print");
    append(printed, bytes, length);
}

/* A copy of its own for each piece, so that not a byte behind it can be looked at unseen. */
static int64_t feed_piece(shl_entries *entries, const uint8_t *bytes, size_t length, int last)
{
    char *piece = malloc(length ? length : 1);
    if (length)
        memcpy(piece, bytes, length);
    int64_t used = shl_entries_feed(entries, piece, (int64_t)length, last);
    free(piece);
    demand(used <= (int64_t)length, "no more is used than was given");
    return used;
}

static void feed(shl_entries *entries, const uint8_t *bytes, size_t size, size_t step,
                 text *printed)
{
    size_t begin = 0, end = 0;
    for (;;) {
        int64_t used = feed_piece(entries, bytes + begin, end - begin, end == size);
        if (used < 0)
            return;
        begin += (size_t)used;
        int64_t count = shl_entries_batch(entries)->count;
        take(entries, printed);
        if (shl_entries_state(entries)->ended)
            return;
        if (count)
            continue;
        demand(end < size, "at the end it ends");
        end = size - end > step ? end + step : size;
    }
}

static shl_entries *read_all(int dialect, const uint8_t *bytes, size_t size, size_t step,
                             text *printed, shl_budget *budget)
{
    shl_entries *entries = shl_entries_new(dialect, budget);
    demand(entries != NULL, "there is memory");
    feed(entries, bytes, size, step, printed);
    return entries;
}

static void check_printed(const text *printed, shl_budget *budget)
{
    text again = {0};
    shl_entries *entries = read_all(SHL_ENTRIES_EDN, (const uint8_t *)printed->bytes,
                                    printed->length, printed->length, &again, budget);
    demand(!shl_entries_state(entries)->error, "what is printed can be read");
    demand(again.length == printed->length &&
               (!again.length || !memcmp(again.bytes, printed->bytes, again.length)),
           "what is printed is read as the same");
    free(again.bytes);
    shl_entries_free(entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    shl_budget budget = {0};
    text one_text = {0}, many_text = {0};
    int dialect = bytes[0] & 1;
    size_t step = (size_t)bytes[1] * 2 + 8;
    shl_entries *whole = read_all(dialect, bytes + 2, size - 2, size, &one_text, &budget);
    shl_entries *pieces = read_all(dialect, bytes + 2, size - 2, step, &many_text, &budget);
    const shl_reading *one = shl_entries_state(whole), *many = shl_entries_state(pieces);
    demand(one->error == many->error, "pieces: the same complaint");
    demand(one->error_line == many->error_line, "pieces: the same line");
    demand(one->error_column == many->error_column, "pieces: the same column");
    demand(one->torn == many->torn, "pieces: the same end");
    if (!one->error) {
        demand(one->entries == many->entries, "pieces: the same entries");
        demand(one_text.length == many_text.length &&
                   (!one_text.length || !memcmp(one_text.bytes, many_text.bytes, one_text.length)),
               "pieces: the same text");
        check_printed(&one_text, &budget);
    }
    free(one_text.bytes);
    free(many_text.bytes);
    shl_entries_free(whole);
    shl_entries_free(pieces);
    demand(budget.bytes == 0, "all memory is given back");
    return 0;
}
