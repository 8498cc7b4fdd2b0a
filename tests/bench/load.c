/*
 * tests/bench/load.c -- a closed- or open-loop HTTP/1.1 load generator that counts what was accepted and what was refused.
 *
 * Usage   load --port P --connections N (--seconds S | --requests R) [--warmup W] [--get] [--key BEARER] [--seed X]
 *              [--coupons M] [--state STATE] [--orders] [--pairs | --batch N] [--codes FILE] [--users U] [--first F] [--rate R] --path PATH
 * Ports   the connections take turns at them
 * Open    --rate R sends R requests a second whatever becomes of them, over up to N connections, and counts 503s apart (`busy`).
 *         Times are then taken from when a request was due, also where it had to wait for a connection
 * Request POST PATH with {"user": ...} and an Idempotency-Key; user and key are distinct for every request of a seed and in
 *         random order. An '@' in PATH becomes the request's number modulo M. Numbers begin at F (0); with --users, the user is that of
 *         the number modulo U. --get sends neither body nor key; with --users, '@' is the user. With --codes, request k brings line k
 * Batch   --batch N sends N items a request, and counts items: accepted are those with status 201, refused all others
 * State   --state adds "state" to the body, --orders an order of its own. --pairs holds (state reserved) and then redeems what it was
 *         given: the two count as one request, which is accepted when the second is
 * Rate    replies that came between warm-up and end; `all_*` counts every reply, warm-up and last ones included, so that the
 *         caller can compare it with the stock. Every request is waited for (30 s at most)
 * At once with --rate, `busy_overtook`: nine of ten 503s came before at least so many calls that were sent earlier and accepted later.
 *         `all_unknown` of the 503s may have been done
 * Prints  one JSON object. Exit 1 when a reply was neither 2xx nor 409 (nor 503, with --rate), or a connection broke in the
 *         middle of one
 * Threads one: measured above 100,000 requests/s against nginx alone on half a core
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX (512 << 10)
#define REQUEST_MAX (64 << 10)
#define BATCH_MAX 500
#define IDLE_MOST_US 5000000 /* nginx closes a connection that was opened and has sent nothing for ten seconds */
#define LATENCY_BUCKETS 200000 /* of 0.01 ms; the last one holds all above */

struct connection {
    int fd;
    bool waiting; /* a request is out */
    bool idle;    /* stands in idle[] */
    bool second;  /* of a pair */
    size_t reply_len;
    int64_t sent_us, number;
    int64_t idle_us; /* since when */
    size_t busy_before; /* of busy[], when it was sent */
    char *reply; /* REPLY_MAX + 1 */
};

static struct {
    int port, connections, coupons, batch;
    double seconds, warmup, rate;
    int64_t requests, users, first;
    bool get, pairs, orders;
    const char *key, *path, *state;
    uint64_t seed;
} option = {.connections = 16, .coupons = 1, .path = "/", .key = ""};

static struct {
    int64_t sent, answered, accepted, refused, busy, unknown, other, broken; /* all of them */
    int64_t rated, rated_accepted, rated_refused, rated_busy;       /* between warm-up and end */
    int64_t status[600];
    int64_t latency[LATENCY_BUCKETS], busy_latency[LATENCY_BUCKETS]; /* the latter of 503s, the former of all others */
    int64_t start_us, from_us, to_us, last_us;
    bool reported;
} seen;

/* The 503s of an open loop, as they came: which request each answered, and how many earlier ones were accepted after it. */
static struct busy {
    int64_t number, overtook;
} *busy;

static int poll_fd;
static char **codes; /* --codes: the file's lines */
static int64_t code_count;
static struct connection **idle; /* open loop: those without a request */
static int idle_count;

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A bijection of 64-bit numbers (splitmix64): distinct in, distinct and scattered out. */
static uint64_t scatter(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void open_connection(struct connection *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)option.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl");
    c->reply_len = 0;
    c->waiting = false;
}

static void reopen(struct connection *c)
{
    close(c->fd);
    open_connection(c);
}

static unsigned long long id_of(int64_t number)
{
    return (unsigned long long)scatter(option.seed + (uint64_t)number);
}

