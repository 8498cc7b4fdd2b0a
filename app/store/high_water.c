/* store/high_water.c -- see high_water.h. */
#include "store/high_water.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/new_file.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/secrets.h"
#include "store/session.h"

#define SCHEMA "schema"
#define RESTORED "restored" /* the _id of its document */
#define FILE_FORM "coupons-high-water 1 "

/* ---- the epoch ---- */

static bool epoch_row(const bson_t *doc, void *context)
{
    return find_int(doc, "epoch", context);
}

enum store_status mongo_epoch(struct store *s, int64_t *epoch)
{
    AUTO_BCON filter = BCON_NEW("_id", RESTORED);

    *epoch = 0;
    return session_find(session_of(s), SCHEMA, filter, NULL, 1, epoch_row, epoch);
}

enum store_status mongo_epoch_raise(struct store *s, int64_t epoch)
{
    AUTO_BCON filter = BCON_NEW("_id", RESTORED);
    AUTO_BCON u = BCON_NEW("$max", "{", "epoch", BCON_INT64(epoch), "at", BCON_DATE_TIME(clock_now_ms()), "}");

    return session_update(session_of(s), SCHEMA, filter, u, true);
}

/* ---- the database's mark ---- */

static bool arrived_row(const bson_t *doc, void *context)
{
    *(uint64_t *)context = codec_arrived_get(doc);
    return true;
}

static enum store_status newest_arrival(struct store *s, uint64_t *arrived)
{
    AUTO_BCON filter = BCON_NEW("arrived", "{", "$gt", BCON_TIMESTAMP(0, 0), "}");
    AUTO_BCON options = BCON_NEW("projection", "{", "_id", BCON_INT32(0), "arrived", BCON_INT32(1), "}", "sort", "{", "arrived",
                                 BCON_INT32(-1), "}");

    *arrived = 0;
    return session_find(session_of(s), "ledger", filter, options, 1, arrived_row, arrived);
}

static enum store_status read_database(struct store *s, char database[HIGH_WATER_DATABASE_LEN + 1])
{
    static const unsigned char what[] = "high water";
    unsigned char hash[HIGH_WATER_DATABASE_LEN / 2];
    const struct secret *key;
    enum store_status status = mongo_name_key(s, &key);

    if (status != STORE_OK)
        return status;
    crypto_generichash(hash, sizeof hash, what, sizeof what, key->bytes, sizeof key->bytes);
    sodium_bin2hex(database, HIGH_WATER_DATABASE_LEN + 1, hash, sizeof hash);
    return STORE_OK;
}

static enum store_status read_mark(struct store *s, struct high_water *w)
{
    enum store_status status = read_database(s, w->database);

    if (status == STORE_OK)
        status = mongo_epoch(s, &w->epoch);
    return status == STORE_OK ? newest_arrival(s, &w->arrived) : status;
}

char *high_water_text(const struct high_water *w, char text[HIGH_WATER_TEXT_SIZE])
{
    if (w->arrived)
        return clock_text((int64_t)(w->arrived >> 32) * 1000, text);
    snprintf(text, HIGH_WATER_TEXT_SIZE, "none");
    return text;
}

/* ---- the file's ---- */

/* Take the number at *at, which `end` must follow; *at is then past that. */
static bool take_number(const char **at, char end, uint64_t most, uint64_t *number)
{
    char *after;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *number = strtoull(*at, &after, 10);
    *at = after + 1;
    return errno == 0 && *number <= most && *after == end;
}

static bool parse(const char *line, struct high_water *w)
{
    const char *at = line + strlen(FILE_FORM);
    uint64_t epoch, seconds, increment;

    if (strncmp(line, FILE_FORM, strlen(FILE_FORM)) != 0 || strspn(at, "0123456789abcdef") != HIGH_WATER_DATABASE_LEN)
        return false;
    memcpy(w->database, at, HIGH_WATER_DATABASE_LEN);
    w->database[HIGH_WATER_DATABASE_LEN] = '\0';
    at += HIGH_WATER_DATABASE_LEN;
    if (*at++ != ' ' || !take_number(&at, ' ', INT64_MAX, &epoch) || !take_number(&at, '.', UINT32_MAX, &seconds) ||
        !take_number(&at, '\n', UINT32_MAX, &increment))
        return false;
    w->epoch = (int64_t)epoch;
    w->arrived = seconds << 32 | increment;
    return true;
}

