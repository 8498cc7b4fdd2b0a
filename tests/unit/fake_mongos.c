/* tests/unit/fake_mongos.c -- see fake_mongos.h. One thread accepts, and each connection has one. */
#include "unit/fake_mongos.h"

#include "cmocka_whole.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define OP_REPLY 1
#define OP_QUERY 2004
#define OP_MSG 2013
#define HEAD_SIZE 16
#define STEPS_MAX 512
#define CONNECTIONS_MAX 32
#define MESSAGE_MAX (1 << 20)

struct step {
    const char *name, *reply;
    bson_t *asked; /* NULL: it has not come */
};

static struct {
    pthread_mutex_t mutex;
    pthread_t thread, connections[CONNECTIONS_MAX];
    int listener, sockets[CONNECTIONS_MAX];
    size_t connected;
    struct step steps[STEPS_MAX];
    size_t laid_out, come;
    bool member; /* of a replica set, and no router */
    char strange[256]; /* the first command that nobody laid out */
    uint32_t clock;
} mongos = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define HELLO(kind)                                                                                                    \
    "{\"isWritablePrimary\": true, \"ismaster\": true, " kind ", \"maxBsonObjectSize\": 16777216,"                       \
    " \"maxMessageSizeBytes\": 48000000, \"maxWriteBatchSize\": 100000, \"logicalSessionTimeoutMinutes\": 30,"           \
    " \"connectionId\": 1, \"maxWireVersion\": 17, \"minWireVersion\": 0}"
static const char hello_of_router[] = HELLO("\"msg\": \"isdbgrid\""), hello_of_member[] = HELLO("\"readOnly\": false");

/* ---- replies ---- */

static bson_t *parse(const char *json)
{
    bson_error_t error;
    bson_t *doc = bson_new_from_json((const uint8_t *)json, -1, &error);

    if (!doc) {
        fprintf(stderr, "not a reply: %s: %s\n", error.message, json);
        abort();
    }
    return doc;
}

/* With what every reply of a cluster has; under the mutex. */
static bson_t *whole(const char *json)
{
    static const uint8_t hash[20];
    bson_t *reply = parse(json), time, signature;

    mongos.clock++;
    if (!bson_has_field(reply, "ok"))
        BSON_APPEND_DOUBLE(reply, "ok", 1.0);
    if (!bson_has_field(reply, "operationTime"))
        BSON_APPEND_TIMESTAMP(reply, "operationTime", 1700000000, mongos.clock);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "$clusterTime", &time);
    BSON_APPEND_TIMESTAMP(&time, "clusterTime", 1700000000, mongos.clock);
    BSON_APPEND_DOCUMENT_BEGIN(&time, "signature", &signature);
    BSON_APPEND_BINARY(&signature, "hash", BSON_SUBTYPE_BINARY, hash, sizeof hash);
    BSON_APPEND_INT64(&signature, "keyId", 0);
    bson_append_document_end(&time, &signature);
    bson_append_document_end(reply, &time);
    return reply;
}

/* What it is answered by itself, or NULL. */
static const char *by_itself(const char *name)
{
    if (strcasecmp(name, "hello") == 0 || strcasecmp(name, "ismaster") == 0)
        return mongos.member ? hello_of_member : hello_of_router;
    return strcmp(name, "endSessions") == 0 || strcmp(name, "killCursors") == 0 ? "{}" : NULL;
}

/* The reply to a command; NULL: the connection ends. */
static bson_t *answer(const bson_t *command)
{
    bson_t *reply = NULL;
    const char *name, *json;
    bson_iter_t it;

    if (!bson_iter_init(&it, command) || !bson_iter_next(&it))
        abort();
    name = bson_iter_key(&it);
    json = by_itself(name);
    pthread_mutex_lock(&mongos.mutex);
    if (json) {
        reply = whole(json);
    } else if (mongos.come < mongos.laid_out && strcmp(mongos.steps[mongos.come].name, name) == 0) {
        struct step *step = &mongos.steps[mongos.come++];

        step->asked = bson_copy(command);
        reply = step->reply ? whole(step->reply) : NULL;
    } else {
        if (!mongos.strange[0])
            snprintf(mongos.strange, sizeof mongos.strange, "%s came, and %s was laid out", name,
                     mongos.come < mongos.laid_out ? mongos.steps[mongos.come].name : "nothing");
        reply = whole("{\"ok\": 0, \"code\": 59, \"codeName\": \"CommandNotFound\", \"errmsg\": \"nobody laid it out\"}");
    }
    pthread_mutex_unlock(&mongos.mutex);
    return reply;
}

/* ---- the wire ---- */

static int32_t int_at(const uint8_t *p)
{
    int32_t value;

    memcpy(&value, p, sizeof value);
    return BSON_UINT32_FROM_LE(value);
}