static void write_path(char *out, size_t size, int64_t number)
{
    const char *at = strchr(option.path, '@');
    if (at && option.get && option.users)
        snprintf(out, size, "%.*su-%016llx%s", (int)(at - option.path), option.path, id_of(number % option.users), at + 1);
    else if (at)
        snprintf(out, size, "%.*s%d%s", (int)(at - option.path), option.path, (int)(number % option.coupons), at + 1);
    else
        snprintf(out, size, "%s", option.path);
}

static size_t written(int n)
{
    if (n < 0 || n >= REQUEST_MAX) {
        fprintf(stderr, "load: the path or the key is too long\n");
        exit(2);
    }
    return (size_t)n;
}

static size_t write_post(char *out, const char *path, const char *key, const char *body)
{
    return written(snprintf(out, REQUEST_MAX,
                            "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                            "Idempotency-Key: %s\r\nContent-Length: %zu\r\n\r\n%s",
                            path, option.key, key, strlen(body), body));
}

/* What a taking says, without the braces. */
static size_t write_members(char *out, size_t size, int64_t number)
{
    size_t len = (size_t)snprintf(out, size, "\"user\":\"u-%016llx\"", id_of(option.users ? number % option.users : number));
    if (option.state)
        len += (size_t)snprintf(out + len, size - len, ",\"state\":\"%s\"", option.state);
    if (option.orders)
        len += (size_t)snprintf(out + len, size - len, ",\"order\":{\"id\":\"o-%016llx\"}", id_of(number));
    if (codes && number >= code_count) {
        fprintf(stderr, "load: the file has %lld codes: too few\n", (long long)code_count);
        exit(2);
    }
    if (codes)
        len += (size_t)snprintf(out + len, size - len, ",\"code\":\"%s\"", codes[number]);
    return len;
}

static void write_items(char *out, size_t size, int64_t number)
{
    size_t len = (size_t)snprintf(out, size, "{\"items\":[");
    for (int64_t i = number * option.batch; i < (number + 1) * option.batch; i++) {
        len += (size_t)snprintf(out + len, size - len, "%s{\"key\":\"k-%016llx\",", i > number * option.batch ? "," : "", id_of(i));
        len += write_members(out + len, size - len, i);
        len += (size_t)snprintf(out + len, size - len, "}");
    }
    snprintf(out + len, size - len, "]}");
}

static size_t write_request(char *out, int64_t number)
{
    static char body[REQUEST_MAX];
    char path[256], key[24];
    write_path(path, sizeof path, number);
    if (option.get)
        return written(snprintf(out, REQUEST_MAX, "GET %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n\r\n", path,
                                option.key));
    snprintf(key, sizeof key, "k-%016llx", id_of(number));
    if (option.batch) {
        write_items(body, sizeof body, number);
    } else {
        size_t len = write_members(body + 1, sizeof body - 2, number);
        body[0] = '{';
        memcpy(body + 1 + len, "}", 2);
    }
    return write_post(out, path, key, body);
}

/* The redemption of the redemption that the reply tells of. */
static size_t write_second(char *out, const struct connection *c)
{
    static const char member[] = "\"id\":\"";
    char path[256], key[64];
    const char *id = strstr(c->reply, member), *end = id ? strchr(id + sizeof member - 1, '"') : NULL;
    if (!end || end - id > 48) {
        fprintf(stderr, "load: no id in a reply:\n%.*s\n", 1500, c->reply);
        exit(2);
    }
    int len = (int)(end - id - (long)sizeof member + 1);
    id += sizeof member - 1;
    snprintf(path, sizeof path, "%s/%.*s/redeem", option.path, len, id);
    snprintf(key, sizeof key, "r-%.*s", len, id);
    return write_post(out, path, key, "{}");
}

static bool more_to_send(int64_t now)
{
    return option.requests ? seen.sent < option.requests : now < seen.to_us;
}

