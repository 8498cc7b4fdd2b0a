/*
 * tests/bench/lone_write.c -- how long one journalled majority write takes when nothing else is asked of mongod.
 *
 * Usage   MONGODB_URI=... lone_write SECONDS
 * Does    inserts documents of a ledger batch's size one after the other into coupons_bench.lone, and drops that at the end
 * Prints  one JSON object, as tests/bench/load.c does: what is measured there of a lonely caller has this as its floor
 */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DOCUMENT_BYTES 500
#define WRITES_MAX 1000000

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int write_for(mongoc_collection_t *where, double ms, double *took_ms)
{
    static const char filler[DOCUMENT_BYTES];
    bson_t *majority = BCON_NEW("writeConcern", "{", "w", "majority", "j", BCON_BOOL(true), "}");
    double end = now_ms() + ms;
    int count = 0;

    while (now_ms() < end && count < WRITES_MAX) {
        bson_t *document = BCON_NEW("bytes", BCON_BIN(BSON_SUBTYPE_BINARY, (const uint8_t *)filler, DOCUMENT_BYTES));
        double sent = now_ms();
        bson_error_t error;

        if (!mongoc_collection_insert_one(where, document, majority, NULL, &error)) {
            fprintf(stderr, "insert: %s\n", error.message);
            exit(1);
        }
        took_ms[count++] = now_ms() - sent;
        bson_destroy(document);
    }
    bson_destroy(majority);
    return count;
}

int main(int argc, char **argv)
{
    double seconds = argc == 2 ? atof(argv[1]) : 0, *took_ms = calloc(WRITES_MAX, sizeof *took_ms);
    const char *uri = getenv("MONGODB_URI");
    mongoc_client_t *client;
    mongoc_collection_t *where;
    int count;

    if (seconds <= 0 || !uri || !took_ms) {
        fprintf(stderr, "usage: MONGODB_URI=... lone_write SECONDS\n");
        return 2;
    }
    mongoc_init();
    client = mongoc_client_new(uri);
    if (!client) {
        fprintf(stderr, "lone_write: MONGODB_URI is no URI\n");
        return 2;
    }
    where = mongoc_client_get_collection(client, "coupons_bench", "lone");
    write_for(where, 200, took_ms); /* the collection is made, the connection is there */
    count = write_for(where, seconds * 1000, took_ms);
    mongoc_collection_drop(where, NULL);
    qsort(took_ms, (size_t)count, sizeof *took_ms, ascending);
    printf("{\"rate\": %.1f, \"accepted_rate\": %.1f, \"refused_rate\": 0, \"p50_ms\": %.2f, \"p99_ms\": %.2f}\n", count / seconds,
           count / seconds, count ? took_ms[count / 2] : 0, count ? took_ms[(size_t)count * 99 / 100] : 0);
    mongoc_collection_destroy(where);
    mongoc_client_destroy(client);
    mongoc_cleanup();
    free(took_ms);
    return 0;
}
