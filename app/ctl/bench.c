/* ctl/bench.c -- couponctl bench: takings per second of a coupon of its own, and their latencies.
*
* For sizing a machine on which the service is installed; tests/bench, which measures changes of the code, is not installed. */
#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/ids.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define SECONDS 5
#define SECONDS_MOST 3600
#define CONNECTIONS 16
#define CONNECTIONS_MOST 256
#define SLOTS_PER_SECOND 20000 /* more than it can take, unless --slots says otherwise */
#define SLOTS_MOST INT64_C(100000000)
#define TIMEOUT_S 30L
#define NAME_LEN 8

const struct argp_option ctl_bench_options[] = {
    {"seconds", OPT_SECONDS, "N", 0, "How long (default 5)", 0},
    {"connections", OPT_CONNECTIONS, "N", 0, "Connections, each with one request at a time (default 16)", 0},
    {"slots", OPT_SLOTS, "N", 0, "Slots to make (default 20,000 per second)", 0},
    {"yes", OPT_YES, NULL, 0, "Run even if the service has other coupons", 0},
    {0},
};

struct bench {
    struct ctl *ctl;
    char coupon[NAME_LEN + 8];
    char url[CLIENT_URL_SIZE + 64];
    char bearer[CLIENT_KEY_SIZE + 32];
    struct mono until;
};

static atomic_bool over; /* sold out, or interrupted: only tidying up is left */

struct client {
    struct bench *bench;
    pthread_t thread;
    int number;
    int64_t *taken_us; /* latency of each taking */
    size_t taken, capacity;
    size_t refused, failed;
    long failed_status; /* the last one; 0: no answer */
};

/* ---- one connection ---- */

static size_t drop_body(char *data, size_t size, size_t count, void *context)
{
    (void)data;
    (void)context;
    return size * count;
}

static void note_taking(struct client *k, int64_t us)
{
    k->taken_us = checked_grown(k->taken_us, k->taken, &k->capacity, sizeof *k->taken_us);
    k->taken_us[k->taken++] = us;
}

