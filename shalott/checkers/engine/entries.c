/* A reader of entries' life: it is fed, it keeps texts, it hands out batches. */
#include "internal_entries.h"

#include <string.h>

enum { MOST_ENTRIES = 4096, ENOUGH_NODES = 1 << 16, MOST_NODES = 2147483647 };

/* In the order of their ids: types by number, the nemesis, the fields. */
static const char *const FIRST_TEXTS[] = {"ok",      "fail",  "info", "invoke", "nemesis", "type",
                                          "f",       "process", "value", "time", "index", "key",
                                          "error"};

shl_entries *shl_entries_new(int32_t dialect, shl_budget *budget)
{
    shl_entries *entries = shl_alloc_zeroed(budget, sizeof *entries);
    if (!entries)
        return NULL;
    entries->reader.dialect = dialect;
    entries->reader.budget = budget;
    entries->reader.state.line = 1;
    entries->reader.most_lines = 1;
    for (size_t i = 0; i < sizeof FIRST_TEXTS / sizeof *FIRST_TEXTS; i++) {
        if (shl_entries_id(entries, FIRST_TEXTS[i], (int64_t)strlen(FIRST_TEXTS[i])) < 0) {
            shl_entries_free(entries);
            return NULL;
        }
    }
    return entries;
}

void shl_entries_free(shl_entries *entries)
{
    if (!entries)
        return;
    shl_budget *budget = entries->reader.budget;
    shl_names_free(&entries->reader.names[SHL_READ_WORDS], budget);
    shl_free(budget, entries->nodes, entries->node_room * (int64_t)sizeof *entries->nodes);
    shl_free(budget, entries->entries, entries->room * (int64_t)sizeof *entries->entries);
    shl_free(budget, entries->passing, entries->passing_room);
    shl_free(budget, entries->scratch, entries->scratch_room);
    shl_free(budget, entries->printed, entries->printed_room);
    shl_free(budget, entries, sizeof *entries);
}

const shl_batch *shl_entries_batch(const shl_entries *entries)
{
    return &entries->batch;
}

const shl_reading *shl_entries_state(const shl_entries *entries)
{
    return &entries->reader.state;
}

/* --- feeding -----------------------------------------------------------------------------------*/

/* Whether the batch has as many entries as it should. */
static int is_full(const shl_entries *entries)
{
    return entries->count >= MOST_ENTRIES || entries->node_count >= ENOUGH_NODES;
}

/* An entry that ends with the bytes is read again when it is whole. */
int shl_read_whole(shl_entries *entries, shl_cursor *cursor, int32_t last, shl_find *find,
                   shl_read_one *read)
{
    while (!is_full(entries)) {
        int found, status = find(entries, cursor, last, &found);
        if (status || !found)
            return status;
        shl_cursor entry = *cursor;
        int64_t nodes = entries->node_count, passing = entries->passing_used;
        status = read(entries, &entry);
        if (status > 0 && !entries->reader.state.error)
            return shl_complain(&entries->reader, status, entry.line, entry.at);
        if (status) {
            entries->node_count = nodes;
            entries->passing_used = passing;
            return status;
        }
        *cursor = entry;
    }
    return SHL_READ_FINE;
}

static int read_some(shl_entries *entries, shl_cursor *cursor, int32_t last)
{
    return entries->reader.dialect == SHL_ENTRIES_JSON ? shl_entries_json(entries, cursor, last)
                                                       : shl_entries_edn(entries, cursor, last);
}

int64_t shl_entries_feed(shl_entries *entries, const char *bytes, int64_t length, int32_t last)
{
    shl_reader *reader = &entries->reader;
    shl_cursor cursor = {bytes, bytes + length, reader->state.line};
    entries->count = entries->node_count = entries->passing_used = 0;
    entries->batch = (shl_batch){0, NULL, NULL, 0};
    if (!reader->state.error && shl_check_budget(reader->budget))
        reader->state.error = SHL_READ_STOPPED;
    if (reader->state.error)
        return -1;
    reader->begin = bytes;
    int status = read_some(entries, &cursor, last);
    int is_end = last && !is_full(entries);
    const char *mark = reader->dialect == SHL_ENTRIES_JSON ? SHL_JSON_MARK : SHL_EDN_MARK;
    if (status == SHL_MORE && is_end && shl_check_torn(reader, &cursor, mark))
        return -1;
    if (status > 0)
        return -1;
    reader->state.line = cursor.line;
    if (status == SHL_MORE && is_end)
        reader->state.torn = cursor.line;
    reader->state.ended = is_end;
    reader->line_begin = shl_distance_in_line(reader, cursor.at);
    reader->begin = NULL;
    entries->batch = (shl_batch){entries->count, entries->entries, entries->nodes,
                                 entries->node_count};
    return cursor.at - bytes;
}

/* --- room --------------------------------------------------------------------------------------*/