/* HIGH_WATER_LEVEL: *w is filled. */
static enum high_water_found read_file(const char *path, struct high_water *w)
{
    char line[128];
    FILE *f = fopen(path, "re");
    bool read;

    if (!f)
        return errno == ENOENT ? HIGH_WATER_NO_FILE : HIGH_WATER_BAD_FILE;
    read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    return read && parse(line, w) ? HIGH_WATER_LEVEL : HIGH_WATER_BAD_FILE;
}

static void write_file(const char *path, const struct high_water *w)
{
    struct new_file f;

    if (new_file_open(&f, path)) {
        fprintf(f.to, FILE_FORM "%s %" PRId64 " %" PRIu32 ".%" PRIu32 "\n", w->database, w->epoch, (uint32_t)(w->arrived >> 32),
                (uint32_t)w->arrived);
        if (new_file_keep(&f))
            return;
    }
    log_event(LOG_WARNING, "high_water.not_written", F_TEXT("path", path), F_TEXT("reason", strerror(errno)));
}

/* ---- both ---- */

static enum high_water_found compare(const struct high_water *file, const struct high_water *now)
{
    if (strcmp(file->database, now->database) != 0)
        return HIGH_WATER_OTHER;
    if (now->epoch > file->epoch)
        return HIGH_WATER_RESTORED;
    return now->epoch < file->epoch || now->arrived < file->arrived ? HIGH_WATER_OLDER : HIGH_WATER_LEVEL;
}

static bool is_news(enum high_water_found found, const struct high_water *file, const struct high_water *now)
{
    return found == HIGH_WATER_LEVEL ? now->arrived > file->arrived : found != HIGH_WATER_OLDER && found != HIGH_WATER_BAD_FILE;
}

enum store_status high_water_look(struct store *s, const char *path, struct high_water *file, struct high_water *now,
                                  enum high_water_found *found)
{
    struct mono until = mono_add_ms(mono_now(), START_PATIENCE_MS);
    bool read;

    /* A new primary does not know at once what a majority has, so write first: see confirm.c. */
    do {
        *file = *now = (struct high_water){.epoch = 0};
        read = session_pulse(session_of(s)) && read_mark(s, now) == STORE_OK;
    } while (!read && session_wait(until));
    if (!read)
        return STORE_FAILED;
    *found = read_file(path, file);
    if (*found == HIGH_WATER_LEVEL)
        *found = compare(file, now);
    if (*found == HIGH_WATER_OTHER)
        *file = (struct high_water){.epoch = 0};
    return STORE_OK;
}

int high_water_check(struct store *s, const char *path, char *message, size_t size)
{
    const char *database = session_of(s)->mongo->database;
    char have[HIGH_WATER_TEXT_SIZE], had[HIGH_WATER_TEXT_SIZE];
    struct high_water file, now;
    enum high_water_found found;

    if (high_water_look(s, path, &file, &now, &found) != STORE_OK) {
        snprintf(message, size, "Cannot read the newest batch in the database %s; see the log.", database);
        return -1;
    }
    if (found == HIGH_WATER_OLDER) {
        snprintf(message, size,
                 "The database %s is older than it was: its newest batch is of %s, but %s records one of %s. It is a "
                 "restored backup, and would give out ids, ordinals and webhook-ids a second time. Restore a newer backup, "
                 "or run couponctl restored, which continues them above those that are lost, and start again.",
                 database, high_water_text(&now, have), path, high_water_text(&file, had));
        return -1;
    }
    if (found == HIGH_WATER_BAD_FILE) {
        snprintf(message, size, "%s is not a high-water mark, or cannot be read: remove it, and a new one is written.", path);
        return -1;
    }
    if (is_news(found, &file, &now))
        write_file(path, &now);
    return 0;
}

bool high_water_note(struct store *s, const char *path)
{
    struct high_water file, now = {.epoch = 0};
    enum high_water_found found;

    if (read_mark(s, &now) != STORE_OK)
        return true;
    found = read_file(path, &file);
    if (found == HIGH_WATER_LEVEL)
        found = compare(&file, &now);
    if (found == HIGH_WATER_OLDER && high_water_look(s, path, &file, &now, &found) != STORE_OK)
        return true;
    if (is_news(found, &file, &now))
        write_file(path, &now);
    return found != HIGH_WATER_OLDER;
}