static void send_all(struct connection *c, const char *request, size_t len)
{
    /* a fresh or idle connection's send buffer takes this whole */
    if (send(c->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len) {
        reopen(c);
        if (send(c->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len)
            die("send");
    }
    c->waiting = true;
}

static void send_request(struct connection *c, int64_t due)
{
    static char request[REQUEST_MAX];
    size_t len = write_request(request, option.first + seen.sent);
    c->sent_us = due;
    c->number = seen.sent;
    c->busy_before = (size_t)seen.busy;
    c->second = false;
    send_all(c, request, len);
    seen.sent++;
}

/* The connection has no request out. */
static void send_next(struct connection *c, int64_t now)
{
    if (!option.rate) {
        if (more_to_send(now))
            send_request(c, now);
    } else if (!c->idle) {
        c->idle = true;
        c->idle_us = now;
        idle[idle_count++] = c;
    }
}

/* Open loop: what is due, as far as there are connections. */
static void send_due(int64_t now)
{
    while (idle_count > 0 && more_to_send(now)) {
        int64_t due = seen.start_us + (int64_t)((double)seen.sent * 1e6 / option.rate);
        if (due > now)
            return;
        struct connection *c = idle[--idle_count];
        c->idle = false;
        if (now - c->idle_us > IDLE_MOST_US)
            reopen(c);
        send_request(c, due);
    }
}

/* The value of a header field of the reply, or NULL; head ends with an empty line. */
static const char *field(const char *head, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r'; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, len) == 0 && line[2 + len] == ':') {
            const char *value = line + 3 + len;
            return value + strspn(value, " ");
        }
    }
    return NULL;
}

/* True when the whole reply is there. */
static bool reply_complete(const struct connection *c)
{
    const char *end = strstr(c->reply, "\r\n\r\n");
    if (!end)
        return false;
    size_t body = c->reply_len - (size_t)(end + 4 - c->reply);
    const char *length = field(c->reply, "Content-Length");
    if (length)
        return body >= strtoul(length, NULL, 10);
    if (field(c->reply, "Transfer-Encoding"))
        return body >= 5 && memcmp(c->reply + c->reply_len - 5, "0\r\n\r\n", 5) == 0;
    return true;
}

static int64_t count_items(const char *reply)
{
    static const char member[] = "\"status\":201";
    int64_t count = 0;
    for (const char *at = reply; (at = strstr(at, member)); at += sizeof member - 1)
        count++;
    return count;
}

static void add_busy(const struct connection *c)
{
    size_t count = (size_t)seen.busy;
    if ((count & (count - 1)) == 0) { /* at 0 and the powers of 2 */
        busy = realloc(busy, 2 * (count + 1) * sizeof *busy);
        if (!busy)
            die("memory");
    }
    busy[count] = (struct busy){.number = c->number};
    seen.busy++;
}

static void was_overtaken(const struct connection *c)
{
    for (size_t i = c->busy_before; i < (size_t)seen.busy; i++)
        busy[i].overtook += busy[i].number > c->number;
}

static int by_overtook(const void *a, const void *b)
{
    int64_t x = ((const struct busy *)a)->overtook, y = ((const struct busy *)b)->overtook;
    return (x > y) - (x < y);
}

static int64_t least_overtook(void)
{
    if (!busy)
        return 0;
    qsort(busy, (size_t)seen.busy, sizeof *busy, by_overtook);
    return busy[seen.busy / 10].overtook;
}

static void count_reply(const struct connection *c, int64_t now)
{
    int status = atoi(c->reply + 9);
    bool good = status >= 200 && status < 300;
    int64_t accepted = good && option.batch ? count_items(c->reply) : good;
    int64_t refused = good && option.batch ? option.batch - accepted : status == 409;
    bool told_busy = option.rate && status == 503;
    seen.answered++;
    seen.accepted += accepted;
    seen.refused += refused;
    if (told_busy)
        add_busy(c);
    else if (good)
        was_overtaken(c);
    seen.unknown += told_busy && strstr(c->reply, "\"outcome_unknown\"") != NULL;
    if (status > 0 && status < 600)
        seen.status[status]++;
    if (!good && !refused && !told_busy) {
        seen.other++;
        if (!seen.reported)
            fprintf(stderr, "load: unexpected reply:\n%.*s\n", 1500, c->reply);
        seen.reported = true;
    }
    seen.last_us = now;
    if (now < seen.from_us || (!option.requests && now >= seen.to_us))
        return;
    seen.rated++;
    seen.rated_accepted += accepted;
    seen.rated_refused += refused;
    seen.rated_busy += told_busy;
    int64_t slot = (now - c->sent_us) / 10;
    (told_busy ? seen.busy_latency : seen.latency)[slot < LATENCY_BUCKETS ? slot : LATENCY_BUCKETS - 1]++;
}

