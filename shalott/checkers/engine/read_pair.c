/* Pairing: a completion fills in the row that its invocation began.
 *
 * The order of the log is the order of time: each invocation and each completion that tells
 * something (ok, fail) takes the next rank. What never completes, or completes as info, has no
 * ret. */
#include "internal_read.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OPERATIONS = 1 << 30 }; /* two ranks each must fit an int32 */

static const int64_t COLUMN_BYTES[SHL_READ_COLUMNS] = {4, 4, 1, 8, 1, 8, 1, 4, 4, 4, 8, 8, 4, 4};

static int32_t *column32(shl_reader *reader, int column)
{
    return reader->columns[column];
}

static int64_t *column64(shl_reader *reader, int column)
{
    return reader->columns[column];
}

static uint8_t *column8(shl_reader *reader, int column)
{
    return reader->columns[column];
}

/* Columns grow one by one; should one of them fail, `room` still says what all of them have, and
 * those that grew are given back with their true size by asking for it again. */
static int more_room(shl_reader *reader)
{
    int64_t room = reader->room ? reader->room * 2 : 128;
    for (int column = 0; column < SHL_READ_COLUMNS; column++) {
        int64_t old = reader->room * COLUMN_BYTES[column], bytes = room * COLUMN_BYTES[column];
        void *grown = reader->columns[column]
                          ? shl_resize(reader->budget, reader->columns[column], old, bytes)
                          : shl_alloc(reader->budget, bytes);
        if (!grown) {
            for (int done = 0; done < column; done++) {
                shl_free(reader->budget, reader->columns[done], room * COLUMN_BYTES[done]);
                reader->columns[done] = NULL;
            }
            return 0;
        }
        reader->columns[column] = grown;
    }
    reader->room = room;
    return 1;
}

void *shl_reader_column(shl_reader *reader, int32_t column)
{
    void *memory = reader->columns[column];
    int64_t old = reader->room * COLUMN_BYTES[column];
    int64_t bytes = reader->state.operations * COLUMN_BYTES[column];
    if (!memory || !bytes)
        return NULL;
    void *trimmed = shl_resize(reader->budget, memory, old, bytes);
    reader->columns[column] = NULL;
    reader->budget->bytes -= trimmed ? bytes : old;
    return trimmed ? trimmed : memory;
}

static void *copied(const shl_reader *reader, int column, void *to)
{
    size_t bytes = (size_t)(reader->state.operations * COLUMN_BYTES[column]);
    if (bytes)
        memcpy(to, reader->columns[column], bytes);
    return (char *)to + bytes;
}

void shl_reader_copy(const shl_reader *reader, int64_t *wide, int32_t *narrow, uint8_t *bytes)
{
    int64_t n = reader->state.operations;
    const int32_t *place =
        reader->columns[reader->state.crowded ? SHL_READ_ENTRY : SHL_READ_LINE];
    wide = copied(reader, SHL_READ_ARGUMENT_NUMBER, wide);
    wide = copied(reader, SHL_READ_RESULT_NUMBER, wide);
    for (int64_t row = 0; row < n; row++)
        *wide++ = place[row];
    if (reader->state.timed)
        copied(reader, SHL_READ_RET_NS, copied(reader, SHL_READ_CALL_NS, wide));
    static const int NARROW[] = {SHL_READ_F, SHL_READ_KEY, SHL_READ_PROCESS, SHL_READ_CALL,
                                 SHL_READ_RET};
    for (size_t i = 0; i < sizeof NARROW / sizeof *NARROW; i++)
        narrow = copied(reader, NARROW[i], narrow);
    bytes = copied(reader, SHL_READ_ARGUMENT_KIND, bytes);
    bytes = copied(reader, SHL_READ_RESULT_KIND, bytes);
    copied(reader, SHL_READ_TYPE, bytes);
}

void shl_column_free(void *memory)
{
    free(memory);
}

void shl_columns_free(shl_reader *reader)
{
    for (int column = 0; column < SHL_READ_COLUMNS; column++)
        shl_free(reader->budget, reader->columns[column], reader->room * COLUMN_BYTES[column]);
    shl_free(reader->budget, reader->told, reader->told_room * 2 * (int64_t)sizeof *reader->told);
}

/* A value's number: itself, or its form's. -1 only where memory ran out. */
static int numbered(shl_reader *reader, const shl_entry *entry, int64_t *number)
{
    *number = entry->value.kind == SHL_INTEGER ? entry->value.number : 0;
    if (entry->value.kind != SHL_FORM)
        return 1;
    *number = shl_name(&reader->names[SHL_READ_FORMS], entry->value.slice, entry->line,
                       reader->budget);
    return *number >= 0;
}

