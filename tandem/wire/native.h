/* What all loops in C share: numbers, pieces of properties, tags codes.
 *
 * The formats are big-endian, the machine is little-endian: native.py sees to it.
 */

#ifndef TANDEM_NATIVE_H
#define TANDEM_NATIVE_H

#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;

/* -- numbers ---------------------------------------------------------------------------------- */

static inline u32 get32(const u8 *at) {
    u32 value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline i64 get64(const u8 *at) {
    u64 value;
    memcpy(&value, at, 8);
    return (i64)__builtin_bswap64(value);
}

static inline i64 int16_at(const u8 *at) { return (int16_t)(at[0] << 8 | at[1]); }

static inline i64 int32_at(const u8 *at) { return (i32)get32(at); }

static inline void put32(u8 *at, u32 value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void put64(u8 *at, i64 value) {
    u64 bits = __builtin_bswap64((u64)value);
    memcpy(at, &bits, 8);
}

/* Of zip, the one of crc.py. */
u32 tandem_crc32(const u8 *data, i64 size);

/* -- properties: message_properties.py --------------------------------------------------------- */

struct text {
    const u8 *at;
    i64 size;
};

static inline struct text first_until(struct text in, u8 mark) {
    const u8 *found = in.size ? memchr(in.at, mark, (size_t)in.size) : NULL;
    return (struct text){in.at, found ? found - in.at : in.size};
}

/* The next piece of properties in front of a 0x02, or all the rest; false if nothing is left. */
static inline int next_piece(struct text *left, struct text *piece) {
    if (left->size <= 0) return 0;
    *piece = first_until(*left, 2);
    i64 taken = piece->size + 1;
    left->at += taken;
    left->size -= taken;
    return 1;
}

/* Narrows a piece to its value if it is the property called `name` and has a value. */
static inline int is_named(struct text *piece, const char *name, i64 name_size) {
    if (piece->size < name_size + 2 || piece->at[name_size] != 1) return 0;
    if (memcmp(piece->at, name, (size_t)name_size)) return 0;
    piece->at += name_size + 1;
    piece->size -= name_size + 1;
    return 1;
}

/* Java's String.hashCode, from `hash` on; false if there is anything but ASCII. */
static inline int hash_ascii(struct text text, u32 *hash) {
    u32 value = *hash;
    u8 all = 0;
    for (i64 n = 0; n < text.size; n++) {
        all |= text.at[n];
        value = value * 31 + text.at[n];
    }
    *hash = value;
    return all < 0x80;
}

static inline int tags_code(struct text properties, i64 *code) {
    struct text piece, tags = {NULL, 0};
    while (next_piece(&properties, &piece))
        if (is_named(&piece, "TAGS", 4)) tags = piece;
    u32 hash = 0;
    int known = hash_ascii(tags, &hash);
    *code = (i32)hash;
    return known;
}

#endif
