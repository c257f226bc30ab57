/* What headers of requests are made of, in JSON and in MSGPACK, as far as they are usual.
 *
 * As strict as it can be: no blanks, no escapes, only ASCII. The rest is for Python.
 */

#ifndef TANDEM_NATIVE_HEADERS_H
#define TANDEM_NATIVE_HEADERS_H

#include "native.h"

enum { JSON = 0, MSGPACK = 77 };
enum { TOPIC_BYTES_MAX = 127, HEADER_BYTES_MAX = 8192, FRAME_HEAD_BYTES = 8 };

struct cursor {
    const u8 *at, *end;
};

/* Takes the fields of a request with this code, all of them; false if they are not usual. */
typedef int take_fields(struct cursor *c, i64 code, void *into);

/* Reads a header that fills `c`: of a request that is answered, with an opaque and no flag. */
int tandem_take_header(i64 encoding, struct cursor c, take_fields *json, take_fields *packed,
                       void *into, i64 *opaque);

static inline int is(struct text text, const char *word) {
    return text.size == (i64)strlen(word) && !memcmp(text.at, word, (size_t)text.size);
}

static inline int is_same(struct text one, struct text other) {
    return one.size == other.size && !memcmp(one.at, other.at, (size_t)one.size);
}

/* -- JSON, as far as it is usual --------------------------------------------------------------- */

static inline int take(struct cursor *c, u8 mark) {
    if (c->at == c->end || *c->at != mark) return 0;
    c->at++;
    return 1;
}

static inline int is_plain(u8 byte) { return byte >= 0x20 && byte < 0x7F; }

/* A string without escapes. */
static inline int take_text(struct cursor *c, struct text *text) {
    if (!take(c, '"')) return 0;
    const u8 *start = c->at;
    while (c->at < c->end && *c->at != '"') {
        if (!is_plain(*c->at) || *c->at == '\\') return 0;
        c->at++;
    }
    *text = (struct text){start, c->at - start};
    return take(c, '"');
}

/* Digits and signs in a row; whether they are a number is for `number_of`. */
static inline struct text take_digits(struct cursor *c) {
    const u8 *start = c->at;
    while (c->at < c->end && (*c->at == '-' || (*c->at >= '0' && *c->at <= '9'))) c->at++;
    return (struct text){start, c->at - start};
}

/* A field's value: in quotes, but for numbers, which the client in C++ writes without. */
static inline int take_value(struct cursor *c, int is_number, struct text *value) {
    if (!is_number || c->at == c->end || *c->at == '"') return take_text(c, value);
    *value = take_digits(c);
    return 1;
}

/* Digits as Python writes them. */
static inline int number_of(struct text text, i64 least, i64 most, i64 *value) {
    int is_negative = text.size > 0 && text.at[0] == '-';
    text.at += is_negative;
    text.size -= is_negative;
    if (text.size < 1 || text.size > 18) return 0;
    if (text.at[0] == '0' && (text.size > 1 || is_negative)) return 0;
    i64 found = 0;
    for (i64 n = 0; n < text.size; n++) {
        if (text.at[n] < '0' || text.at[n] > '9') return 0;
        found = found * 10 + (text.at[n] - '0');
    }
    *value = is_negative ? -found : found;
    return *value >= least && *value <= most;
}

static inline int int32_of(struct text text, i64 *value) {
    return number_of(text, INT32_MIN, INT32_MAX, value);
}

static inline int take_number(struct cursor *c, i64 *value) {
    return int32_of(take_digits(c), value);
}

/* -- MSGPACK, as far as it is usual ------------------------------------------------------------ */

/* A number of `bytes` bytes; false unless they are there. */
static inline int take_bytes(struct cursor *c, int bytes, i64 *value) {
    u64 found = 0;
    if (c->end - c->at < bytes) return 0;
    while (bytes--) found = found << 8 | *c->at++;
    *value = (i64)found;
    return 1;
}

static inline int take_packed(struct cursor *c, i64 least, i64 most, i64 *value) {
    i64 kind;
    if (!take_bytes(c, 1, &kind)) return 0;
    if (kind < 0x80 || kind >= 0xE0) {
        *value = kind < 0x80 ? kind : (signed char)kind;
    } else {
        /* 0xCC to 0xCF and 0xD0 to 0xD3: 1, 2, 4 or 8 bytes, without a sign and with one. */
        int bytes = 1 << (kind & 3), is_signed = kind >= 0xD0;
        if (kind < 0xCC || kind > 0xD3 || !take_bytes(c, bytes, value)) return 0;
        if (is_signed) *value = (i64)((u64)*value << (64 - 8 * bytes)) >> (64 - 8 * bytes);
        if (!is_signed && *value < 0) return 0;
    }
    return *value >= least && *value <= most;
}

static inline int take_packed_text(struct cursor *c, struct text *text) {
    i64 kind, size;
    if (!take_bytes(c, 1, &kind)) return 0;
    if (kind >= 0xA0 && kind < 0xC0) size = kind & 31;
    else if ((kind != 0xD9 && kind != 0xDA) || !take_bytes(c, kind == 0xD9 ? 1 : 2, &size)) return 0;
    if (c->end - c->at < size) return 0;
    *text = (struct text){c->at, size};
    c->at += size;
    return 1;
}

static inline int are_plain(struct text text) {
    for (i64 n = 0; n < text.size; n++)
        if (!is_plain(text.at[n])) return 0;
    return 1;
}

/* -- what answers are made of ------------------------------------------------------------------ */

struct part {
    const u8 *at;
    i64 size;
};

static inline u8 *put_part(u8 *at, struct part part) {
    memcpy(at, part.at, (size_t)part.size);
    return at + part.size;
}

static inline u8 *put_decimal(u8 *at, i64 value) {
    u8 digits[20];
    int count = 0;
    u64 left = value < 0 ? 0 - (u64)value : (u64)value;
    do digits[count++] = (u8)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *at++ = '-';
    while (count) *at++ = digits[--count];
    return at;
}

static inline u8 *put_hex(u8 *at, i64 value) {
    for (int bits = 60; bits >= 0; bits -= 4) *at++ = (u8)"0123456789ABCDEF"[value >> bits & 15];
    return at;
}

/* A number that is not below 0, in the fewest bytes. */
static inline u8 *put_packed(u8 *at, i64 value) {
    int bytes = value > UINT32_MAX ? 8 : value > 0xFFFF ? 4 : value > 0xFF ? 2 : 1;
    if (value > 0x7F) *at++ = (u8)(bytes == 8 ? 0xCF : bytes == 4 ? 0xCE : bytes == 2 ? 0xCD : 0xCC);
    while (bytes--) *at++ = (u8)(value >> 8 * bytes);
    return at;
}

#endif