static int clash(shl_reader *reader, int code, const shl_entry *entry, int64_t row, const char *at)
{
    reader->state.error_id = entry->id;
    reader->state.error_other = row < 0 ? 0 : column32(reader, SHL_READ_LINE)[row];
    return shl_complain(reader, code, entry->line, at);
}

/* Some of Jepsen's queues tell each dequeue of a drain by itself, while the drain is open: then it
 * took nothing but those, and is left out. */
static int begins_within_drain(shl_reader *reader, const shl_entry *entry, int64_t *place)
{
    int64_t row = *place - 1;
    if (entry->once || SHL_IS(entry->f, "drain") ||
        !SHL_IS(shl_named(&reader->names[SHL_READ_WORDS], column32(reader, SHL_READ_F)[row]),
                "drain"))
        return 0;
    int64_t *drain = shl_row_of(&reader->drains, entry->id, reader->budget);
    if (!drain)
        return 0;
    *drain = *place;
    column8(reader, SHL_READ_TYPE)[row] = SHL_FAIL;
    *place = 0;
    return 1;
}

static int end_of_drain(shl_reader *reader, const shl_entry *entry)
{
    if (!reader->drains.count || !SHL_IS(entry->f, "drain"))
        return 0;
    int64_t *drain = shl_row_of(&reader->drains, entry->id, reader->budget);
    if (!drain || !*drain)
        return 0;
    column32(reader, SHL_READ_RET)[*drain - 1] = (int32_t)reader->state.ranks++;
    *drain = 0;
    return 1;
}

static void note_reused(shl_reader *reader, const shl_entry *entry, int64_t row)
{
    if (column8(reader, SHL_READ_TYPE)[row] == SHL_INFO)
        shl_note_odd(reader, SHL_ODD_REUSED, entry->line);
}

static int begin(shl_reader *reader, const shl_entry *entry, int64_t *place, const char *at)
{
    shl_reading *state = &reader->state;
    int64_t row = state->operations, number;
    if (*place > 0 && begins_within_drain(reader, entry, place))
        ;
    else if (*place > 0 || (*place < 0 && entry->once))
        return clash(reader, SHL_READ_INVOKED_TWICE, entry,
                     (*place < 0 ? -*place : *place) - 1, at);
    if (entry->f.length == 0)
        return clash(reader, SHL_READ_NO_F, entry, -1, at);
    if (row >= MOST_OPERATIONS || entry->line > INT32_MAX)
        return shl_complain(reader, SHL_READ_TOO_MANY, entry->line, at);
    if (row == reader->room && !more_room(reader))
        return shl_complain(reader, SHL_READ_STOPPED, entry->line, at);
    if (*place < 0)
        note_reused(reader, entry, -*place - 1);
    int32_t f = shl_name(&reader->names[SHL_READ_WORDS], entry->f, entry->line, reader->budget);
    int32_t key = -1;
    if (entry->has_key)
        key = shl_name(&reader->names[SHL_READ_KEYS], entry->key, entry->line, reader->budget);
    if (f < 0 || (entry->has_key && key < 0) || !numbered(reader, entry, &number))
        return shl_complain(reader, SHL_READ_STOPPED, entry->line, at);
    column32(reader, SHL_READ_F)[row] = f;
    column32(reader, SHL_READ_KEY)[row] = key;
    column8(reader, SHL_READ_ARGUMENT_KIND)[row] = entry->value.kind;
    column64(reader, SHL_READ_ARGUMENT_NUMBER)[row] = number;
    column8(reader, SHL_READ_RESULT_KIND)[row] = SHL_NOTHING;
    column64(reader, SHL_READ_RESULT_NUMBER)[row] = 0;
    column8(reader, SHL_READ_TYPE)[row] = SHL_INFO;
    column32(reader, SHL_READ_PROCESS)[row] = (int32_t)entry->process;
    column32(reader, SHL_READ_CALL)[row] = (int32_t)state->ranks++;
    column32(reader, SHL_READ_RET)[row] = SHL_NEVER;
    column64(reader, SHL_READ_CALL_NS)[row] = entry->time;
    column64(reader, SHL_READ_RET_NS)[row] = -1;
    column32(reader, SHL_READ_LINE)[row] = (int32_t)entry->line;
    column32(reader, SHL_READ_ENTRY)[row] = (int32_t)state->entries;
    state->operations = row + 1;
    *place = row + 1;
    return SHL_READ_FINE;
}

