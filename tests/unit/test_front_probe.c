/* Unit tests of runner/peers: of which fronts this machine's nginx is told that they are gone. nginx is played by a thread here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "runner/work.h"

#define FIRST "coupons_front_1"
#define SECOND "coupons_front_2"
#define PATIENCE_MS 60000
#define SILENT_MAX 1024
#define STALL_MS 300
#define LOOKS 8 /* questions, of which a front leaves none unasked */

enum says { SAYS_YES, SAYS_NO, SAYS_NOTHING };

static struct {
    char dir[32];
    struct config config;
    struct runner runner;
    pthread_t prober, nginx;
    int listener;
    /* under the lock: what nginx does */
    pthread_mutex_t lock;
    const char *list; /* NULL: it answers nobody */
    enum says first, second;
    int no_more;      /* of this many questions about FIRST the answer is no, whatever `first` is */
    int asked_first, asked_list;
    bool ends;
    bool stood_still; /* the machine gave this program no time: whoever is silent then is not to blame */
    int silent[SILENT_MAX], silent_count; /* connections that were left without an answer */
} t;

/* ---- nginx ---- */

/* Who has hung up by now misses it. */
static void answer(int fd, const char *status, const char *body)
{
    char reply[512];
    int len = snprintf(reply, sizeof reply, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status, strlen(body), body);

    (void)send(fd, reply, (size_t)len, MSG_NOSIGNAL);
    close(fd);
}

static void leave_silent(int fd)
{
    if (t.silent_count < SILENT_MAX)
        t.silent[t.silent_count++] = fd;
    else
        close(fd);
}

static void answer_front(int fd, enum says says)
{
    if (says == SAYS_NOTHING)
        leave_silent(fd);
    else
        answer(fd, says == SAYS_YES ? "200 OK" : "503 Service Unavailable", "");
}

static void serve(int fd)
{
    char request[256] = "";

    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, PATIENCE_MS) != 1 || recv(fd, request, sizeof request - 1, 0) <= 0)
        close(fd);
    else if (strstr(request, "/coupons/-/fronts ")) {
        t.asked_list++;
        if (t.list)
            answer(fd, "200 OK", t.list);
        else
            leave_silent(fd);
    } else if (strstr(request, "/" FIRST " ")) {
        t.asked_first++;
        answer_front(fd, !t.list ? SAYS_NOTHING : t.no_more-- > 0 ? SAYS_NO : t.first);
    } else {
        answer_front(fd, t.list ? t.second : SAYS_NOTHING);
    }
}

static void *nginx_thread(void *context)
{
    struct mono last = mono_now();
    bool ends = false;

    (void)context;
    while (!ends) {
        int fd = poll(&(struct pollfd){.fd = t.listener, .events = POLLIN}, 1, 10) == 1 ? accept(t.listener, NULL, NULL) : -1;

        pthread_mutex_lock(&t.lock);
        if (fd >= 0)
            serve(fd);
        t.stood_still = t.stood_still || mono_ms_between(last, mono_now()) > STALL_MS;
        last = mono_now();
        ends = t.ends;
        pthread_mutex_unlock(&t.lock);
    }
    return NULL;
}

static void nginx_says(const char *list, enum says first, enum says second)
{
    pthread_mutex_lock(&t.lock);
    t.list = list;
    t.first = first;
    t.second = second;
    pthread_mutex_unlock(&t.lock);
}

/* ---- the prober ---- */

static bool is_marked(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/fronts/%s", t.dir, name);
    return access(path, F_OK) == 0;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};

    nanosleep(&pause, NULL);
}

static void await_mark(const char *name, bool marked)
{
    struct mono until = mono_add_ms(mono_now(), PATIENCE_MS);

    while (is_marked(name) != marked) {
        assert_true(mono_before(mono_now(), until));
        nap();
    }
}

static int count_of(const int *counter)
{
    int count;

    pthread_mutex_lock(&t.lock);
    count = *counter;
    pthread_mutex_unlock(&t.lock);
    return count;
}

static bool is_marked_in_vain(const char *name)
{
    bool excused;

    pthread_mutex_lock(&t.lock);
    excused = t.stood_still;
    pthread_mutex_unlock(&t.lock);
    return !excused && is_marked(name);
}

/* None is marked until so many more have been counted. */
static void nobody_is_marked_until(const int *counter, int more)
{
    struct mono until = mono_add_ms(mono_now(), PATIENCE_MS);
    int enough = count_of(counter) + more;

    while (count_of(counter) < enough) {
        assert_true(mono_before(mono_now(), until));
        assert_false(is_marked_in_vain(FIRST) || is_marked_in_vain(SECOND));
        nap();
    }
}

