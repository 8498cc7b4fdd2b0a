/*
 * fuzz/fuzz.h -- what the fuzz targets share. A target is fuzz_NAME.c with LLVMFuzzerTestOneInput(); it reads bytes as the
 * service would, and requires what must hold of every answer: not only that nothing crashes.
 *
 * Programs  each target twice: with libFuzzer (scripts/fuzz, `make fuzz`), and with replay.c, which runs it over the files in
 *           seeds/NAME and regressions/NAME, with any compiler (`make fuzz-replay`)
 * Adding    a target: the file, and at least one seed
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort, saying what did not hold: a finding. REQUIRE_OR says more, by a printf format and its arguments. */
#define REQUIRE(condition) REQUIRE_OR(condition, "%s", "")
#define REQUIRE_OR(condition, ...) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
_Noreturn void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* What is left of an input. */
struct input {
    const uint8_t *at;
    size_t left;
};

/* The next byte; 0 at the end. */
uint8_t input_byte(struct input *in);
/* The next bytes, at most 8, as a number; missing ones are 0. */
int64_t input_number(struct input *in, int bytes);
/* Everything up to the next byte `end`, which is passed over, or what is left. As bytes of their own, so that reading past them
 * is seen, and without a NUL. The caller frees it. */
char *input_bytes(struct input *in, int end, size_t *len);
/* The same for all that is left. */
char *input_rest(struct input *in, size_t *len);
/* As a text, cut at its first NUL. The caller frees it. */
char *input_text(struct input *in, int end);

/* Abort unless text is one JSON value. */
void require_json(const char *text, size_t len);

#endif
