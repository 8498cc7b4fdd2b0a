/* store/time.c -- the database's clock, and the days of a time zone. */
#include "store/bson_fields.h"
#include "store/session.h"

static bool day_row(const bson_t *doc, void *context)
{
    int64_t *day = context;

    return find_time(doc, "start", &day[0]) && find_time(doc, "end", &day[1]);
}

/* A day ends when the day that holds its start + 36 hours begins: no day is shorter than 12 hours, or longer than 36. */
enum store_status time_day(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms)
{
    struct session *session = session_of(s);
    int64_t day[2] = {0};

    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_INT32(1),
        "pipeline", "[",
            "{", "$documents", "[", "{", "at", BCON_DATE_TIME(at_ms), "}", "]", "}",
            "{", "$project", "{", "start", "{", "$dateTrunc", "{",
                "date", "$at", "unit", "day", "timezone", "{", "$literal", BCON_UTF8(time_zone), "}",
            "}", "}", "}", "}",
            "{", "$project", "{", "start", BCON_INT32(1), "end", "{", "$dateTrunc", "{",
                "date", "{", "$dateAdd", "{",
                    "startDate", "$start", "unit", "hour", "amount", BCON_INT32(36), "}", "}",
                "unit", "day", "timezone", "{", "$literal", BCON_UTF8(time_zone), "}",
            "}", "}", "}", "}",
        "]",
        "cursor", "{", "}",
        "maxTimeMS", BCON_INT64(session->mongo->server_limit_ms));
    /* clang-format on */
    enum store_status status = session_read(session, command, day_row, day);

    if (status != STORE_OK)
        return status;
    *start_ms = day[0];
    *end_ms = day[1];
    return STORE_OK;
}

enum store_status time_now(struct store *s, int64_t *utc_ms)
{
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    AUTO_BSON reply;

    BSON_APPEND_INT32(&command, "hello", 1);
    return session_run(session, &command, &reply) && find_time(&reply, "localTime", utc_ms) ? STORE_OK : STORE_FAILED;
}
