/* ctl/checkpoint.c -- see checkpoint.h. */
#include "ctl/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "ctl/statement.h"

#define SUFFIX ".checkpoint"
#define SUFFIX_LEN (sizeof SUFFIX - 1)
#define FIRST_LINE "couponctl checkpoint 1\n"
#define FIRST_LEN (sizeof FIRST_LINE - 1)
#define STATEMENT_MOST (1 << 20)
#define RECORD_MOST (1 << 24)
#define LENGTH_BYTES 4

/* ---- the command line ---- */

static bool is_directory(const char *path)
{
    struct stat s;

    if (stat(path, &s) != 0)
        ctl_complain("%s: %s", path, strerror(errno));
    else if (!S_ISDIR(s.st_mode))
        ctl_complain("%s: not a directory", path);
    else
        return true;
    return false;
}

int checkpoints_open(struct ctl *c, struct checkpoints *k)
{
    const char *key = ctl_option(c, OPT_SIGN_KEY);

    *k = (struct checkpoints){.dir = ctl_option(c, OPT_CHECKPOINTS), .from_start = ctl_option(c, OPT_FROM_START) != NULL};
    if (!k->dir && (key || k->from_start)) {
        ctl_complain("%s needs --checkpoints", key ? "--sign-key" : "--from-start");
        return CTL_USAGE;
    }
    if ((k->dir && !is_directory(k->dir)) || !statement_keys(key, &k->keys))
        return CTL_USAGE;
    k->has_keys = key != NULL;
    return CTL_OK;
}

void checkpoints_close(struct checkpoints *k)
{
    jws_keys_forget(&k->keys);
}

/* True if the coupon has one. Only for a valid id: another name could lead out of DIR. */
static bool is_kept(const struct checkpoints *k, const char *coupon)
{
    return k->dir && coupon_id_valid(coupon);
}

static char *path_of(const struct checkpoints *k, const char *coupon)
{
    char *path;

    if (asprintf(&path, "%s/%s" SUFFIX, k->dir, coupon) < 0)
        out_of_memory();
    return path;
}

/* ---- reading: the statement ---- */

struct opening {
    struct checkpoint *file;
    const struct checkpoints *how;
    struct scan *scan;
    drift_fn *report;
    void *context;
};

static void refuse(const struct opening *o, const char *where, const char *field, const char *expected, const char *found)
{
    const struct drift d = {"checkpoint", where, field, expected, found};

    o->file->status = CHECKPOINT_REFUSED;
    o->report(o->context, &d);
}

/* Read what is between the last two line feeds, and where it begins. */
static bool read_statement(FILE *f, struct buf *out, int64_t *from)
{
    off_t size;
    size_t len;
    char *start;

    if (fseeko(f, 0, SEEK_END) != 0 || (size = ftello(f)) < (off_t)FIRST_LEN)
        return false;
    len = size > STATEMENT_MOST ? STATEMENT_MOST : (size_t)size;
    buf_reserve(out, len);
    if (fseeko(f, size - (off_t)len, SEEK_SET) != 0 || fread(out->data, 1, len, f) != len || out->data[len - 1] != '\n')
        return false;
    out->data[len - 1] = '\0';
    start = memrchr(out->data, '\n', len - 1);
    if (!start)
        return false;
    start++;
    out->len = len - 1 - (size_t)(start - out->data);
    *from = size - 1 - (int64_t)out->len;
    memmove(out->data, start, out->len + 1);
    return strlen(out->data) == out->len;
}

/* Read the statement's JSON into *payload. */
static bool check_signature(const struct opening *o, const struct buf *statement, struct buf *payload)
{
    bool is_signed = statement->data[0] != '{';
    const struct jws_key *key = is_signed ? statement_signer(&o->how->keys, statement->data) : NULL;

    if (is_signed && !o->how->has_keys) {
        refuse(o, "statement", "signature", "none: no --sign-key to check it with", "one");
    } else if (!is_signed && o->how->has_keys) {
        refuse(o, "statement", "signature", "by the key of --sign-key", "none");
    } else if (is_signed && !key) {
        refuse(o, "statement", "signature", "by the key of --sign-key", "another");
    } else if (!is_signed) {
        buf_put(payload, statement->data, statement->len);
        return true;
    } else {
        memcpy(o->file->kid, key->kid, sizeof o->file->kid);
        return jws_payload(statement->data, payload);
    }
    return false;
}

static bool get_batch(struct json_object *o, struct known_batch *b)
{
    return statement_count(o, "seq", &b->seq) && statement_hash(o, "hash", b->hash);
}