/* Doubles an array's memory until it has room for `least`; 0: no memory. */
static int grow(shl_entries *entries, void **memory, int64_t item_bytes, int64_t *room,
                int64_t least)
{
    shl_budget *budget = entries->reader.budget;
    int64_t wanted = *room ? *room * 2 : 256;
    while (wanted < least)
        wanted *= 2;
    void *grown = *memory ? shl_resize(budget, *memory, *room * item_bytes, wanted * item_bytes)
                          : shl_alloc(budget, wanted * item_bytes);
    if (!grown)
        return 0;
    *memory = grown;
    *room = wanted;
    return 1;
}

int shl_more_nodes(shl_entries *entries)
{
    return entries->node_count < MOST_NODES / 2 &&
           grow(entries, (void **)&entries->nodes, sizeof *entries->nodes, &entries->node_room,
                entries->node_count + 1);
}

char *shl_scratch(shl_entries *entries, int64_t length)
{
    if (length > entries->scratch_room &&
        !grow(entries, (void **)&entries->scratch, 1, &entries->scratch_room, length))
        return NULL;
    return entries->scratch;
}

char *shl_printed(shl_entries *entries, int64_t length)
{
    if (length > entries->printed_room &&
        !grow(entries, (void **)&entries->printed, 1, &entries->printed_room, length))
        return NULL;
    return entries->printed;
}

/* --- texts -------------------------------------------------------------------------------------*/

static int64_t keep_passing(shl_entries *entries, shl_slice text)
{
    int64_t at = entries->passing_used;
    int64_t used = at + (int64_t)sizeof text.length + text.length;
    if (used > entries->passing_room &&
        !grow(entries, (void **)&entries->passing, 1, &entries->passing_room, used))
        return SHL_ABSENT;
    memcpy(entries->passing + at, &text.length, sizeof text.length);
    if (text.length)
        memcpy(entries->passing + at + sizeof text.length, text.at, (size_t)text.length);
    entries->passing_used = used;
    return SHL_ABSENT - 1 - at;
}

int64_t shl_keep_text(shl_entries *entries, shl_slice text, int is_other)
{
    if (entries->is_aside && (is_other || text.length > MOST_OF_PASSING))
        return keep_passing(entries, text);
    return shl_entries_id(entries, text.at, text.length);
}

const char *shl_entries_text(const shl_entries *entries, int64_t id, int64_t *length)
{
    if (id < SHL_ABSENT) {
        const char *at = entries->passing + (SHL_ABSENT - 1 - id);
        memcpy(length, at, sizeof *length);
        return at + sizeof *length;
    }
    shl_slice text = shl_named(&entries->reader.names[SHL_READ_WORDS], (int32_t)id);
    *length = text.length;
    return text.at;
}

int32_t shl_entries_id(shl_entries *entries, const char *text, int64_t length)
{
    return shl_name(&entries->reader.names[SHL_READ_WORDS], (shl_slice){text, length}, 0,
                    entries->reader.budget);
}

int64_t shl_entries_text_count(const shl_entries *entries)
{
    return entries->reader.names[SHL_READ_WORDS].count;
}

