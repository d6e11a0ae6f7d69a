/* Entries as text again, EDN or JSON: what was read of the one can be written as the other. */
#include "internal_entries.h"

#include <string.h>

/* Text that grows; `room` is shl_entries' own, kept for the next batch. */
typedef struct {
    shl_entries *entries;
    int64_t used;
    int32_t is_json; /* what is written */
    int32_t failed;
} printer;

static void put(printer *to, const char *bytes, int64_t length)
{
    char *room = to->failed ? NULL : shl_printed(to->entries, to->used + length);
    if (!room) {
        to->failed = 1;
        return;
    }
    memcpy(room + to->used, bytes, (size_t)length);
    to->used += length;
}

static void put_byte(printer *to, char byte)
{
    put(to, &byte, 1);
}

static void put_integer(printer *to, int64_t number)
{
    char text[24], *at = text + sizeof text;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *--at = '-';
    put(to, at, text + sizeof text - at);
}

static shl_slice text_of(const printer *to, int64_t id)
{
    shl_slice text;
    text.at = shl_entries_text(to->entries, id, &text.length);
    return text;
}

/* The escape of a byte in a string; 0: it needs none; 'u': by its number. */
static char escape_of(const printer *to, char byte)
{
    switch (byte) {
    case '"':
    case '\\':
        return byte;
    case '\n':
        return 'n';
    case '\t':
        return 't';
    case '\r':
        return 'r';
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    default:
        return to->is_json && (uint8_t)byte < 0x20 ? 'u' : 0;
    }
}

static void put_string(printer *to, shl_slice text)
{
    static const char HEX[] = "0123456789abcdef";
    const char *from = text.at, *end = text.at + text.length;
    put_byte(to, '"');
    for (const char *at = from; at < end; at++) {
        char escape = escape_of(to, *at);
        if (!escape)
            continue;
        put(to, from, at - from);
        put_byte(to, '\\');
        put_byte(to, escape);
        if (escape == 'u') {
            char digits[] = {'0', '0', HEX[(uint8_t)*at >> 4], HEX[*at & 15]};
            put(to, digits, sizeof digits);
        }
        from = at + 1;
    }
    put(to, from, end - from);
    put_byte(to, '"');
}

static int is_keyword_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (uint8_t)byte >= 0x80 ||
           memchr("*!_?$%&=<>.+-/#:'", byte, 17);
}

static void put_keyword(printer *to, shl_slice text)
{
    if (to->is_json) {
        put_string(to, text);
        return;
    }
    put_byte(to, ':');
    put(to, text.at, text.length);
}

/* The name of an entry's field; of JSON it may have bytes that no keyword can have. */
static void put_field_name(printer *to, const shl_node *name)
{
    shl_slice text = text_of(to, name->number);
    if (to->is_json || name->kind == SHL_NODE_KEYWORD) {
        put_keyword(to, text);
        return;
    }
    put_byte(to, ':');
    for (int64_t i = 0; i < text.length; i++)
        put_byte(to, is_keyword_byte(text.at[i]) ? text.at[i] : '_');
    if (!text.length)
        put_byte(to, '_');
}

/* A text of JSON as a keyword, if it can be read back as one. */
static void put_word(printer *to, shl_slice text)
{
    int is_keyword = text.length > 0 && !to->is_json && text.at[0] != ':';
    for (int64_t i = 0; is_keyword && i < text.length; i++)
        is_keyword = is_keyword_byte(text.at[i]);
    if (is_keyword)
        put_keyword(to, text);
    else
        put_string(to, text);
}

static void put_other(printer *to, shl_slice text)
{
    if (!to->is_json || shl_is_json_number(text))
        put(to, text.at, text.length);
    else
        put_string(to, text);
}

static void put_scalar(printer *to, const shl_node *node)
{
    switch (node->kind) {
    case SHL_NODE_NIL:
        put(to, to->is_json ? "null" : "nil", to->is_json ? 4 : 3);
        break;
    case SHL_NODE_FALSE:
        put(to, "false", 5);
        break;
    case SHL_NODE_TRUE:
        put(to, "true", 4);
        break;
    case SHL_NODE_INTEGER:
        put_integer(to, node->number);
        break;
    case SHL_NODE_KEYWORD:
        put_keyword(to, text_of(to, node->number));
        break;
    case SHL_NODE_TEXT:
        put_string(to, text_of(to, node->number));
        break;
    default:
        put_other(to, text_of(to, node->number));
    }
}

