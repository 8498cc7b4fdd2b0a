/*
 * unit/canonical.h -- is a text JSON in the form of RFC 8785, as far as this project writes it: no white space, members
 * sorted by bytes and unique, integers in decimal within 2^53. A reader of its own, so that it shares no mistake with the writers.
 */
#ifndef UNIT_CANONICAL_H
#define UNIT_CANONICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool canonical_value(const char **p);

static inline bool canonical_string(const char **p, const char **start, size_t *len)
{
    const char *s = *p;

    if (*s++ != '"')
        return false;
    *start = s;
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20)
            return false;
        if (*s == '\\' && !strchr("\"\\bfnrtu", *++s))
            return false;
    }
    *len = (size_t)(s - *start);
    *p = s + 1;
    return true;
}

static inline bool canonical_int(const char **p)
{
    const char *s = *p + (**p == '-');
    size_t digits = strspn(s, "0123456789");
    bool fine = digits > 0 && (digits == 1 || *s != '0') && !(**p == '-' && *s == '0');

    *p = s + digits;
    return fine && (digits < 16 || (digits == 16 && strncmp(s, "9007199254740991", 16) <= 0));
}

static inline bool canonical_members(const char **p)
{
    const char *last = NULL, *name = NULL;
    size_t last_len = 0, len = 0;

    for ((*p)++; **p != '}'; last = name, last_len = len) {
        if (last && *(*p)++ != ',')
            return false;
        if (!canonical_string(p, &name, &len) || *(*p)++ != ':')
            return false;
        if (last) {
            int order = memcmp(last, name, last_len < len ? last_len : len);

            if (order > 0 || (order == 0 && last_len >= len))
                return false;
        }
        if (!canonical_value(p))
            return false;
    }
    (*p)++;
    return true;
}

static inline bool canonical_items(const char **p)
{
    for ((*p)++; **p != ']';) {
        if (!canonical_value(p))
            return false;
        if (**p == ',' && (*p)[1] != ']')
            (*p)++;
        else if (**p != ']')
            return false;
    }
    (*p)++;
    return true;
}

static bool canonical_value(const char **p)
{
    static const char *const words[] = {"null", "true", "false"};
    const char *start;
    size_t len;

    for (size_t i = 0; i < 3; i++)
        if (strncmp(*p, words[i], strlen(words[i])) == 0) {
            *p += strlen(words[i]);
            return true;
        }
    return **p == '{' ? canonical_members(p) : **p == '[' ? canonical_items(p)
         : **p == '"' ? canonical_string(p, &start, &len) : canonical_int(p);
}

static inline bool is_canonical(const char *text)
{
    return canonical_value(&text) && *text == '\0';
}

#endif
