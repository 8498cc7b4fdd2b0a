/* Unit tests of base/ids: the alphabet, the length, that no two are the same. */
#include "cmocka_whole.h"
#include <sys/wait.h>
#include <unistd.h>

#include "base/ids.h"

#define MANY 20000

TEST(ids_have_their_length_and_no_look_alikes)
{
    char id[130];

    for (size_t len = 0; len < 129; len++) {
        memset(id, '#', sizeof id);
        id_random(id, len);
        assert_int_equal(strlen(id), len);
        assert_int_equal(strspn(id, "0123456789abcdefghjkmnpqrstvwxyz"), len);
    }
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, ID_SHORT_LEN);
}

TEST(no_two_ids_are_the_same)
{
    static char ids[MANY][ID_SHORT_LEN + 1];

    for (int i = 0; i < MANY; i++)
        id_random(ids[i], ID_SHORT_LEN);
    qsort(ids, MANY, sizeof ids[0], compare);
    for (int i = 1; i < MANY; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
}

/* The child has a copy of what its parent had drawn and not used. */
TEST(a_child_and_its_parent_make_different_ids)
{
    char ours[ID_BATCH_LEN + 1], theirs[ID_BATCH_LEN + 1];
    int ends[2], status;
    pid_t child;

    id_random(ours, ID_BATCH_LEN);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    id_random(ours, ID_BATCH_LEN);
    if (child == 0)
        _exit(write(ends[1], ours, sizeof ours) != sizeof ours);
    assert_int_equal(read(ends[0], theirs, sizeof theirs), sizeof theirs);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_not_equal(ours, theirs);
    close(ends[0]);
    close(ends[1]);
}

TEST(every_letter_is_as_likely)
{
    int seen[128] = {0};
    char id[ID_BATCH_LEN + 1];

    for (int i = 0; i < MANY; i++) {
        id_random(id, ID_BATCH_LEN);
        for (int k = 0; k < ID_BATCH_LEN; k++)
            seen[(int)id[k]]++;
    }
    /* 16,250 expected of each, standard deviation 125: eight of them either way */
    for (const char *c = "0123456789abcdefghjkmnpqrstvwxyz"; *c; c++)
        if (seen[(int)*c] < 15250 || seen[(int)*c] > 17250)
            fail_msg("'%c' came %d times", *c, seen[(int)*c]);
}

RUN_TESTS()
