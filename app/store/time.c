/* store/time.c -- the database's clock, and the days of a time zone. */
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/session.h"

/* The day of a zone that was asked for last: nearly all ask for the present one. */
struct zone_day {
    char *zone;
    int64_t start_ms, end_ms;
    UT_hash_handle hh;
};

static bool day_row(const bson_t *doc, void *context)
{
    int64_t *day = context;

    return find_time(doc, "start", &day[0]) && find_time(doc, "end", &day[1]);
}

/* doc.name: the first moment of the day that holds `of`. Where clocks go back over midnight, a day has two of them, and the server
 * gives the second. Then the moment before that is of the same day, and its time of day says how far back the first one is. */
static void put_day(bson_t *doc, const char *name, const bson_t *of, const char *time_zone)
{
    AUTO_BCON day = BCON_NEW(
        "$let", "{",
            "vars", "{", "midnight", "{", "$dateTrunc", "{", "date", BCON_DOCUMENT(of), "unit", "day",
                "timezone", "{", "$literal", BCON_UTF8(time_zone), "}", "}", "}", "}",
            "in", "{", "$let", "{",
                "vars", "{",
                    "of", "{", "$dateToParts", "{", "date", "$$midnight", "timezone", "{", "$literal", BCON_UTF8(time_zone), "}", "}", "}",
                    "before", "{", "$dateToParts", "{", "date", "{", "$subtract", "[", "$$midnight", BCON_INT64(1), "]", "}",
                        "timezone", "{", "$literal", BCON_UTF8(time_zone), "}", "}", "}",
                "}",
                "in", "{", "$cond", "[",
                    "{", "$eq", "[", "$$before.day", "$$of.day", "]", "}",
                    "{", "$subtract", "[", "$$midnight", "{", "$add", "[", BCON_INT64(1), "$$before.millisecond",
                        "{", "$multiply", "[", BCON_INT64(1000), "$$before.second", "]", "}",
                        "{", "$multiply", "[", BCON_INT64(60000), "$$before.minute", "]", "}",
                        "{", "$multiply", "[", BCON_INT64(3600000), "$$before.hour", "]", "}",
                    "]", "}", "]", "}",
                    "$$midnight",
                "]", "}",
            "}", "}",
        "}");

    BSON_APPEND_DOCUMENT(doc, name, day);
}

/* A day ends when the day that holds its start + 36 hours begins: no day is shorter than 12 hours, or longer than 36. */
static enum store_status ask_day(struct session *session, const char *time_zone, int64_t at_ms, int64_t day[2])
{
    AUTO_BCON at = BCON_NEW("$literal", BCON_DATE_TIME(at_ms));
    AUTO_BCON later = BCON_NEW("$dateAdd", "{", "startDate", "$start", "unit", "hour", "amount", BCON_INT32(36), "}");
    AUTO_BSON start = BSON_INITIALIZER;
    AUTO_BSON end = BSON_INITIALIZER;

    put_day(&start, "start", at, time_zone);
    BSON_APPEND_INT32(&end, "start", 1);
    put_day(&end, "end", later, time_zone);
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_INT32(1),
        "pipeline", "[",
            "{", "$documents", "[", "{", "}", "]", "}",
            "{", "$project", BCON_DOCUMENT(&start), "}",
            "{", "$project", BCON_DOCUMENT(&end), "}",
        "]",
        "cursor", "{", "}",
        "maxTimeMS", BCON_INT64(session->mongo->server_limit_ms));

    return session_read(session, command, day_row, day);
}

static void keep_day(struct session *session, struct zone_day *z, const char *time_zone, const int64_t day[2])
{
    if (!z) {
        z = checked(calloc(1, sizeof *z));
        z->zone = checked(strdup(time_zone));
        HASH_ADD_KEYPTR(hh, session->days, z->zone, strlen(z->zone), z);
    }
    z->start_ms = day[0];
    z->end_ms = day[1];
}

enum store_status time_day(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms)
{
    struct session *session = session_of(s);
    int64_t day[2] = {0};
    struct zone_day *z;

    HASH_FIND_STR(session->days, time_zone, z);
    if (!z || at_ms < z->start_ms || at_ms >= z->end_ms) {
        enum store_status status = ask_day(session, time_zone, at_ms, day);

        if (status != STORE_OK)
            return status;
        if (at_ms < day[0] || at_ms >= day[1]) {
            log_event(LOG_ERROR, "store.wrong_day", F_TEXT("time_zone", time_zone), F_INT("at", at_ms), F_INT("start", day[0]),
                      F_INT("end", day[1]));
            return STORE_FAILED;
        }
        keep_day(session, z, time_zone, day);
    } else {
        day[0] = z->start_ms;
        day[1] = z->end_ms;
    }
    *start_ms = day[0];
    *end_ms = day[1];
    return STORE_OK;
}

void time_forget_days(struct session *session)
{
    struct zone_day *z, *next;

    HASH_ITER(hh, session->days, z, next) {
        HASH_DEL(session->days, z);
        free(z->zone);
        free(z);
    }
}

enum store_status time_now(struct store *s, int64_t *utc_ms)
{
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    AUTO_BSON reply;

    BSON_APPEND_INT32(&command, "hello", 1);
    return session_run(session, &command, &reply) && find_time(&reply, "localTime", utc_ms) ? STORE_OK : STORE_FAILED;
}