/* What a completion says again must be what its invocation said. */
static int agrees(shl_reader *reader, const shl_entry *entry, int64_t row)
{
    int32_t f = column32(reader, SHL_READ_F)[row], key = column32(reader, SHL_READ_KEY)[row];
    const shl_names *words = &reader->names[SHL_READ_WORDS], *keys = &reader->names[SHL_READ_KEYS];
    if (entry->f.length) {
        shl_slice known = shl_named(words, f);
        if (!shl_is(entry->f, known.at, known.length))
            return SHL_READ_OTHER_F;
    }
    if (entry->has_key) {
        shl_slice known = key < 0 ? (shl_slice){"", 0} : shl_named(keys, key);
        if (key < 0 || !shl_is(entry->key, known.at, known.length))
            return SHL_READ_OTHER_KEY;
    }
    return SHL_READ_FINE;
}

static int tells_of_emptiness(shl_slice f)
{
    return SHL_IS(f, "dequeue") || SHL_IS(f, "drain") || SHL_IS(f, "remove") || SHL_IS(f, "poll") ||
           SHL_IS(f, "pop") || SHL_IS(f, "receive") || SHL_IS(f, "consume") || SHL_IS(f, "take");
}

static int found_nothing(shl_reader *reader, const shl_entry *entry, int64_t row)
{
    if (!entry->empty || entry->type != SHL_FAIL)
        return 0;
    int32_t f = column32(reader, SHL_READ_F)[row];
    return tells_of_emptiness(shl_named(&reader->names[SHL_READ_WORDS], f));
}

/* What was sent is repeated where it was acknowledged: what came back is its offset. */
static int gives_offsets(shl_slice f)
{
    return SHL_IS(f, "send") || SHL_IS(f, "append");
}

static int set_result(shl_reader *reader, const shl_entry *entry, int64_t row)
{
    int64_t number;
    int32_t f = column32(reader, SHL_READ_F)[row];
    if (entry->repeats && gives_offsets(shl_named(&reader->names[SHL_READ_WORDS], f))) {
        column8(reader, SHL_READ_RESULT_KIND)[row] = entry->has_offset ? SHL_INTEGER : SHL_NOTHING;
        column64(reader, SHL_READ_RESULT_NUMBER)[row] = entry->has_offset ? entry->offset : 0;
        return 1;
    }
    if (entry->value.kind == SHL_NOTHING && entry->repeats) {
        column8(reader, SHL_READ_RESULT_KIND)[row] = column8(reader, SHL_READ_ARGUMENT_KIND)[row];
        column64(reader, SHL_READ_RESULT_NUMBER)[row] =
            column64(reader, SHL_READ_ARGUMENT_NUMBER)[row];
        return 1;
    }
    if (!numbered(reader, entry, &number))
        return 0;
    column8(reader, SHL_READ_RESULT_KIND)[row] = entry->value.kind;
    column64(reader, SHL_READ_RESULT_NUMBER)[row] = number;
    return 1;
}

static int end(shl_reader *reader, const shl_entry *entry, int64_t *place, const char *at)
{
    if (end_of_drain(reader, entry))
        return SHL_READ_FINE;
    if (*place <= 0)
        return clash(reader, SHL_READ_NOT_INVOKED, entry, *place < 0 ? -*place - 1 : -1, at);
    int64_t row = *place - 1;
    int wrong = agrees(reader, entry, row);
    if (wrong) {
        shl_complain_of(reader, wrong == SHL_READ_OTHER_F ? entry->f : entry->key);
        return clash(reader, wrong, entry, row, at);
    }
    *place = -*place;
    column64(reader, SHL_READ_RET_NS)[row] = entry->has_time ? entry->time : -1;
    if (!shl_keep_error(reader, entry, row))
        return shl_complain(reader, SHL_READ_STOPPED, entry->line, at);
    if (entry->type == SHL_INFO)
        return SHL_READ_FINE;
    column32(reader, SHL_READ_RET)[row] = (int32_t)reader->state.ranks++;
    if (found_nothing(reader, entry, row)) {
        column8(reader, SHL_READ_TYPE)[row] = SHL_OK;
        return SHL_READ_FINE;
    }
    column8(reader, SHL_READ_TYPE)[row] = entry->type;
    return set_result(reader, entry, row) ? SHL_READ_FINE
                                          : shl_complain(reader, SHL_READ_STOPPED, entry->line, at);
}

static void count_entry(shl_reader *reader, int64_t line)
{
    reader->state.crowded |= reader->state.entries > 0 && line == reader->invoked_line;
    reader->invoked_line = line;
    reader->state.entries++;
}

