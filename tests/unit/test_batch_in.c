/* Unit tests of couponctl's reader of the ledger's lines: what batch_line() writes, and nothing else. */
#include "cmocka_whole.h"

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/batch_in.c"

static struct coupon definition;

static struct batch *new_batch(void)
{
    struct batch *b = batch_new("sale", 3);

    b->head = (struct head){.seq = 88, .at_ms = 1795255200123, .version = 4, .slots = 64, .retiring = 2, .next_n = 66, .issued = 1, .reserved = 2,
                            .redeemed = 3, .ordinal = 9, .discount_minor = 500, .day_ms = 1795215600000, .day_taken = 5, .elsewhere = -7,
                            .turn = 11, .low_stock = 1, .sold_out = 1, .replenish_until = 70,
                            .archived = 1, .epoch = 2};
    memset(b->head.hash, 0xC3, HASH_LEN);
    memset(b->prev, 0x3C, HASH_LEN);
    return b;
}

/* Of any kind, with every member that one may have. */
static void add_full(struct batch *b, enum entry_kind kind, bool from_elsewhere)
{
    struct entry *e = batch_add(b, kind);

    *e = (struct entry){
        .kind = kind, .n = 1042, .g = 3, .from_n = from_elsewhere ? 1041 : 1042, .from = 2, .count = 64, .ordinal = 317, .left = 4683, .day = 12,
        .discount_minor = 500, .held_minor = 400, .order_minor = 4200, .version = 3, .currency = "EUR", .keep_use = true, .held_order_minor = 4300, .reserved_until_ms = 1795255260123, .valid_until_ms = 1795255260124, .was = SLOT_RESERVED,
        .same_day = true, .since = 88, .before = 77, .step = 9, .job = "j\"1",
        .by = "key\"1", .alias = "0123456789abcdef", .definition = &definition, .shared = "SUM\"R10",
    };
    memset(e->key, 0xA5, sizeof e->key);
}

/* And with none that may be absent. */
static void add_bare(struct batch *b, enum entry_kind kind)
{
    struct entry *e = batch_add(b, kind);

    e->left = COUPON_NULL;
    e->definition = &definition;
}

/* What of the line is read again, or NULL; the line is as in memory of its own, so that reading past it is seen. */
static struct batch *read_again(const char *line, size_t len)
{
    char *copy = malloc(len + !len);
    struct batch *b;

    assert_non_null(copy);
    memcpy(copy, line, len);
    b = batch_in(copy, len);
    free(copy);
    return b;
}

/* As an erasure at the end of a full batch makes it. */
TEST(a_line_of_many_entries_is_read_again)
{
    struct buf line = BUF_INIT;
    struct batch *b = new_batch(), *again;

    for (int i = 0; i < 5100; i++)
        add_full(b, ENTRY_CANCEL, true);
    batch_line(b, &line, true);
    again = read_again(line.data, line.len);
    assert_non_null(again);
    assert_int_equal(again->count, 5100);
    batch_free(again);
    batch_free(b);
    buf_free(&line);
}

TEST(a_line_of_every_kind_of_entry_is_read_again)
{
    struct buf line = BUF_INIT, again = BUF_INIT;
    struct batch *b = new_batch(), *read;

    for (unsigned k = 0; k < ENTRY_KIND_COUNT; k++) {
        add_full(b, (enum entry_kind)k, false);
        add_full(b, (enum entry_kind)k, true);
        add_bare(b, (enum entry_kind)k);
    }
    batch_line(b, &line, true);
    read = read_again(line.data, line.len);
    assert_non_null(read);
    batch_line(read, &again, true);
    assert_string_equal(again.data, line.data);
    assert_int_equal(read->count, b->count);
    assert_string_equal(read->entries[0].definition->title, definition.title);
    for (size_t i = 0; i < b->count; i++)
        assert_null(read->entries[i].user);
    batch_free(read);
    batch_free(b);
    buf_free(&again);
    buf_free(&line);
}