static bool receive(int fd, uint8_t *into, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t n = recv(fd, into + have, size - have, 0);

        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

/* The reply to a message of that id: by OP_REPLY to the first question of a connection, else by OP_MSG. */
static bool send_reply(int fd, int32_t to, bool query, const bson_t *reply)
{
    const uint8_t between[] = {8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}; /* flags, cursor, from, one document */
    const uint8_t sections[] = {0, 0, 0, 0, 0};                                           /* flags, a body */
    const uint8_t *middle = query ? between : sections;
    size_t middle_size = query ? sizeof between : sizeof sections, size = HEAD_SIZE + middle_size + reply->len;
    uint8_t *message = malloc(size);
    int32_t head[] = {(int32_t)size, 0, to, query ? OP_REPLY : OP_MSG};
    bool sent;

    if (!message)
        abort();
    memcpy(message, head, sizeof head);
    memcpy(message + HEAD_SIZE, middle, middle_size);
    memcpy(message + HEAD_SIZE + middle_size, bson_get_data(reply), reply->len);
    sent = send(fd, message, size, MSG_NOSIGNAL) == (ssize_t)size;
    free(message);
    return sent;
}

/* One message: false where the connection is at its end. */
static bool serve_one(int fd, uint8_t *body)
{
    uint8_t head[HEAD_SIZE];
    size_t size, skip;
    bson_t command, *reply;
    bool query, sent;

    if (!receive(fd, head, sizeof head))
        return false;
    size = (size_t)int_at(head) - HEAD_SIZE;
    query = int_at(head + 12) == OP_QUERY;
    if (size > MESSAGE_MAX || !receive(fd, body, size))
        return false;
    /* flags, name, skip, return; or flags and the kind of the first section, a body */
    skip = query ? 4 + strlen((const char *)body + 4) + 1 + 8 : 5;
    if (!bson_init_static(&command, body + skip, (size_t)int_at(body + skip)))
        abort();
    reply = answer(&command);
    if (!reply)
        return false;
    sent = send_reply(fd, int_at(head + 4), query, reply);
    bson_destroy(reply);
    return sent;
}

static void *serve(void *argument)
{
    int fd = *(int *)argument;
    uint8_t *body = malloc(MESSAGE_MAX);

    while (body && serve_one(fd, body))
        ;
    free(body);
    shutdown(fd, SHUT_RDWR);
    return NULL;
}

static void *accept_all(void *argument)
{
    int fd;

    (void)argument;
    while ((fd = accept(mongos.listener, NULL, NULL)) >= 0) {
        if (mongos.connected == CONNECTIONS_MAX)
            abort();
        mongos.sockets[mongos.connected] = fd;
        if (pthread_create(&mongos.connections[mongos.connected], NULL, serve, &mongos.sockets[mongos.connected]) != 0)
            abort();
        mongos.connected++;
    }
    return NULL;
}

/* ---- for tests ---- */

static void forget(void)
{
    for (size_t i = 0; i < mongos.come; i++)
        bson_destroy(mongos.steps[i].asked);
    mongos.come = mongos.laid_out = 0;
    mongos.strange[0] = '\0';
}

uint16_t mongos_start_member(void)
{
    mongos.member = true;
    return mongos_start();
}

uint16_t mongos_start(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    mongos.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(mongos.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(mongos.listener, CONNECTIONS_MAX), 0);
    assert_int_equal(getsockname(mongos.listener, (struct sockaddr *)&address, &size), 0);
    mongos.connected = 0;
    forget(); /* what a test that failed has left */
    assert_int_equal(pthread_create(&mongos.thread, NULL, accept_all, NULL), 0);
    return ntohs(address.sin_port);
}

void mongos_stop(void)
{
    shutdown(mongos.listener, SHUT_RDWR);
    pthread_join(mongos.thread, NULL);
    close(mongos.listener);
    mongos.member = false;
    for (size_t i = 0; i < mongos.connected; i++) {
        shutdown(mongos.sockets[i], SHUT_RDWR);
        pthread_join(mongos.connections[i], NULL);
        close(mongos.sockets[i]);
    }
}

void mongos_will(const char *name, const char *reply)
{
    pthread_mutex_lock(&mongos.mutex);
    if (mongos.laid_out == STEPS_MAX)
        abort();
    mongos.steps[mongos.laid_out++] = (struct step){name, reply, NULL};
    pthread_mutex_unlock(&mongos.mutex);
}

const bson_t *mongos_asked(size_t k)
{
    const bson_t *asked;

    pthread_mutex_lock(&mongos.mutex);
    asked = mongos.steps[k].asked;
    pthread_mutex_unlock(&mongos.mutex);
    assert_non_null(asked);
    return asked;
}

void mongos_done(void)
{
    char strange[sizeof mongos.strange];
    size_t come, laid_out;

    pthread_mutex_lock(&mongos.mutex);
    memcpy(strange, mongos.strange, sizeof strange);
    come = mongos.come;
    laid_out = mongos.laid_out;
    forget();
    pthread_mutex_unlock(&mongos.mutex);
    assert_string_equal(strange, "");
    assert_int_equal(come, laid_out);
}