static bool get_section(struct json_object *o, struct checkpoint_section *s, int64_t *from, uint8_t sha256[HASH_LEN])
{
    s->at = (struct lane_checkpoint){.definition = NULL};
    s->from = *from;
    if (!get_batch(o, &s->at.tail) || !get_batch(statement_member(o, "defined", json_type_object), &s->at.defined) ||
        !get_batch(statement_member(o, "deleted", json_type_object), &s->at.deleted) || !statement_count(o, "bytes", &s->len) ||
        s->len > INT64_MAX - *from || !statement_hash(o, "sha256", sha256))
        return false;
    *from += s->len;
    return true;
}

/* True if the next len bytes of f have this hash. */
static bool has_hash(FILE *f, int64_t len, const uint8_t sha256[HASH_LEN])
{
    crypto_hash_sha256_state state;
    unsigned char made[HASH_LEN], piece[65536];

    crypto_hash_sha256_init(&state);
    while (len > 0) {
        size_t some = len < (int64_t)sizeof piece ? (size_t)len : sizeof piece;

        if (fread(piece, 1, some, f) != some)
            return false;
        crypto_hash_sha256_update(&state, piece, some);
        len -= (int64_t)some;
    }
    crypto_hash_sha256_final(&state, made);
    return memcmp(made, sha256, HASH_LEN) == 0;
}

/* Check each lane's section; together they end at `end`. */
static bool check_sections(const struct opening *o, struct json_object *lanes, int64_t end)
{
    int64_t from = FIRST_LEN;
    char first[FIRST_LEN];

    if (fseeko(o->file->file, 0, SEEK_SET) != 0 || fread(first, 1, FIRST_LEN, o->file->file) != FIRST_LEN ||
        memcmp(first, FIRST_LINE, FIRST_LEN) != 0)
        return false;
    for (size_t i = 0; i < (size_t)o->file->lanes; i++) {
        uint8_t sha256[HASH_LEN];

        if (!get_section(json_object_array_get_idx(lanes, i), &o->file->sections[i], &from, sha256) || from >= end)
            return false;
        if (!has_hash(o->file->file, o->file->sections[i].len, sha256))
            return false;
    }
    return from == end - 1; /* minus a line feed */
}

static void check_statement(const struct opening *o, const struct buf *payload, int64_t end, int64_t lanes)
{
    JSON_IN_AUTO struct json_object *statement = statement_parse(payload->data, payload->len);
    struct json_object *list = statement_member(statement, "lanes", json_type_array);
    struct json_object *coupon = statement_member(statement, "coupon", json_type_string);
    int64_t form = 0;

    o->file->lanes = list ? (int64_t)json_object_array_length(list) : 0;
    if (!coupon || !statement_count(statement, "checkpoint", &form) || form != 1)
        refuse(o, "statement", "form", "a checkpoint's", "another");
    else if (strcmp(json_object_get_string(coupon), o->scan->coupon) != 0)
        refuse(o, "statement", "coupon", o->scan->coupon, json_object_get_string(coupon));
    else if (o->file->lanes != lanes)
        refuse(o, "statement", "lanes", "those of the coupon", "others");
    else if (!check_sections(o, list, end))
        refuse(o, "file", "records", "those of its statement", "others");
}

/* ---- reading: against the ledger ---- */

static enum store_status check_lane(const struct opening *o, int64_t lane, struct arena *a)
{
    static const char *const faults[] = {[CHECKPOINT_AHEAD] = "none: the ledger ends before it",
                                         [CHECKPOINT_DIFFERENT] = "another, or none"};
    struct lane_checkpoint *at = &o->file->sections[lane].at;
    enum checkpoint_fault fault = CHECKPOINT_GOOD;
    enum store_status s = scan_checkpoint(o->scan, lane, at, a, &fault);
    char where[64];

    if (s != STORE_OK || fault == CHECKPOINT_GOOD)
        return s;
    snprintf(where, sizeof where, lane ? "seq %" PRId64 " of lane %" PRId64 : "seq %" PRId64, at->tail.seq, lane);
    if (fault == CHECKPOINT_MARKS)
        o->file->status = CHECKPOINT_LATER;
    else
        refuse(o, where, "batch", "the one that it names", faults[fault]);
    return s;
}

