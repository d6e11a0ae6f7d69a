/* Cells of JSON objects, read into columns: what is asked of each by its keys.
 *
 * An empty cell is an object without keys.
 * A cell is the text of one object, as histories have them in their column `extra`. Most are flat
 * and plain, and only those are read here: {"key": 1, "other": "text", "third": true}. Any other is
 * marked as odd, and nothing is said of it: the caller reads it in another way. So what is read
 * here is what any reader of JSON reads there. */
#ifndef SHL_CELLS_H
#define SHL_CELLS_H

#include "engine.h"

/* What is asked of a key. */
enum {
    SHL_CELL_INTEGER = 0, /* SHL_CELL_ABSENT if it is not there, or null */
    SHL_CELL_TRUTH = 1,   /* 0 or 1 */
    SHL_CELL_TEXT = 2,    /* the number of the text among the texts, in the order of their coming */
};

typedef struct shl_texts shl_texts;

/* Texts, each once. NULL: no memory. */
shl_texts *shl_texts_new(void);
void shl_texts_free(shl_texts *texts);
int64_t shl_texts_count(const shl_texts *texts);
const char *shl_texts_text(const shl_texts *texts, int64_t number, int64_t *length);

/* Read the cells text[ends[row] .. ends[row + 1]) of the n rows. Key k is the keys' bytes
 * key_ends[k - 1] .. key_ends[k]; what it says in row i goes to values[k * n + i], `absent` if
 * nothing. odd[i] is 1 where nothing was read. Returns how many are odd, -1 if there is no
 * memory. */
int64_t shl_cells_read(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                       const char *keys, const int32_t *key_ends, const uint8_t *kinds,
                       int32_t key_count, int64_t absent, int64_t *values, uint8_t *odd,
                       shl_texts *texts);

/* Number the cells by what they say, equal ones alike: numbers[i] is that of row rows[i], or of
 * row i if `rows` is NULL, and the texts have the cell of each number. Returns how many there are,
 * -1 if there is no memory, -2 as soon as there are more than `most`. */
int64_t shl_cells_number(const char *text, const int64_t *ends, const int64_t *rows, int64_t n,
                         int64_t most, int32_t *numbers, shl_texts *texts);

#endif