int shl_take_entry(shl_reader *reader, const shl_entry *entry, const char *at)
{
    int64_t *place = shl_row_of(&reader->open, entry->id, reader->budget);
    if (!place)
        return shl_complain(reader, SHL_READ_STOPPED, entry->line, at);
    reader->state.timed &= entry->has_time || entry->type == SHL_INFO;
    reader->state.keyed |= entry->has_key;
    int wrong = entry->type == SHL_INVOKE ? begin(reader, entry, place, at)
                                          : end(reader, entry, place, at);
    if (!wrong)
        count_entry(reader, entry->line);
    return wrong;
}

void shl_take_nemesis(shl_reader *reader, int64_t line)
{
    reader->state.nemesis++;
    count_entry(reader, line);
}

/* --- tables -----------------------------------------------------------------------------------*/

/* Two tables of the readers: distinct slices with their numbers, and the row of each process.
 * Both are open addressing with linear probing, doubled at half full. */
static uint64_t mixed(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    return x;
}

static uint32_t hash_of(shl_slice slice)
{
    uint64_t hash = (uint64_t)slice.length * 0x9e3779b97f4a7c15u, word;
    const char *at = slice.at;
    int64_t left = slice.length;
    for (; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = mixed(hash ^ word);
    }
    word = 0;
    if (left > 0)
        memcpy(&word, at, (size_t)left);
    return (uint32_t)mixed(hash ^ word);
}

/* Doubles memory that an array lives in; 0: no memory. */
static int doubled(void **memory, int64_t item_bytes, int64_t room, int64_t new_room,
                   shl_budget *budget)
{
    void *grown = *memory ? shl_resize(budget, *memory, room * item_bytes, new_room * item_bytes)
                          : shl_alloc(budget, new_room * item_bytes);
    if (grown)
        *memory = grown;
    return grown != NULL;
}

static int more_names(shl_names *names, shl_budget *budget)
{
    int64_t room = names->room ? names->room * 2 : 16;
    /* Room counts for all three arrays only when all three have it. */
    int64_t *ends = shl_alloc(budget, room * (int64_t)sizeof *ends);
    int64_t *lines = shl_alloc(budget, room * (int64_t)sizeof *lines);
    uint32_t *hashes = shl_alloc(budget, room * (int64_t)sizeof *hashes);
    if (!ends || !lines || !hashes) {
        shl_free(budget, ends, room * (int64_t)sizeof *ends);
        shl_free(budget, lines, room * (int64_t)sizeof *lines);
        shl_free(budget, hashes, room * (int64_t)sizeof *hashes);
        return 0;
    }
    if (names->count) {
        memcpy(ends, names->ends, (size_t)names->count * sizeof *ends);
        memcpy(lines, names->lines, (size_t)names->count * sizeof *lines);
        memcpy(hashes, names->hashes, (size_t)names->count * sizeof *hashes);
    }
    shl_free(budget, names->ends, names->room * (int64_t)sizeof *ends);
    shl_free(budget, names->lines, names->room * (int64_t)sizeof *lines);
    shl_free(budget, names->hashes, names->room * (int64_t)sizeof *hashes);
    names->ends = ends;
    names->lines = lines;
    names->hashes = hashes;
    names->room = room;
    return 1;
}

static int more_slots(shl_names *names, shl_budget *budget)
{
    int64_t count = names->slot_count ? names->slot_count * 2 : 64;
    int32_t *slots = shl_alloc_zeroed(budget, count * (int64_t)sizeof *slots);
    if (!slots)
        return 0;
    for (int64_t number = 0; number < names->count; number++) {
        int64_t at = names->hashes[number] & (uint64_t)(count - 1);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = (int32_t)number + 1;
    }
    shl_free(budget, names->slots, names->slot_count * (int64_t)sizeof *slots);
    names->slots = slots;
    names->slot_count = count;
    return 1;
}

static int same(const shl_names *names, int64_t number, uint32_t hash, shl_slice slice)
{
    shl_slice known = shl_named(names, (int32_t)number);
    if (names->hashes[number] != hash || known.length != slice.length)
        return 0;
    return !slice.length || memcmp(known.at, slice.at, (size_t)slice.length) == 0;
}

static int keep_bytes(shl_names *names, shl_slice slice, shl_budget *budget)
{
    if (names->bytes_used + slice.length >= names->bytes_room) {
        int64_t room = names->bytes_room ? names->bytes_room * 2 : 256;
        while (room <= names->bytes_used + slice.length)
            room *= 2;
        if (!doubled((void **)&names->bytes, 1, names->bytes_room, room, budget))
            return 0;
        names->bytes_room = room;
    }
    if (slice.length)
        memcpy(names->bytes + names->bytes_used, slice.at, (size_t)slice.length);
    names->bytes_used += slice.length;
    names->bytes[names->bytes_used++] = (char)SHL_SEPARATOR;
    return 1;
}

