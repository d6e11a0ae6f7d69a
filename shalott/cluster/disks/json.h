/* One line of JSON: reading a flat object, and writing text into a growing buffer. */
#ifndef FAULTFS_JSON_H
#define FAULTFS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *bytes;
    size_t length, capacity;
};

void text_add(struct text *text, const char *words);
void text_format(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void text_escape(struct text *text, const char *words); /* as inside a JSON string */
void text_quote(struct text *text, const char *words);  /* as a JSON string */

enum { JSON_FIELDS_MAX = 32 };

struct json_field {
    char *key;
    enum { JSON_WORD, JSON_TEXT, JSON_LIST } kind; /* a word is a number, true, false, or null */
    char *value;                                   /* of a word or text */
    char **list;                                   /* of texts */
    int count;
};

/* Strings, numbers, booleans, and lists of strings by their keys. */
struct json_object {
    struct json_field fields[JSON_FIELDS_MAX];
    int count;
};

bool json_read(const char *line, struct json_object *object); /* false: it is something else */
void json_free(struct json_object *object);
const struct json_field *json_find(const struct json_object *object, const char *key);
const char *json_text(const struct json_object *object, const char *key, const char *otherwise);
double json_number(const struct json_object *object, const char *key, double otherwise);
uint64_t json_count(const struct json_object *object, const char *key, uint64_t otherwise);
bool json_flag(const struct json_object *object, const char *key);

#endif