/* After the first of a pair that was accepted. False: there is no second to send. */
static bool send_second(struct connection *c)
{
    static char request[REQUEST_MAX];
    if (!option.pairs || c->second || c->reply[9] != '2')
        return false;
    size_t len = write_second(request, c);
    c->second = true;
    c->reply_len = 0;
    send_all(c, request, len);
    return true;
}

static void on_readable(struct connection *c, int64_t now)
{
    ssize_t n = recv(c->fd, c->reply + c->reply_len, REPLY_MAX - c->reply_len, 0);
    if (n <= 0 || c->reply_len + (size_t)n == REPLY_MAX) {
        seen.broken += c->waiting;
        reopen(c);
        send_next(c, now);
        return;
    }
    c->reply_len += (size_t)n;
    c->reply[c->reply_len] = '\0';
    if (!c->waiting || !reply_complete(c))
        return;
    const char *connection = field(c->reply, "Connection");
    bool closing = connection && strncasecmp(connection, "close", 5) == 0;
    if (closing)
        reopen(c);
    if (send_second(c))
        return;
    count_reply(c, now);
    c->waiting = false;
    c->reply_len = 0;
    send_next(c, now);
}

static double percentile_ms(const int64_t *latency, int64_t count, double part)
{
    int64_t want = (int64_t)((double)count * part), sum = 0;
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        sum += latency[i];
        if (sum > want)
            return (i + 1) / 100.0;
    }
    return 0;
}

static void print_result(void)
{
    int64_t to = option.requests || seen.last_us < seen.to_us ? seen.last_us : seen.to_us;
    double seconds = (double)(to - seen.from_us) / 1e6;
    if (seconds <= 0)
        seconds = 1e-6;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    int64_t others = seen.rated - seen.rated_busy;
    double cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.3f, \"rate\": %.1f, \"accepted_rate\": %.1f, \"refused_rate\": %.1f, "
           "\"p50_ms\": %.2f, \"p99_ms\": %.2f, \"all_sent\": %lld, \"all_answered\": %lld, \"all_accepted\": %lld, "
           "\"all_refused\": %lld, \"all_other\": %lld, \"broken\": %lld, \"cpu_s\": %.2f, ",
           seconds, (double)seen.rated / seconds, (double)seen.rated_accepted / seconds, (double)seen.rated_refused / seconds,
           percentile_ms(seen.latency, others, 0.5), percentile_ms(seen.latency, others, 0.99), (long long)seen.sent, (long long)seen.answered, (long long)seen.accepted,
           (long long)seen.refused, (long long)seen.other, (long long)seen.broken, cpu);
    if (option.rate)
        printf("\"all_busy\": %lld, \"all_unknown\": %lld, \"busy_overtook\": %lld, \"busy_rate\": %.1f, "
               "\"busy_p50_ms\": %.2f, \"busy_p99_ms\": %.2f, ",
               (long long)seen.busy, (long long)seen.unknown, (long long)least_overtook(), (double)seen.rated_busy / seconds,
               percentile_ms(seen.busy_latency, seen.rated_busy, 0.5),
               percentile_ms(seen.busy_latency, seen.rated_busy, 0.99));
    printf("\"status\": {");
    const char *comma = "";
    for (int i = 0; i < 600; i++) {
        if (seen.status[i])
            printf("%s\"%d\": %lld", comma, i, (long long)seen.status[i]);
        if (seen.status[i])
            comma = ", ";
    }
    printf("}}\n");
}

static void read_codes(const char *name)
{
    FILE *file = fopen(name, "r");
    char line[128];
    codes = calloc(1u << 24, sizeof *codes);
    if (!file || !codes)
        die(name);
    while (code_count < 1 << 24 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        codes[code_count++] = strdup(line);
    }
    fclose(file);
}