static void put_node(printer *to, int32_t at);

/* A name in JSON is a string: what is none is one with its text. */
static void put_name(printer *to, int32_t at)
{
    const shl_node *node = &to->entries->nodes[at];
    if (!to->is_json || node->kind == SHL_NODE_TEXT || node->kind == SHL_NODE_KEYWORD) {
        put_node(to, at);
        return;
    }
    int64_t begin = to->used;
    to->is_json = 0;
    put_node(to, at);
    to->is_json = 1;
    if (to->failed)
        return;
    shl_slice text = {to->entries->printed + begin, to->used - begin};
    char *copy = shl_scratch(to->entries, text.length);
    to->failed = !copy;
    if (!copy)
        return;
    memcpy(copy, text.at, (size_t)text.length);
    to->used = begin;
    put_string(to, (shl_slice){copy, text.length});
}

/* The first word of a transaction's operation is a keyword to Elle: ["append", 9, 1] of JSON. */
static int is_operation(const printer *to, const shl_node *list)
{
    if (to->is_json || to->entries->reader.dialect != SHL_ENTRIES_JSON ||
        list->kind != SHL_NODE_LIST || list->number != 3 || list[1].kind != SHL_NODE_TEXT)
        return 0;
    shl_slice f = text_of(to, list[1].number);
    return SHL_IS(f, "append") || SHL_IS(f, "r") || SHL_IS(f, "w");
}

static void put_children(printer *to, int32_t at)
{
    const shl_node *node = &to->entries->nodes[at];
    int is_map = node->kind == SHL_NODE_MAP;
    int32_t child = at + 1;
    if (is_operation(to, node)) {
        put_word(to, text_of(to, to->entries->nodes[child].number));
        child++;
    }
    for (; child < node->next; child = to->entries->nodes[child].next) {
        if (child > at + 1)
            put(to, ", ", to->is_json || is_map ? 2 : 0);
        if (child > at + 1 && !to->is_json && !is_map)
            put_byte(to, ' ');
        if (is_map) {
            put_name(to, child);
            put(to, ": ", to->is_json ? 2 : 0);
            if (!to->is_json)
                put_byte(to, ' ');
            child = to->entries->nodes[child].next;
        }
        put_node(to, child);
    }
}

static void put_node(printer *to, int32_t at)
{
    const shl_node *node = &to->entries->nodes[at];
    if (node->kind < SHL_NODE_LIST) {
        put_scalar(to, node);
        return;
    }
    int is_map = node->kind == SHL_NODE_MAP, is_set = node->kind == SHL_NODE_SET;
    if (to->is_json) {
        put_byte(to, is_map ? '{' : '[');
        put_children(to, at);
        put_byte(to, is_map ? '}' : ']');
        return;
    }
    put(to, is_set ? "#{" : is_map ? "{" : "[", 1 + is_set);
    put_children(to, at);
    put_byte(to, is_map || is_set ? '}' : ']');
}

/* What an entry's own words (type, f, the nemesis) are in JSON are keywords in EDN. */
static void put_field(printer *to, int32_t name)
{
    const shl_node *nodes = to->entries->nodes;
    int field = shl_field_of(nodes[name].number);
    int32_t value = name + 1;
    if (nodes[value].kind == SHL_NODE_TEXT &&
        (field == FIELD_TYPE || field == FIELD_F || field == FIELD_PROCESS))
        put_word(to, text_of(to, nodes[value].number));
    else
        put_node(to, value);
}

const char *shl_entries_print(shl_entries *entries, int32_t dialect, int64_t *length)
{
    printer to = {entries, 0, dialect == SHL_ENTRIES_JSON, 0};
    for (int64_t i = 0; i < entries->count && !to.failed; i++) {
        int32_t root = entries->entries[i].root;
        put_byte(&to, '{');
        for (int32_t name = root + 1; name < entries->nodes[root].next;
             name = entries->nodes[name + 1].next) {
            if (name > root + 1)
                put(&to, ", ", 2);
            put_field_name(&to, &entries->nodes[name]);
            put(&to, ": ", to.is_json ? 2 : 0);
            if (!to.is_json)
                put_byte(&to, ' ');
            put_field(&to, name);
        }
        put(&to, "}\n", 2);
    }
    *length = to.used;
    return to.failed ? NULL : entries->printed ? entries->printed : "";
}
