/* As much of JSON as the control socket needs. */
#include "json.h"

#include "faultfs.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(struct text *text, size_t more)
{
    if (text->length + more + 1 <= text->capacity)
        return;
    text->capacity = (text->length + more + 1) * 2;
    text->bytes = realloc(text->bytes, text->capacity);
    if (!text->bytes)
        abort();
}

static void add_bytes(struct text *text, const char *bytes, size_t count)
{
    reserve(text, count);
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

void text_add(struct text *text, const char *words)
{
    add_bytes(text, words, strlen(words));
}

void text_format(struct text *text, const char *format, ...)
{
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    text_add(text, words);
}

void text_escape(struct text *text, const char *words)
{
    for (const char *at = words; *at; at++) {
        if (*at == '"' || *at == '\\')
            text_format(text, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            text_format(text, "\\u%04x", (unsigned char)*at);
        else
            add_bytes(text, at, 1);
    }
}

void text_quote(struct text *text, const char *words)
{
    text_add(text, "\"");
    text_escape(text, words);
    text_add(text, "\"");
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static void add_code_point(struct text *text, unsigned code)
{
    char bytes[3];
    if (code < 0x80) {
        bytes[0] = (char)code;
        add_bytes(text, bytes, 1);
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        add_bytes(text, bytes, 2);
    } else {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        add_bytes(text, bytes, 3);
    }
}

/* Returns what follows, NULL if there is no string. */
static const char *read_string(const char *at, char **value)
{
    struct text text = {0};
    if (*at++ != '"')
        return NULL;
    text_add(&text, "");
    for (; *at && *at != '"'; at++) {
        if (*at != '\\') {
            add_bytes(&text, at, 1);
            continue;
        }
        static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        unsigned code;
        const char *found = *++at ? strchr(escapes, *at) : NULL;
        if (found) {
            add_bytes(&text, &meant[found - escapes], 1);
        } else if (*at == 'u' && sscanf(at + 1, "%4x", &code) == 1 && strlen(at) > 4) {
            add_code_point(&text, code);
            at += 4;
        } else {
            break;
        }
    }
    if (*at != '"') {
        free(text.bytes);
        return NULL;
    }
    *value = text.bytes;
    return at + 1;
}

static const char *read_list(const char *at, struct json_field *field)
{
    field->kind = JSON_LIST;
    at = skip_space(at + 1);
    while (*at != ']') {
        field->list = realloc(field->list, (size_t)(field->count + 1) * sizeof *field->list);
        if (!field->list)
            abort();
        if (!(at = read_string(at, &field->list[field->count])))
            return NULL;
        field->count++;
        at = skip_space(at);
        if (*at == ',')
            at = skip_space(at + 1);
        else if (*at != ']')
            return NULL;
    }
    return at + 1;
}

static const char *read_value(const char *at, struct json_field *field)
{
    if (*at == '[')
        return read_list(at, field);
    if (*at == '"') {
        field->kind = JSON_TEXT;
        return read_string(at, &field->value);
    }
    size_t length = strcspn(at, ",} \t\r\n");
    field->kind = JSON_WORD;
    field->value = strndup(at, length);
    return length ? at + length : NULL;
}

bool json_read(const char *line, struct json_object *object)
{
    memset(object, 0, sizeof *object);
    const char *at = skip_space(line);
    if (*at != '{')
        return false;
    at = skip_space(at + 1);
    while (*at != '}') {
        if (object->count == JSON_FIELDS_MAX)
            return false;
        struct json_field *field = &object->fields[object->count++];
        if (!(at = read_string(at, &field->key)))
            return false;
        at = skip_space(at);
        if (*at != ':' || !(at = read_value(skip_space(at + 1), field)))
            return false;
        at = skip_space(at);
        if (*at == ',')
            at = skip_space(at + 1);
        else if (*at != '}')
            return false;
    }
    return true;
}

void json_free(struct json_object *object)
{
    for (int i = 0; i < object->count; i++) {
        struct json_field *field = &object->fields[i];
        for (int n = 0; n < field->count; n++)
            free(field->list[n]);
        free(field->list);
        free(field->value);
        free(field->key);
    }
}

const struct json_field *json_find(const struct json_object *object, const char *key)
{
    for (int i = 0; i < object->count; i++)
        if (strcmp(object->fields[i].key, key) == 0)
            return &object->fields[i];
    return NULL;
}

const char *json_text(const struct json_object *object, const char *key, const char *otherwise)
{
    const struct json_field *field = json_find(object, key);
    return field && field->kind == JSON_TEXT ? field->value : otherwise;
}

double json_number(const struct json_object *object, const char *key, double otherwise)
{
    const struct json_field *field = json_find(object, key);
    return field && field->kind == JSON_WORD ? strtod(field->value, NULL) : otherwise;
}

uint64_t json_count(const struct json_object *object, const char *key, uint64_t otherwise)
{
    const struct json_field *field = json_find(object, key);
    return field && field->kind == JSON_WORD ? strtoull(field->value, NULL, 10) : otherwise;
}

bool json_flag(const struct json_object *object, const char *key)
{
    const struct json_field *field = json_find(object, key);
    return field && field->kind == JSON_WORD && strcmp(field->value, "true") == 0;
}