static int set_up(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char message[512];

    (void)state;
    memset(&t, 0, sizeof t);
    strcpy(t.dir, "/tmp/test-peers-XXXXXX");
    if (!mkdtemp(t.dir) || config_load(&t.config, NULL, NULL, message, sizeof message) != 0)
        return -1;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/nginx", t.dir);
    snprintf(t.config.fronts_at, sizeof t.config.fronts_at, "unix:%s/nginx", t.dir);
    snprintf(t.config.fronts_dir, sizeof t.config.fronts_dir, "%s/fronts", t.dir);
    t.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (t.listener < 0 || bind(t.listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(t.listener, 100) != 0)
        return -1;
    pthread_mutex_init(&t.lock, NULL);
    t.list = FIRST "\n" SECOND "\n";
    t.runner.config = &t.config;
    stop_init(&t.runner.stop);
    return pthread_create(&t.nginx, NULL, nginx_thread, NULL) || pthread_create(&t.prober, NULL, front_probe_thread, &t.runner);
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    stop_ask(&t.runner.stop);
    pthread_join(t.prober, NULL);
    assert_false(is_marked(FIRST) || is_marked(SECOND));
    pthread_mutex_lock(&t.lock);
    t.ends = true;
    pthread_mutex_unlock(&t.lock);
    pthread_join(t.nginx, NULL);
    for (int i = 0; i < t.silent_count; i++)
        close(t.silent[i]);
    close(t.listener);
    stop_release(&t.runner.stop);
    pthread_mutex_destroy(&t.lock);
    snprintf(command, sizeof command, "rm -r %s", t.dir);
    return system(command);
}

/* ---- who is gone ---- */

static void who_answers_is_not_gone(void **state)
{
    (void)state;
    nobody_is_marked_until(&t.asked_first, LOOKS);
}

static void who_is_silent_is_gone_until_it_answers(void **state)
{
    (void)state;
    nginx_says(t.list, SAYS_NOTHING, SAYS_YES);
    await_mark(FIRST, true);
    assert_false(is_marked_in_vain(SECOND));
    nginx_says(t.list, SAYS_YES, SAYS_YES);
    await_mark(FIRST, false);
}

static void who_refuses_for_a_while_is_gone(void **state)
{
    (void)state;
    nginx_says(t.list, SAYS_YES, SAYS_NO);
    await_mark(SECOND, true);
    assert_false(is_marked_in_vain(FIRST));
    nginx_says(t.list, SAYS_YES, SAYS_YES);
    await_mark(SECOND, false);
}

static void who_refuses_once_is_not_gone(void **state)
{
    (void)state;
    nobody_is_marked_until(&t.asked_first, 1);
    pthread_mutex_lock(&t.lock);
    t.no_more = 1;
    pthread_mutex_unlock(&t.lock);
    nobody_is_marked_until(&t.asked_first, LOOKS);
}

/* Then the silence says nothing of others. */
static void where_nginx_itself_is_silent_nobody_is_gone(void **state)
{
    (void)state;
    nobody_is_marked_until(&t.asked_first, 1);
    nginx_says(NULL, SAYS_NOTHING, SAYS_NOTHING);
    nobody_is_marked_until(&t.asked_list, 3);
}

static void who_is_listed_no_more_is_not_kept_as_gone(void **state)
{
    (void)state;
    nginx_says(t.list, SAYS_NOTHING, SAYS_YES);
    await_mark(FIRST, true);
    nginx_says(SECOND "\n", SAYS_NOTHING, SAYS_YES);
    await_mark(FIRST, false);
}

static void a_mark_that_somebody_removed_is_made_again(void **state)
{
    char path[128];

    (void)state;
    nginx_says(t.list, SAYS_NOTHING, SAYS_YES);
    await_mark(FIRST, true);
    snprintf(path, sizeof path, "%s/fronts/" FIRST, t.dir);
    assert_int_equal(unlink(path), 0);
    await_mark(FIRST, true);
}

static void what_is_no_name_of_a_front_makes_no_file(void **state)
{
    (void)state;
    nginx_says("../" FIRST "\nother\n" SECOND "\n", SAYS_NOTHING, SAYS_NOTHING);
    await_mark(SECOND, true);
    assert_false(is_marked("../" FIRST) || is_marked("other") || is_marked(FIRST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_answers_is_not_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_silent_is_gone_until_it_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_refuses_for_a_while_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_refuses_once_is_not_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_nginx_itself_is_silent_nobody_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_listed_no_more_is_not_kept_as_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_mark_that_somebody_removed_is_made_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_name_of_a_front_makes_no_file, set_up, tear_down),
    };

    if (log_init(NULL, LOG_ERROR) < 0)
        return 1;
    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
