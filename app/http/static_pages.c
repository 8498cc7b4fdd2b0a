/* http/static_pages.c -- see static_pages.h. */
#include "http/static_pages.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "http/problem_advice.h"

static void put_html(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            buf_puts(out, "&lt;");
        else if (*text == '&')
            buf_puts(out, "&amp;");
        else
            buf_putc(out, *text);
    }
}

void problem_page_write(struct buf *out, enum cpn_result result)
{
    const struct result_info *info = result_info(result);

    buf_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<title>");
    put_html(out, info->title);
    buf_puts(out, "</title>\n</head>\n<body>\n<h1>");
    put_html(out, info->title);
    buf_puts(out, "</h1>\n<p><code>");
    put_html(out, info->name);
    buf_printf(out, "</code>, HTTP status %d</p>\n<p>", info->status);
    put_html(out, info->explanation);
    buf_puts(out, "</p>\n<h2>What to do</h2>\n<p>");
    put_html(out, advice_of(result));
    buf_puts(out, "</p>\n<p>");
    buf_puts(out, info->retry ? "The same request may succeed later." : "The same request will not succeed later, unless the "
                                                                       "answer's member <code>retry</code> says so.");
    buf_puts(out, "</p>\n</body>\n</html>\n");
}

static bool write_file(const char *dir, const char *name, const struct buf *text)
{
    struct buf path = BUF_INIT;
    FILE *file;
    bool written;

    buf_printf(&path, "%s/%s", dir, name);
    file = fopen(path.data, "we");
    buf_free(&path);
    if (!file)
        return false;
    written = fwrite(text->data, 1, text->len, file) == text->len;
    return fclose(file) == 0 && written;
}

bool pages_write(const char *dir)
{
    struct buf path = BUF_INIT, text = BUF_INIT;
    bool fine;

    buf_printf(&path, "%s/problems", dir);
    fine = mkdir(path.data, 0777) == 0 || errno == EEXIST;
    for (int i = CPN_OK + 1; fine && i < CPN_RESULT_COUNT; i++) {
        buf_clear(&path);
        buf_printf(&path, "problems/%s.html", result_info((enum cpn_result)i)->name);
        buf_clear(&text);
        problem_page_write(&text, (enum cpn_result)i);
        fine = write_file(dir, path.data, &text);
    }
    buf_free(&path);
    buf_free(&text);
    return fine;
}
