/* http/conditional.c -- see conditional.h. */
#include "http/conditional.h"

#include <stdlib.h>
#include <string.h>

#include "http/reply.h"

void reply_etag(struct request *r, int64_t version)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, "ETag: \"");
    buf_int(h, version);
    buf_puts(h, "\"\r\n");
}

/* The tag of the list's next element, without its W/, and what follows it; *list moves past the element. */
static const char *next_tag(const char **list, bool *weak)
{
    const char *tag = *list + strspn(*list, " \t,"), *end;

    *weak = strncmp(tag, "W/", 2) == 0;
    if (*weak)
        tag += 2;
    end = tag;
    if (*end == '"')
        end += strcspn(end + 1, "\"") + 1;
    *list = end + strcspn(end, ",");
    return tag;
}

static bool is_tag(const char *text, const char *tag)
{
    size_t len = strlen(tag);

    return strncmp(text, tag, len) == 0 && strchr(" \t,", text[len]);
}

/* Look for a tag in a list. Weak tags count only if `weak`. */
static bool has_tag(const char *list, const char *tag, bool weak)
{
    while (*list) {
        bool is_weak;
        const char *next = next_tag(&list, &is_weak);

        if (is_tag(next, tag) && (weak || !is_weak))
            return true;
    }
    return false;
}

static void tag_of(int64_t version, char tag[32])
{
    struct buf b = BUF_INIT;

    buf_putc(&b, '"');
    buf_int(&b, version);
    buf_putc(&b, '"');
    memcpy(tag, b.data, b.len + 1);
    buf_free(&b);
}

static bool is_any(const char *header)
{
    header += strspn(header, " \t");
    return *header == '*' && header[1 + strspn(header + 1, " \t")] == '\0';
}

bool if_match_passes(const char *header, int64_t version, bool *any)
{
    char tag[32];

    *any = is_any(header);
    tag_of(version, tag);
    return *any || has_tag(header, tag, false);
}

const int64_t *if_match_versions(const char *header, struct arena *a, size_t *count)
{
    int64_t *versions;
    char tag[32];

    *count = 0;
    if (is_any(header))
        return NULL;
    versions = arena_array(a, strlen(header) / 3 + 1, sizeof *versions); /* our tags have at least three characters */
    while (*header) {
        bool weak;
        const char *next = next_tag(&header, &weak);
        int64_t version = *next == '"' ? strtoll(next + 1, NULL, 10) : 0;

        tag_of(version, tag);
        if (is_tag(next, tag) && !weak)
            versions[(*count)++] = version;
    }
    return versions;
}

bool reply_not_modified(struct request *r, int64_t version)
{
    const char *header = r->header.if_none_match;
    char tag[32];

    if (!header)
        return false;
    tag_of(version, tag);
    header += strspn(header, " \t");
    if (*header != '*' && !has_tag(header, tag, true))
        return false;
    reply_etag(r, version);
    reply_empty(r, 304);
    return true;
}
