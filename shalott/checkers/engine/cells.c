/* Cells of JSON objects, and the texts in them; see read.h. */
#include "internal_read.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 16, MOST_DIGITS = 18 };

struct shl_texts {
    shl_names names;
    shl_budget budget; /* without limits: only the memory that there is ends it */
};

shl_texts *shl_texts_new(void)
{
    return calloc(1, sizeof(shl_texts));
}

void shl_texts_free(shl_texts *texts)
{
    if (texts == NULL)
        return;
    shl_names_free(&texts->names, &texts->budget);
    free(texts);
}

int64_t shl_texts_count(const shl_texts *texts)
{
    return texts->names.count;
}

const char *shl_texts_text(const shl_texts *texts, int64_t number, int64_t *length)
{
    shl_slice text = shl_named(&texts->names, (int32_t)number);
    *length = text.length;
    return text.at;
}

/* One cell while it is read. */
typedef struct {
    const char *at, *end;
} cursor;

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

static bool take(cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* The bytes of a text without escapes; false for any other. */
static bool take_text(cursor *c, const char **text, int64_t *length)
{
    if (!take(c, '"'))
        return false;
    *text = c->at;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\' || (uint8_t)*c->at < 0x20)
            return false;
        c->at++;
    }
    if (c->at == c->end)
        return false;
    *length = c->at - *text;
    c->at++;
    return true;
}

/* What may stand behind a number or a word. */
static bool is_over(const cursor *c)
{
    return c->at == c->end || strchr(" \n\t\r,}", *c->at) != NULL;
}

static bool take_word(cursor *c, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return is_over(c);
}

static bool take_integer(cursor *c, int64_t *number)
{
    bool negative = c->at < c->end && *c->at == '-';
    if (negative)
        c->at++;
    const char *first = c->at;
    int64_t found = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - first < MOST_DIGITS)
        found = found * 10 + (*c->at++ - '0');
    if (c->at == first || (*first == '0' && c->at - first > 1) || !is_over(c))
        return false;
    *number = negative ? -found : found;
    return true;
}

/* What is asked of the cells, and where the answers go. */
typedef struct {
    const char *keys;
    const int32_t *key_ends;
    const uint8_t *kinds;
    int32_t key_count;
    int64_t absent, n, *values;
    shl_texts *texts;
    bool no_memory;
} question;

/* Which key it is, -1 if none asks for it. `likely` is the one after the last that was found:
 * cells say the same things in the same order. */
static int32_t key_of(const question *q, const char *text, int64_t length, int32_t likely)
{
    for (int32_t tried = 0; tried < q->key_count; tried++) {
        int32_t k = (likely + tried) % q->key_count;
        int32_t begin = k == 0 ? 0 : q->key_ends[k - 1];
        if (q->key_ends[k] - begin == length && memcmp(q->keys + begin, text, (size_t)length) == 0)
            return k;
    }
    return -1;
}

/* A value that is asked for; false if it is not of the kind, or not plain. */
static bool take_asked(question *q, cursor *c, int32_t k, int64_t *value)
{
    const char *text;
    int64_t length;
    switch (q->kinds[k]) {
    case SHL_CELL_INTEGER:
        return take_integer(c, value);
    case SHL_CELL_TRUTH:
        *value = *c->at == 't';
        return take_word(c, *value ? "true" : "false");
    default:
        if (!take_text(c, &text, &length))
            return false;
        *value = shl_name(&q->texts->names, (shl_slice){text, length}, 0, &q->texts->budget);
        q->no_memory |= *value < 0;
        return true;
    }
}

/* A value that is not asked for; false if it is not plain. */
static bool pass_by(cursor *c)
{
    const char *text;
    int64_t ignored;
    switch (*c->at) {
    case '"':
        return take_text(c, &text, &ignored);
    case 't':
        return take_word(c, "true");
    case 'f':
        return take_word(c, "false");
    default:
        return take_integer(c, &ignored);
    }
}

/* One cell; false if it is odd. */
static bool read_cell(question *q, cursor c, int64_t row)
{
    uint32_t seen = 0;
    int32_t likely = 0;
    if (c.at == c.end)
        return true;
    if (!take(&c, '{'))
        return false;
    if (!take(&c, '}')) {
        do {
            const char *key;
            int64_t length, value = 0;
            if (!take_text(&c, &key, &length) || !take(&c, ':'))
                return false;
            skip_blanks(&c);
            if (c.at == c.end)
                return false;
            int32_t k = key_of(q, key, length, likely);
            if (k >= 0 && (seen >> k & 1))
                return false;
            if (*c.at == 'n') {
                if (!take_word(&c, "null"))
                    return false;
            } else if (k < 0) {
                if (!pass_by(&c))
                    return false;
            } else {
                if (!take_asked(q, &c, k, &value))
                    return false;
                q->values[k * q->n + row] = value;
            }
            if (k >= 0) {
                seen |= 1u << k;
                likely = k + 1;
            }
        } while (take(&c, ','));
        if (!take(&c, '}'))
            return false;
    }
    skip_blanks(&c);
    return c.at == c.end;
}

int64_t shl_cells_read(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                       const char *keys, const int32_t *key_ends, const uint8_t *kinds,
                       int32_t key_count, int64_t absent, int64_t *values, uint8_t *odd,
                       shl_texts *texts)
{
    question q = {keys, key_ends, kinds, key_count, absent, n, values, texts, false};
    int64_t odd_count = 0;
    if (key_count < 1 || key_count > MOST_KEYS)
        return -1;
    for (int64_t i = 0; i < n && !q.no_memory; i++) {
        cursor c = {text + ends[rows[i]], text + ends[rows[i] + 1]};
        for (int32_t k = 0; k < key_count; k++)
            values[k * n + i] = absent;
        odd[i] = !read_cell(&q, c, i);
        if (odd[i])
            for (int32_t k = 0; k < key_count; k++)
                values[k * n + i] = absent;
        odd_count += odd[i];
    }
    return q.no_memory ? -1 : odd_count;
}

int64_t shl_cells_number(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                         int64_t most, int32_t *numbers, shl_texts *texts)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows == NULL ? i : rows[i];
        shl_slice cell = {text + ends[row], ends[row + 1] - ends[row]};
        numbers[i] = shl_name(&texts->names, cell, 0, &texts->budget);
        if (numbers[i] < 0)
            return -1;
        if (texts->names.count > most)
            return -2;
    }
    return texts->names.count;
}