/* The key is also the user. Returns the status, 0: no answer. */
static long take(struct client *k, CURL *curl, size_t number)
{
    char body[128], key[128];
    const char *const lines[] = {k->bench->bearer, "Content-Type: application/json", "Expect:", key};
    struct curl_slist *headers = NULL;
    long status = 0;

    snprintf(body, sizeof body, "{\"user\": \"%s-%d-%zu\"}", k->bench->coupon, k->number, number);
    snprintf(key, sizeof key, "Idempotency-Key: %s-%d-%zu", k->bench->coupon, k->number, number);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        headers = checked(curl_slist_append(headers, lines[i]));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

static void *run_client(void *context)
{
    struct client *k = context;
    CURL *curl = checked(curl_easy_init());

    curl_easy_setopt(curl, CURLOPT_URL, k->bench->url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_body);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    for (size_t i = 0; mono_before(mono_now(), k->bench->until) && !atomic_load(&over); i++) {
        struct mono asked = mono_now();
        long status = take(k, curl, i);

        if (status == 201) {
            note_taking(k, (mono_now().ns - asked.ns) / 1000);
        } else if (status == 409) { /* every user asks once: only the stock can be used up */
            k->refused++;
            atomic_store(&over, true);
        } else {
            k->failed++;
            k->failed_status = status;
        }
    }
    curl_easy_cleanup(curl);
    return NULL;
}

/* ---- before and after ---- */

/* An API call of which only success matters. */
static int call(struct bench *b, const char *method, char *path, const char *body, const char *match)
{
    struct answer a;
    char key[ID_SHORT_LEN + 1];
    int code;

    id_random(key, ID_SHORT_LEN);
    code = client_call(b->ctl, (struct call){.method = method, .path = path, .body = body, .key = key, .match = match}, &a);
    if (code != CTL_OK)
        return code;
    code = answer_ok(&a) ? CTL_OK : answer_code(&a);
    answer_release(&a);
    return code;
}

/* CTL_OK if the load can disturb nothing, or with --yes. */
static int ask_leave(struct ctl *c)
{
    json_object *items;
    struct answer a;
    int code;

    if (ctl_option(c, OPT_YES))
        return CTL_OK;
    code = client_call(c, (struct call){.method = "GET", .path = client_path("/coupons?limit=1")}, &a);
    if (code != CTL_OK)
        return code;
    items = json_at(a.json, "/items");
    if (!answer_ok(&a)) {
        code = answer_code(&a);
    } else if (items && json_object_array_length(items) > 0) {
        ctl_complain("the service has other coupons, whose customers would notice the load; use --yes to run anyway");
        code = CTL_REFUSED;
    }
    answer_release(&a);
    return code;
}

static int make_coupon(struct bench *b, int64_t slots)
{
    char made[NAME_LEN + 1], body[256];
    int code;

    id_random(made, NAME_LEN);
    snprintf(b->coupon, sizeof b->coupon, "bench-%s", made);
    snprintf(body, sizeof body,
             "{\"id\": \"%s\", \"title\": \"couponctl bench\", \"state\": \"active\", \"cap\": {\"total\": %" PRId64 "}, "
             "\"generate\": true}",
             b->coupon, slots);
    code = call(b, "POST", client_path("/coupons"), body, NULL);
    if (code == CTL_OK && !ctl_json(b->ctl))
        printf("%s: %" PRId64 " slots generated\n", b->coupon, slots);
    return code;
}

/* End the coupon, and retire free slots; it can be deleted only if nothing was taken. */
static int clean_up(struct bench *b, size_t taken, int64_t slots)
{
    char body[64];
    int code = call(b, "PATCH", client_path("/coupons/%s", b->coupon), "{\"state\": \"ended\"}", "*");

    if (code != CTL_OK)
        return code;
    if (!taken)
        return call(b, "DELETE", client_path("/coupons/%s", b->coupon), NULL, NULL);
    if ((int64_t)taken < slots) {
        snprintf(body, sizeof body, "{\"count\": %" PRId64 "}", slots - (int64_t)taken);
        code = call(b, "POST", client_path("/coupons/%s/slots/retire", b->coupon), body, NULL);
    }
    if (!ctl_json(b->ctl))
        printf("%s is ended; its %zu redemptions stay in the ledger, its free slots are being retired\n", b->coupon, taken);
    return code;
}

/* ---- the load ---- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static double percentile_ms(const int64_t *sorted_us, size_t count, double share)
{
    return (double)sorted_us[(size_t)((double)(count - 1) * share)] / 1000;
}

/* The results of all clients. */
struct sum {
    size_t taken, refused, failed;
    long failed_status;
    int64_t *all_us; /* of each taking, sorted */
    int connections;
    double seconds;
};

static void say_sum(const struct sum *s)
{
    printf("%zu takings in %.1f s over %d connections: %.0f/s\n", s->taken, s->seconds, s->connections, (double)s->taken / s->seconds);
    if (s->taken)
        printf("latency  p50 %.1f ms  p90 %.1f ms  p99 %.1f ms  slowest %.1f ms\n", percentile_ms(s->all_us, s->taken, 0.5),
               percentile_ms(s->all_us, s->taken, 0.9), percentile_ms(s->all_us, s->taken, 0.99), percentile_ms(s->all_us, s->taken, 1));
    if (s->refused)
        printf("sold out early; raise --slots\n");
}

static json_object *rounded(double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.6g", value);
    return json_object_new_double_s(value, text);
}

static void print_sum(const struct bench *b, const struct sum *s)
{
    static const struct {
        const char *name;
        double share;
    } latencies[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"slowest", 1}};
    json_object *o = json_object_new_object(), *latency = json_object_new_object();

    for (size_t i = 0; s->taken && i < sizeof latencies / sizeof *latencies; i++)
        json_object_object_add(latency, latencies[i].name, rounded(percentile_ms(s->all_us, s->taken, latencies[i].share)));
    json_object_object_add(o, "coupon", json_object_new_string(b->coupon));
    json_object_object_add(o, "takings", json_object_new_int64((int64_t)s->taken));
    json_object_object_add(o, "seconds", rounded(s->seconds));
    json_object_object_add(o, "connections", json_object_new_int(s->connections));
    json_object_object_add(o, "per_second", rounded((double)s->taken / s->seconds));
    json_object_object_add(o, "latency_ms", latency);
    json_object_object_add(o, "sold_out", json_object_new_boolean(s->refused > 0));
    json_object_object_add(o, "failed", json_object_new_int64((int64_t)s->failed));
    print_json(o, stdout);
    json_object_put(o);
}

