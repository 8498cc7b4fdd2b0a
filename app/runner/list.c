/* runner/list.c -- see list.h. */
#include "runner/list.h"

#include <string.h>

size_t list_lines(const struct upload_chunk *chunk)
{
    const char *end = chunk->text + chunk->len;
    size_t lines = 1;

    for (const char *at = chunk->text; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    return lines;
}

enum ending list_note(struct work *w, struct upload_chunk *chunk, const struct buf *bad)
{
    enum ending e = ENDING_DONE;

    chunk->imported = true;
    chunk->bad = bad->data ? arena_memdup(&w->arena, bad->data, bad->len) : NULL;
    while (e == ENDING_DONE && mongo_chunk_done(w->session, chunk) != STORE_OK)
        e = work_rest(w, "Noting the outcome of a part of the list");
    return e;
}

/* Read the next chunk; *found: there is one. */
static enum ending read_chunk(struct work *w, int64_t number, struct upload_chunk *chunk, bool *found)
{
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE) {
        enum store_status s = mongo_chunk(w->session, w->job->upload, number, &w->arena, chunk);

        *found = s == STORE_OK;
        if (s == STORE_OK || s == STORE_NOT_FOUND)
            break;
        e = work_rest(w, "Reading the list");
    }
    return e;
}

enum ending list_each(struct work *w, enum ending (*take)(struct work *w, struct upload_chunk *chunk),
                      void (*add)(void *context, const struct upload_chunk *chunk), void *context)
{
    enum ending e = ENDING_DONE;
    bool found = true;

    for (int64_t number = 0; e == ENDING_DONE; number++) {
        struct upload_chunk chunk = {0};

        e = read_chunk(w, number, &chunk, &found);
        if (e != ENDING_DONE || !found)
            break;
        w->done = chunk.first_line - 1;
        if (!chunk.imported) {
            e = work_between_steps(w);
            if (e == ENDING_DONE)
                e = take(w, &chunk);
        }
        if (e == ENDING_DONE)
            add(context, &chunk);
        arena_reset(&w->arena);
    }
    if (e == ENDING_DONE)
        w->done = w->job->total;
    return e;
}