static void read_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"port", 1, NULL, 'p'},   {"connections", 1, NULL, 'c'}, {"seconds", 1, NULL, 's'}, {"requests", 1, NULL, 'n'},
        {"state", 1, NULL, 't'},  {"pairs", 0, NULL, 'r'},       {"orders", 0, NULL, 'o'},  {"rate", 1, NULL, 'a'},
        {"warmup", 1, NULL, 'w'}, {"coupons", 1, NULL, 'm'},     {"get", 0, NULL, 'g'},     {"key", 1, NULL, 'k'},
        {"seed", 1, NULL, 'x'},   {"path", 1, NULL, 'u'},        {"batch", 1, NULL, 'b'},   {"codes", 1, NULL, 'd'},
        {"users", 1, NULL, 'e'},  {"first", 1, NULL, 'f'},       {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (o) {
        case 'p': option.port = atoi(optarg); break;
        case 'c': option.connections = atoi(optarg); break;
        case 's': option.seconds = atof(optarg); break;
        case 'n': option.requests = atoll(optarg); break;
        case 'a': option.rate = atof(optarg); break;
        case 'w': option.warmup = atof(optarg); break;
        case 'm': option.coupons = atoi(optarg); break;
        case 'g': option.get = true; break;
        case 'o': option.orders = true; break;
        case 'r': option.pairs = true; option.state = "reserved"; break;
        case 't': option.state = optarg; break;
        case 'k': option.key = optarg; break;
        case 'x': option.seed = strtoull(optarg, NULL, 10) << 32; break;
        case 'u': option.path = optarg; break;
        case 'b': option.batch = atoi(optarg); break;
        case 'd': read_codes(optarg); break;
        case 'e': option.users = atoll(optarg); break;
        case 'f': option.first = atoll(optarg); break;
        default: exit(2);
        }
    }
    if (!option.port || option.connections < 1 || option.coupons < 1 || (option.pairs && option.coupons > 1) ||
        option.batch < 0 || option.batch > BATCH_MAX || (option.batch && option.pairs) || (option.seconds <= 0) == (option.requests <= 0)) {
        fprintf(stderr, "usage: load --port P --connections N (--seconds S | --requests R) [--warmup W] [--get] [--key BEARER] "
                        "[--seed X] [--coupons M] [--state STATE] [--orders] [--pairs | --batch N] [--codes FILE] [--users U] [--first F] "
                        "[--rate R] --path PATH\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    poll_fd = epoll_create1(0);
    struct connection *all = calloc((size_t)option.connections, sizeof *all);
    idle = calloc((size_t)option.connections, sizeof(struct connection *));
    if (poll_fd < 0 || !all || !idle)
        die("start");
    for (int i = 0; i < option.connections; i++) {
        all[i].reply = malloc(REPLY_MAX + 1);
        if (!all[i].reply)
            die("start");
        open_connection(&all[i]);
    }

    seen.start_us = seen.last_us = now_us();
    seen.from_us = seen.start_us + (int64_t)(option.warmup * 1e6);
    seen.to_us = seen.from_us + (int64_t)(option.seconds * 1e6);
    for (int i = 0; i < option.connections; i++)
        send_next(&all[i], seen.start_us);

    int64_t quiet_since = seen.start_us;
    while (seen.answered + seen.broken < seen.sent || more_to_send(now_us())) {
        struct epoll_event events[256];
        int n = epoll_wait(poll_fd, events, 256, option.rate ? 1 : 1000);
        if (n < 0 && errno != EINTR)
            die("epoll_wait");
        int64_t now = now_us();
        for (int i = 0; i < n; i++)
            on_readable(events[i].data.ptr, now);
        if (option.rate)
            send_due(now);
        if (n > 0)
            quiet_since = now;
        if (now - quiet_since > 30 * 1000000) {
            fprintf(stderr, "load: %lld requests without an answer for 30 s\n", (long long)(seen.sent - seen.answered));
            seen.broken = seen.sent - seen.answered;
            break;
        }
    }
    print_result();
    for (int i = 0; i < option.connections; i++)
        free(all[i].reply);
    for (int64_t i = 0; i < code_count; i++)
        free(codes[i]);
    free(codes);
    free(busy);
    free(idle);
    free(all);
    return seen.other || seen.broken ? 1 : 0;
}