enum store_status checkpoint_open(struct checkpoint *f, const struct checkpoints *k, struct scan *v, int64_t lanes, struct arena *a,
                                  drift_fn *report, void *context)
{
    const struct opening o = {f, k, v, report, context};
    struct buf statement = BUF_INIT, payload = BUF_INIT;
    enum store_status s = STORE_OK;
    int64_t end = 0;
    char *path;

    *f = (struct checkpoint){.status = CHECKPOINT_NONE};
    if (!is_kept(k, v->coupon))
        return s;
    path = path_of(k, v->coupon);
    f->file = fopen(path, "re");
    if (f->file) {
        f->status = CHECKPOINT_USED;
        if (!read_statement(f->file, &statement, &end))
            refuse(&o, "file", "form", "a checkpoint's", "another");
        else if (check_signature(&o, &statement, &payload))
            check_statement(&o, &payload, end, lanes);
        else if (f->status == CHECKPOINT_USED)
            refuse(&o, "statement", "form", "a checkpoint's", "another");
    } else if (errno != ENOENT) {
        refuse(&o, "file", "form", "one that can be read", strerror(errno));
    }
    for (int64_t lane = 0; s == STORE_OK && f->status >= CHECKPOINT_LATER && lane < lanes; lane++)
        s = check_lane(&o, lane, a);
    if (k->from_start && f->status != CHECKPOINT_REFUSED)
        f->status = CHECKPOINT_NONE;
    buf_free(&payload);
    buf_free(&statement);
    free(path);
    return s;
}

void checkpoint_close(struct checkpoint *f)
{
    if (f->file)
        fclose(f->file);
    f->file = NULL;
}

/* ---- all of them ---- */

/* True if it is a checkpoint; its name is cut to the coupon's id. */
static bool is_checkpoint(struct dirent *e)
{
    size_t len = strlen(e->d_name);

    if (len <= SUFFIX_LEN || strcmp(e->d_name + len - SUFFIX_LEN, SUFFIX) != 0)
        return false;
    e->d_name[len - SUFFIX_LEN] = '\0';
    return coupon_id_valid(e->d_name);
}

static int compare_names(const void *a, const void *b)
{
    const struct dirent *const *x = a, *const *y = b;

    return strcmp((*x)->d_name, (*y)->d_name);
}

bool checkpoint_list_open(struct checkpoint_list *l, const struct checkpoints *k)
{
    int found;

    *l = (struct checkpoint_list){.files = NULL};
    if (!k->dir)
        return true;
    found = scandir(k->dir, &l->files, NULL, NULL);
    if (found < 0) {
        ctl_complain("%s: %s", k->dir, strerror(errno));
        return false;
    }
    for (int i = 0; i < found; i++)
        if (is_checkpoint(l->files[i]))
            l->files[l->count++] = l->files[i];
        else
            free(l->files[i]);
    if (l->count)
        qsort(l->files, l->count, sizeof *l->files, compare_names);
    return true;
}

const char *checkpoint_list_before(struct checkpoint_list *l, const char *coupon)
{
    int order;

    if (l->next == l->count)
        return NULL;
    order = coupon ? strcmp(l->files[l->next]->d_name, coupon) : -1;
    l->next += order <= 0;
    return order < 0 ? l->files[l->next - 1]->d_name : NULL;
}

void checkpoint_list_close(struct checkpoint_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->files[i]);
    free(l->files);
}

/* ---- reading: records ---- */

const struct lane_checkpoint *checkpoint_lane(struct checkpoint *f, int64_t lane)
{
    const struct checkpoint_section *s = &f->sections[lane];

    if (f->status != CHECKPOINT_USED)
        return NULL;
    f->left = fseeko(f->file, s->from, SEEK_SET) == 0 ? s->len : 0;
    return &s->at;
}

/* The file was checked: if a read fails now, the record is empty, which is reported later. */
bool checkpoint_next(struct checkpoint *f, struct buf *record)
{
    unsigned char bytes[LENGTH_BYTES] = {0};
    size_t len = 0;

    buf_clear(record);
    if (f->left <= 0)
        return false;
    if (fread(bytes, 1, LENGTH_BYTES, f->file) == LENGTH_BYTES)
        for (int i = LENGTH_BYTES; i-- > 0;)
            len = len << 8 | bytes[i];
    f->left -= LENGTH_BYTES + (int64_t)len;
    if (len > RECORD_MOST || f->left < 0)
        len = 0;
    buf_reserve(record, len);
    record->len = fread(record->data, 1, len, f->file);
    if (record->len == 0 || record->len < len)
        f->left = 0;
    return true;
}