static void assert_refused(const char *line, size_t len, const char *why)
{
    struct batch *b = read_again(line, len);

    if (b)
        fail_msg("taken, although %s: %.*s", why, (int)len, line);
}

TEST(whatever_else_a_line_says_is_refused)
{
    static const struct {
        const char *from, *to, *why;
    } changes[] = {
        {"{\"at\":", "{ \"at\":", "there is a blank"},
        {"\"lane\":3", "\"lane\":03", "a number has a zero before it"},
        {"\"lane\":3", "\"lane\":64", "there is no such lane"},
        {"\"seq\":88", "\"seq\":0", "there is no such batch"},
        {"\"seq\":88", "\"seq\":9007199254740992", "the number is not exact"},
        {"\"seq\":88", "\"seq\":\"88\"", "it is a text"},
        {"\"seq\":88", "\"seq\":88,\"more\":1", "there is another member"},
        {"\"kind\":\"tick\"", "\"kind\":\"tock\"", "there is no such kind"},
        {"\"kind\":\"tick\"", "\"count\":1,\"kind\":\"tick\"", "a tick has no count"},
        {"{\"kind\":\"tick\"}", "7", "an entry is no object"},
        {"[{\"kind\":\"tick\"}]", "[]", "there is no entry"},
        {"[{\"kind\":\"tick\"}]", "{\"kind\":\"tick\"}", "entries are no list"},
        {"\"hash\":\"c3", "\"hash\":\"C3", "hex is in capitals"},
        {"\"hash\":\"c3", "\"hash\":\"", "a hash is too short"},
        {"\"coupon\":\"sale\"", "\"coupon\":null", "it has no coupon"},
        {"123Z\"", "123+00:00\"", "the time is in another form"},
        {"\"totals\":{", "\"totals\":{\"a\":1,", "the totals have another member"},
        {"\"version\":4}", "\"version\":4", "it has no end"},
    };
    struct batch *b = new_batch();
    struct buf line = BUF_INIT, changed = BUF_INIT;

    batch_add(b, ENTRY_TICK);
    batch_line(b, &line, true);
    batch_free(b);
    b = read_again(line.data, line.len);
    assert_non_null(b);
    batch_free(b);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *at = strstr(line.data, changes[i].from);

        assert_non_null(at);
        buf_clear(&changed);
        buf_put(&changed, line.data, (size_t)(at - line.data));
        buf_puts(&changed, changes[i].to);
        buf_puts(&changed, at + strlen(changes[i].from));
        assert_refused(changed.data, changed.len, changes[i].why);
    }
    for (size_t len = 0; len < line.len; len++)
        assert_refused(line.data, len, "it is cut off");
    assert_refused("null", 4, "it is no object");
    buf_free(&changed);
    buf_free(&line);
}

TEST(a_definition_needs_all_that_it_has)
{
    struct batch *b = new_batch();
    struct buf line = BUF_INIT;
    char *at;

    add_bare(b, ENTRY_DEFINE);
    batch_line(b, &line, true);
    batch_free(b);
    at = strstr(line.data, "\"title\":\"Sale\"");
    assert_non_null(at);
    memcpy(at, "\"title\":\"Salx\"", strlen("\"title\":\"Salx\""));
    b = read_again(line.data, line.len);
    assert_non_null(b);
    assert_string_equal(b->entries[0].definition->title, "Salx");
    batch_free(b);
    memcpy(at, "\"tittle\":\"Sal\"", strlen("\"tittle\":\"Sal\""));
    assert_refused(line.data, line.len, "it has another member");
    buf_free(&line);
}

int main(void)
{
    coupon_init(&definition);
    definition.id = "sale";
    definition.title = "Sale";
    definition.version = 2;
    definition.cap.total = 100;
    return run_listed((struct fixtures){.program = __FILE__});
}
