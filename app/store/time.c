/* store/time.c -- the database's clock, and the days of a time zone. */
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/session.h"

/* The day of a zone that was asked for last: nearly all ask for the present one. */
struct zone_day {
    char *zone;
    int64_t start_ms, end_ms;
    UT_hash_handle hh;
};

static enum store_status ask_day(struct store *s, const char *time_zone, int64_t at_ms, int64_t day[2])
{
    enum store_status status;
    struct arena a;
    struct zone z;

    arena_init(&a, 0);
    status = mongo_zone(s, time_zone, at_ms, at_ms, &a, &z);
    if (status == STORE_OK) {
        day[0] = period_start(PERIOD_DAY, &z, at_ms);
        day[1] = period_next(PERIOD_DAY, &z, day[0]);
    }
    arena_free(&a);
    return status;
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
        enum store_status status = ask_day(s, time_zone, at_ms, day);

        if (status != STORE_OK)
            return status;
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