void checkpoint_say(const struct checkpoint *f, struct buf *out)
{
    if (f->status == CHECKPOINT_REFUSED)
        buf_puts(out, ", from the start");
    if (f->status == CHECKPOINT_LATER)
        buf_puts(out, ", from the start: views or totals have not reached its checkpoint");
    if (f->status != CHECKPOINT_USED)
        return;
    buf_printf(out, ", from %s checkpoint at seq ", f->kid[0] ? "a" : "an unsigned");
    for (int64_t i = 0; i < f->lanes; i++)
        buf_printf(out, "%s%" PRId64, i ? "/" : "", f->sections[i].at.tail.seq);
    if (f->kid[0])
        buf_printf(out, ", signed by %s", f->kid);
}

void checkpoint_put_json(const struct checkpoint *f, struct json *j)
{
    json_key(j, "checkpoint");
    if (f->status != CHECKPOINT_USED) {
        json_null(j);
        return;
    }
    json_begin_object(j);
    json_key(j, "seqs");
    json_begin_array(j);
    for (int64_t i = 0; i < f->lanes; i++)
        json_int(j, f->sections[i].at.tail.seq);
    json_end_array(j);
    json_key_string(j, "kid", f->kid[0] ? f->kid : NULL);
    json_end_object(j);
}

/* ---- writing ---- */

static void put_bytes(struct checkpoint_writer *w, const void *bytes, size_t len)
{
    fwrite(bytes, 1, len, w->file.to); /* new_file_keep() sees failures */
}

bool checkpoint_begin(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon)
{
    char *path;
    bool open;

    *w = (struct checkpoint_writer){.lanes = BUF_INIT};
    if (!is_kept(k, coupon))
        return true;
    path = path_of(k, coupon);
    open = new_file_open(&w->file, path);
    if (open) {
        put_bytes(w, FIRST_LINE, FIRST_LEN);
        crypto_hash_sha256_init(&w->hash);
    } else
        ctl_complain("%s: %s", path, strerror(errno));
    free(path);
    return open;
}

void checkpoint_record(void *writer, const char *bytes, size_t len)
{
    struct checkpoint_writer *w = writer;
    unsigned char length[LENGTH_BYTES];

    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)(len >> 8 * i);
    put_bytes(w, length, LENGTH_BYTES);
    put_bytes(w, bytes, len);
    crypto_hash_sha256_update(&w->hash, length, LENGTH_BYTES);
    crypto_hash_sha256_update(&w->hash, (const unsigned char *)bytes, len);
    w->len += LENGTH_BYTES + (int64_t)len;
}

static void put_batch(struct json *j, const char *name, const struct known_batch *b)
{
    json_key(j, name);
    json_begin_object(j);
    json_key_int(j, "seq", b->seq);
    statement_put_hash(j, "hash", b->hash);
    json_end_object(j);
}

void checkpoint_lane_end(struct checkpoint_writer *w, const struct lane_checkpoint *at)
{
    uint8_t sha256[HASH_LEN];
    struct json j = json_to(&w->lanes);

    crypto_hash_sha256_final(&w->hash, sha256);
    if (w->lanes.len)
        buf_putc(&w->lanes, ',');
    json_begin_object(&j);
    json_key_int(&j, "seq", at->tail.seq);
    statement_put_hash(&j, "hash", at->tail.hash);
    json_key_time(&j, "at", at->head.at_ms);
    statement_put_totals(&j, &at->head);
    put_batch(&j, "defined", &at->defined);
    put_batch(&j, "deleted", &at->deleted);
    json_key_int(&j, "bytes", w->len);
    statement_put_hash(&j, "sha256", sha256);
    json_end_object(&j);
    w->len = 0;
    crypto_hash_sha256_init(&w->hash);
}

static void put_statement(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon)
{
    struct buf payload = BUF_INIT, token = BUF_INIT;
    struct json j = json_to(&payload);

    json_begin_object(&j);
    json_key_int(&j, "checkpoint", 1);
    json_key_string(&j, "coupon", coupon);
    json_key(&j, "lanes");
    buf_printf(&payload, "[%s]", w->lanes.data);
    json_end_object(&j);
    statement_sign(&k->keys, &payload, &token);
    put_bytes(w, "\n", 1);
    put_bytes(w, token.data, token.len);
    put_bytes(w, "\n", 1);
    buf_free(&token);
    buf_free(&payload);
}

bool checkpoint_commit(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon)
{
    bool kept;

    put_statement(w, k, coupon);
    kept = new_file_keep(&w->file);
    if (!kept) {
        const int why = errno;
        char *path = path_of(k, coupon);

        ctl_complain("%s: %s", path, strerror(why));
        free(path);
    }
    buf_free(&w->lanes);
    return kept;
}

void checkpoint_abandon(struct checkpoint_writer *w)
{
    if (w->file.to)
        new_file_drop(&w->file);
    buf_free(&w->lanes);
}