/* Print the results; returns the number of takings. */
static size_t print_result(const struct bench *b, const struct client *clients, int count, double seconds)
{
    struct sum s = {.connections = count, .seconds = seconds};

    for (int i = 0; i < count; i++) {
        s.taken += clients[i].taken;
        s.refused += clients[i].refused;
        s.failed += clients[i].failed;
        s.failed_status = clients[i].failed ? clients[i].failed_status : s.failed_status;
    }
    s.all_us = checked(calloc(s.taken + 1, sizeof *s.all_us));
    for (int i = 0, at = 0; i < count; at += (int)clients[i++].taken)
        if (clients[i].taken)
            memcpy(s.all_us + at, clients[i].taken_us, clients[i].taken * sizeof *s.all_us);
    qsort(s.all_us, s.taken, sizeof *s.all_us, by_size);
    if (ctl_json(b->ctl))
        print_sum(b, &s);
    else
        say_sum(&s);
    if (s.failed)
        ctl_complain("%zu calls failed, the last with status %ld", s.failed, s.failed_status);
    free(s.all_us);
    return s.taken;
}

static void on_interrupt(int number)
{
    (void)number;
    atomic_store(&over, true);
}

static size_t run_load(struct bench *b, int connections, int64_t seconds)
{
    struct client *clients = checked(calloc((size_t)connections, sizeof *clients));
    struct mono start = mono_now();
    size_t taken;

    b->until = mono_add_ms(start, seconds * 1000);
    for (int i = 0; i < connections; i++) {
        clients[i].bench = b;
        clients[i].number = i;
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) != 0)
            abort();
    }
    for (int i = 0; i < connections; i++)
        pthread_join(clients[i].thread, NULL);
    taken = print_result(b, clients, connections, (double)(mono_now().ns - start.ns) / 1e9);
    for (int i = 0; i < connections; i++)
        free(clients[i].taken_us);
    free(clients);
    return taken;
}

int ctl_bench(struct ctl *c)
{
    const char *seconds_text = ctl_option(c, OPT_SECONDS), *connections_text = ctl_option(c, OPT_CONNECTIONS);
    const char *slots_text = ctl_option(c, OPT_SLOTS);
    char base[CLIENT_URL_SIZE], key[CLIENT_KEY_SIZE];
    int64_t seconds = SECONDS, connections = CONNECTIONS, slots;
    struct bench b = {.ctl = c};
    size_t taken = 0;
    int code, cleaned;

    if ((seconds_text && !ctl_number("--seconds", seconds_text, 1, SECONDS_MOST, &seconds)) ||
        (connections_text && !ctl_number("--connections", connections_text, 1, CONNECTIONS_MOST, &connections)))
        return CTL_USAGE;
    slots = seconds * SLOTS_PER_SECOND;
    if ((slots_text && !ctl_number("--slots", slots_text, 1, SLOTS_MOST, &slots)) || !client_address(c, base, key))
        return CTL_USAGE;
    code = ask_leave(c);
    if (code != CTL_OK)
        return code;
    code = make_coupon(&b, slots);
    if (code != CTL_OK)
        return code;
    snprintf(b.url, sizeof b.url, "%s/coupons/%s/redemptions", base, b.coupon);
    snprintf(b.bearer, sizeof b.bearer, "Authorization: Bearer %s", key);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    taken = run_load(&b, (int)connections, seconds);
    cleaned = clean_up(&b, taken, slots);
    return taken ? cleaned : CTL_REFUSED;
}