int32_t shl_name(shl_names *names, shl_slice slice, int64_t line, shl_budget *budget)
{
    if (names->count * 2 >= names->slot_count && !more_slots(names, budget))
        return -1;
    uint32_t hash = hash_of(slice);
    int64_t at = hash & (uint64_t)(names->slot_count - 1);
    for (; names->slots[at]; at = (at + 1) & (names->slot_count - 1))
        if (same(names, names->slots[at] - 1, hash, slice))
            return names->slots[at] - 1;
    if (names->count == names->room && !more_names(names, budget))
        return -1;
    if (!keep_bytes(names, slice, budget))
        return -1;
    int64_t number = names->count++;
    names->ends[number] = names->bytes_used - 1;
    names->lines[number] = line;
    names->hashes[number] = hash;
    names->slots[at] = (int32_t)number + 1;
    return (int32_t)number;
}

void shl_names_free(shl_names *names, shl_budget *budget)
{
    shl_free(budget, names->bytes, names->bytes_room);
    shl_free(budget, names->ends, names->room * (int64_t)sizeof *names->ends);
    shl_free(budget, names->lines, names->room * (int64_t)sizeof *names->lines);
    shl_free(budget, names->hashes, names->room * (int64_t)sizeof *names->hashes);
    shl_free(budget, names->slots, names->slot_count * (int64_t)sizeof *names->slots);
}

/* --- rows by id --------------------------------------------------------------------------------*/

static int64_t place_of(const int64_t *ids, const int64_t *rows, int64_t slot_count, int64_t id)
{
    int64_t at = (int64_t)(mixed((uint64_t)id) & (uint64_t)(slot_count - 1));
    while (rows[at] && ids[at] != id)
        at = (at + 1) & (slot_count - 1);
    return at;
}

static int more_rows(shl_rows_by_id *table, shl_budget *budget)
{
    int64_t count = table->slot_count ? table->slot_count * 2 : 64;
    int64_t bytes = count * (int64_t)sizeof(int64_t);
    int64_t *ids = shl_alloc(budget, bytes), *rows = shl_alloc_zeroed(budget, bytes);
    if (!ids || !rows) {
        shl_free(budget, ids, bytes);
        shl_free(budget, rows, bytes);
        return 0;
    }
    for (int64_t old = 0; old < table->slot_count; old++) {
        if (!table->rows[old])
            continue;
        int64_t at = place_of(ids, rows, count, table->ids[old]);
        ids[at] = table->ids[old];
        rows[at] = table->rows[old];
    }
    shl_rows_free(table, budget);
    table->ids = ids;
    table->rows = rows;
    table->slot_count = count;
    return 1;
}

int64_t *shl_row_of(shl_rows_by_id *table, int64_t id, shl_budget *budget)
{
    if (table->count * 2 >= table->slot_count && !more_rows(table, budget))
        return NULL;
    int64_t at = place_of(table->ids, table->rows, table->slot_count, id);
    if (!table->rows[at]) {
        /* A place that is asked for and then not filled stays free: it may be counted twice, which
         * only makes the table grow a little early. */
        table->ids[at] = id;
        table->count++;
    }
    return &table->rows[at];
}

void shl_rows_free(shl_rows_by_id *table, shl_budget *budget)
{
    shl_free(budget, table->ids, table->slot_count * (int64_t)sizeof(int64_t));
    shl_free(budget, table->rows, table->slot_count * (int64_t)sizeof(int64_t));
}

/* --- complaints --------------------------------------------------------------------------------*/

int64_t shl_distance_in_line(const shl_reader *reader, const char *at)
{
    const char *from = at;
    while (from > reader->begin && from[-1] != '\n')
        from--;
    return at - from + (from == reader->begin ? reader->line_begin : 0);
}

int shl_complain(shl_reader *reader, int code, int64_t line, const char *at)
{
    reader->state.error = code;
    reader->state.error_line = line;
    reader->state.error_column = shl_distance_in_line(reader, at) + 1;
    return code;
}

void shl_complain_of(shl_reader *reader, shl_slice word)
{
    int64_t most = (int64_t)sizeof reader->state.error_word - 1;
    int64_t length = word.length < most ? word.length : most;
    if (length > 0)
        memcpy(reader->state.error_word, word.at, (size_t)length);
    reader->state.error_word[length > 0 ? length : 0] = 0;
}