int64_t shl_put_utf8(char *to, uint32_t point)
{
    if (point < 0x80) {
        to[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        to[0] = (char)(0xc0 | point >> 6);
        to[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        to[0] = (char)(0xe0 | point >> 12);
        to[1] = (char)(0x80 | (point >> 6 & 0x3f));
        to[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | point >> 18);
    to[1] = (char)(0x80 | (point >> 12 & 0x3f));
    to[2] = (char)(0x80 | (point >> 6 & 0x3f));
    to[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

static int32_t hex4(const char *at, const char *end)
{
    int32_t number = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char byte = at[i];
        int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        number = number * 16 + digit;
    }
    return number;
}

int64_t shl_put_unit(const char *at, const char *end, char **to)
{
    int32_t unit = hex4(at + 1, end);
    if (unit < 0)
        return 0;
    if (unit >= 0xd800 && unit < 0xdc00 && end - at >= 11 && at[5] == '\\' && at[6] == 'u') {
        int32_t low = hex4(at + 7, end);
        if (low >= 0xdc00 && low < 0xe000) {
            *to += shl_put_utf8(*to, 0x10000u + ((uint32_t)(unit - 0xd800) << 10) +
                                         (uint32_t)(low - 0xdc00));
            return 11;
        }
    }
    *to += shl_put_utf8(*to, (uint32_t)unit);
    return 5;
}

int shl_no_value(shl_entries *entries, shl_slice met, const shl_cursor *cursor)
{
    shl_complain_of(&entries->reader, met);
    return shl_complain(&entries->reader, SHL_READ_NO_VALUE, cursor->line, met.at);
}

int shl_add_escaped(shl_entries *entries, const shl_cursor *cursor, shl_slice text,
                    shl_resolve *resolve)
{
    char *scratch = shl_scratch(entries, text.length), *to = scratch;
    const char *at = text.at, *end = at + text.length;
    if (!scratch)
        return SHL_READ_STOPPED;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        int64_t length = resolve(at + 1, end, &to);
        if (!length)
            return shl_no_value(entries, (shl_slice){at, end - at < 6 ? end - at : 6}, cursor);
        at += 1 + length;
    }
    return shl_add_text(entries, SHL_NODE_TEXT, (shl_slice){scratch, to - scratch});
}

/* --- fields ------------------------------------------------------------------------------------*/

void shl_fields_clear(shl_fields *fields)
{
    memset(fields, 0, sizeof *fields);
    for (int field = 0; field < FIELDS; field++)
        fields->node[field] = SHL_ABSENT;
}

int shl_field_of(int64_t id)
{
    return id >= FIRST_FIELD && id < FIRST_FIELD + FIELDS ? (int)id - FIRST_FIELD : FIELDS;
}

static int complain_of(shl_entries *entries, int code, const shl_fields *fields, int field)
{
    shl_slice met = fields->slice[field];
    if (met.length)
        shl_complain_of(&entries->reader, met);
    return shl_complain(&entries->reader, code, fields->line, met.length ? met.at : fields->begin);
}

static const shl_node *node_of(const shl_entries *entries, const shl_fields *fields, int field)
{
    int32_t node = fields->node[field];
    return node < 0 || entries->nodes[node].kind == SHL_NODE_NIL ? NULL : &entries->nodes[node];
}

static int is_word(const shl_node *node)
{
    return node && (node->kind == SHL_NODE_KEYWORD || node->kind == SHL_NODE_TEXT);
}

/* Whether the first entry of a file has a field says whether all of them have it: a damaged name
 * would make it vanish without a word. */
static int is_like_the_first(int32_t *known, int is_there)
{
    if (!*known)
        *known = is_there ? 1 : -1;
    return (*known > 0) == is_there;
}

static int take_process(shl_entries *entries, const shl_fields *fields, shl_entry_node *entry)
{
    const shl_node *process = node_of(entries, fields, FIELD_PROCESS);
    if (!is_like_the_first(&entries->has_process, process != NULL))
        return complain_of(entries, process ? SHL_READ_SOME_PROCESS : SHL_READ_NO_PROCESS, fields,
                           FIELD_PROCESS);
    entry->process = SHL_NO_PROCESS;
    if (!process)
        return SHL_READ_FINE;
    if (is_word(process) && process->number == ID_NEMESIS)
        entry->process = SHL_NEMESIS;
    else if (process->kind == SHL_NODE_INTEGER && process->number <= INT32_MAX &&
             process->number > SHL_NO_PROCESS)
        entry->process = process->number;
    else
        return complain_of(entries, SHL_READ_BAD_PROCESS, fields, FIELD_PROCESS);
    return SHL_READ_FINE;
}

static int take_f(shl_entries *entries, const shl_fields *fields, shl_entry_node *entry)
{
    const shl_node *f = node_of(entries, fields, FIELD_F);
    entry->f = SHL_ABSENT;
    if (entry->process != SHL_NEMESIS && !is_like_the_first(&entries->has_f, f != NULL))
        return complain_of(entries, f ? SHL_READ_SOME_F : SHL_READ_NO_F, fields, FIELD_F);
    if (!f)
        return SHL_READ_FINE;
    if (!is_word(f))
        return complain_of(entries, SHL_READ_BAD_F, fields, FIELD_F);
    entry->f = (int32_t)f->number;
    return SHL_READ_FINE;
}

/* A number that may be absent. */
static int take_number(shl_entries *entries, const shl_fields *fields, int field, int code,
                       int64_t *number)
{
    const shl_node *node = node_of(entries, fields, field);
    *number = SHL_ABSENT;
    if (!node)
        return SHL_READ_FINE;
    if (node->kind != SHL_NODE_INTEGER || (field == FIELD_INDEX && node->number < 0))
        return complain_of(entries, code, fields, field);
    *number = node->number;
    return SHL_READ_FINE;
}

int shl_take_fields(shl_entries *entries, const shl_fields *fields)
{
    shl_entry_node entry = {.line = fields->line, .root = fields->root,
                            .value = fields->node[FIELD_VALUE], .error = fields->node[FIELD_ERROR],
                            .key = fields->node[FIELD_KEY]};
    const shl_node *type = node_of(entries, fields, FIELD_TYPE);
    int status;
    if ((status = take_process(entries, fields, &entry)))
        return status;
    if (!type)
        return complain_of(entries, SHL_READ_NO_TYPE, fields, FIELD_TYPE);
    if (!is_word(type) || type->number > SHL_INVOKE || type->number < 0)
        return complain_of(entries, SHL_READ_BAD_TYPE, fields, FIELD_TYPE);
    entry.type = (uint8_t)type->number;
    if ((status = take_f(entries, fields, &entry)) ||
        (status = take_number(entries, fields, FIELD_TIME, SHL_READ_BAD_TIME, &entry.time)) ||
        (status = take_number(entries, fields, FIELD_INDEX, SHL_READ_BAD_INDEX, &entry.index)))
        return status;
    if (entries->count == entries->room &&
        !grow(entries, (void **)&entries->entries, sizeof entry, &entries->room,
              entries->count + 1))
        return shl_complain(&entries->reader, SHL_READ_STOPPED, fields->line, fields->begin);
    entries->entries[entries->count++] = entry;
    entries->reader.state.entries++;
    entries->reader.state.nemesis += entry.process == SHL_NEMESIS;
    return SHL_READ_FINE;
}
