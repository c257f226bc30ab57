/* The loops that a message costs most, in C: records found and checked, keys hashed, index units
 * entered, batches split.
 *
 * Everything here is done in Python too, by the modules that native.py names, with the same result
 * to the byte. Nothing is decided here: what is not as usual ends a loop, and Python looks at it.
 * Bytes come from disks, masters and clients. So no length is believed before it was compared with
 * what is left, in 64 bits, and no function writes more than it was given room for.
 *
 * No function allocates, keeps a pointer, or calls back.
 */

#include "native.h"

/* -- CRC-32 of zip, the one of crc.py ---------------------------------------------------------- */

static u32 crc_table[8][256];
static int has_clmul;

__attribute__((constructor)) static void fill_tables(void) {
    for (u32 n = 0; n < 256; n++) {
        u32 crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_table[0][n] = crc;
    }
    for (u32 n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 0xFF];
#if defined(__x86_64__)
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static u32 crc_by_tables(u32 crc, const u8 *at, i64 left) {
    for (; left >= 8; at += 8, left -= 8) {
        u64 word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++) crc ^= crc_table[7 - k][word >> 8 * k & 0xFF];
    }
    for (; left > 0; at++, left--) crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Folds 64 bytes at a time by carry-less multiplication. The constants are powers of x modulo the
 * polynomial, bit-reflected. Source: V. Gopal and others, "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel, 2009. */
#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static __m128i folded(__m128i value, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(value, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(value, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLDING static u32 crc_by_folding(u32 crc, const u8 *at, i64 left) {
    const __m128i by_64_bytes = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
    const __m128i by_16_bytes = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const __m128i by_8_bytes = _mm_set_epi64x(0, 0x0163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    const __m128i *block = (const __m128i *)at;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(block), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(block + 1);
    __m128i c = _mm_loadu_si128(block + 2);
    __m128i d = _mm_loadu_si128(block + 3);
    for (block += 4, left -= 64; left >= 64; block += 4, left -= 64) {
        a = folded(a, by_64_bytes, _mm_loadu_si128(block));
        b = folded(b, by_64_bytes, _mm_loadu_si128(block + 1));
        c = folded(c, by_64_bytes, _mm_loadu_si128(block + 2));
        d = folded(d, by_64_bytes, _mm_loadu_si128(block + 3));
    }
    a = folded(a, by_16_bytes, b);
    a = folded(a, by_16_bytes, c);
    a = folded(a, by_16_bytes, d);
    for (; left >= 16; block++, left -= 16) a = folded(a, by_16_bytes, _mm_loadu_si128(block));
    /* 128 bits to 64, to 32. */
    b = _mm_clmulepi64_si128(a, by_16_bytes, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
    b = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_words), by_8_bytes, 0x00), b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), barrett, 0x00);
    crc = (u32)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
    return crc_by_tables(crc, (const u8 *)block, left);
}
#endif

u32 tandem_crc32(const u8 *data, i64 size) {
#if defined(__x86_64__)
    if (has_clmul && size >= 64) return ~crc_by_folding(~0u, data, size);
#endif
    return ~crc_by_tables(~0u, data, size);
}

/* -- records: record_rule.py and record_scan.py ------------------------------------------------ */

enum {
    RECORD_BYTES_MIN = 91,
    BODY_AT = 88,
    V6_MORE_BYTES = 12,
    BORN_HOST_V6 = 1 << 4,
    STORE_HOST_V6 = 1 << 5,
    COLUMNS = 20
};
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

struct record {
    i64 size, magic, sys_flag, hosts_bytes, store_time_at;
    i64 body_start, body_size, topic_start, topic_size, properties_start, properties_size;
};

/* Fills in where the parts of the record at `at` are; false unless it is a whole sound one. */
static int is_sound(const u8 *data, i64 at, i64 end, i64 base, int check_crc, i64 size_max,
                    struct record *r) {
    if (end - at < RECORD_BYTES_MIN) return 0;
    const u8 *head = data + at;
    u32 magic = get32(head + 4);
    i64 size = get32(head), is_v2 = magic == MAGIC_V2;
    if ((magic != MAGIC_V1 && !is_v2) || size < RECORD_BYTES_MIN || size > size_max) return 0;
    if (size > end - at || get64(head + 28) != base + at) return 0;
    i64 stop = at + size, flag = int32_at(head + 36);
    i64 born_bytes = flag & BORN_HOST_V6 ? V6_MORE_BYTES : 0;
    i64 hosts_bytes = born_bytes + (flag & STORE_HOST_V6 ? V6_MORE_BYTES : 0);
    i64 body_start = at + BODY_AT + hosts_bytes;
    if (body_start + 3 > stop) return 0;
    i64 body_size = int32_at(data + body_start - 4);
    if (body_size < 0 || body_size > stop - body_start - 3 - is_v2) return 0;
    i64 topic_start = body_start + body_size + 1 + is_v2;
    i64 topic_size = is_v2 ? int16_at(data + topic_start - 2) : (int8_t)data[topic_start - 1];
    if (topic_size < 0 || topic_size > stop - topic_start - 2) return 0;
    i64 properties_start = topic_start + topic_size + 2;
    i64 properties_size = int16_at(data + properties_start - 2);
    if (properties_size < 0 || properties_start + properties_size != stop) return 0;
    if (check_crc && body_size &&
        (tandem_crc32(data + body_start, body_size) & 0x7FFFFFFF) != get32(head + 8))
        return 0;
    *r = (struct record){size,       magic,       flag,       hosts_bytes,      at + 56 + born_bytes,
                         body_start, body_size,   topic_start, topic_size,
                         properties_start, properties_size};
    return 1;
}

/* Goes through sound records of data[start:end], up to the first that is not one, or `rows_max`.
 * Returns how many they are. `columns` has COLUMNS columns of `rows_max` numbers, in the order of
 * RecordColumns; or it is null. `where` gets the start of the last record and where it ends. */
i64 tandem_scan(const u8 *data, i64 start, i64 end, i64 base, i64 check_crc, i64 size_max,
                i64 rows_max, i64 *columns, i64 where[2]) {
    i64 at = start, count = 0;
    struct record r;
    where[0] = -1;
    while (count < rows_max && is_sound(data, at, end, base, check_crc != 0, size_max, &r)) {
        if (columns) {
            const u8 *head = data + at, *tail = head + 72 + r.hosts_bytes;
            i64 row[COLUMNS] = {
                at, r.size, r.magic, int32_at(head + 8), int32_at(head + 12), int32_at(head + 16),
                get64(head + 20), get64(head + 28), r.sys_flag, get64(head + 40),
                get64(data + r.store_time_at), r.store_time_at + 8, int32_at(tail),
                get64(tail + 4), r.body_start, r.body_size, r.topic_start, r.topic_size,
                r.properties_start, r.properties_size};
            for (int n = 0; n < COLUMNS; n++) columns[n * rows_max + count] = row[n];
        }
        where[0] = at;
        at += r.size;
        count++;
    }
    where[1] = at;
    return count;
}

/* -- properties: message_properties.py --------------------------------------------------------- */

static int is_within(i64 start, i64 size, i64 bytes) {
    return start >= 0 && size >= 0 && size <= bytes && start <= bytes - size;
}

/* The tags code of each property string in data[:bytes]; returns how many, up to the first that is
 * not ASCII. */
i64 tandem_tags_codes(const u8 *data, i64 bytes, const i64 *starts, const i64 *sizes, i64 count,
                      i64 *codes) {
    for (i64 n = 0; n < count; n++) {
        if (!is_within(starts[n], sizes[n], bytes)) return n;
        if (!tags_code((struct text){data + starts[n], sizes[n]}, codes + n)) return n;
    }
    return count;
}

/* Numbers equal values, in the order in which they come; `firsts` gets where each is first. Returns
 * how many there are, -1 if they are more than `values_max` or not all within data[:bytes]. */
i64 tandem_distinct_values(const u8 *data, i64 bytes, const i64 *starts, const i64 *sizes,
                           i64 count, i64 values_max, i64 *firsts, i64 *numbers) {
    i64 values = 0, same = 0;
    for (i64 n = 0; n < count; n++) {
        if (!is_within(starts[n], sizes[n], bytes)) return -1;
        /* Most are as the one before. */
        for (i64 looked = 0; looked < values; looked++, same = same + 1 < values ? same + 1 : 0) {
            i64 first = firsts[same];
            if (sizes[first] == sizes[n] &&
                !memcmp(data + starts[first], data + starts[n], (size_t)sizes[n]))
                goto found;
        }
        if (values == values_max) return -1;
        same = values;
        firsts[values++] = n;
    found:
        numbers[n] = same;
    }
    return values;
}

/* -- keys: record_keys.py ---------------------------------------------------------------------- */

static i64 index_hash(u32 hash) {
    i64 value = (i32)hash;
    value = value < 0 ? -value : value;
    return value > INT32_MAX ? 0 : value;
}

/* Hashes the keys of records, each with its topic: first UNIQ_KEY, then KEYS. Returns how many
 * records were done, up to the first that is not ASCII, or that has more keys than there is room
 * for. `keys` gets how many keys that made. */
i64 tandem_hash_keys(const u8 *data, i64 bytes, const i64 *topic_starts, const i64 *topic_sizes,
                     const i64 *starts, const i64 *sizes, i64 count, i64 room, i64 *rows,
                     i64 *hashes, i64 *keys) {
    i64 done = 0, row = 0;
    for (; row < count; row++) {
        if (!is_within(topic_starts[row], topic_sizes[row], bytes)) break;
        if (!is_within(starts[row], sizes[row], bytes)) break;
        struct text left = {data + starts[row], sizes[row]}, piece, unique = {NULL, 0}, own = unique;
        while (next_piece(&left, &piece)) {
            if (is_named(&piece, "UNIQ_KEY", 8)) unique = piece;
            else if (is_named(&piece, "KEYS", 4)) own = piece;
        }
        u32 prefix = 0;
        if (!hash_ascii((struct text){data + topic_starts[row], topic_sizes[row]}, &prefix)) break;
        prefix = prefix * 31 + '#';
        i64 found = done;
        u32 hash = prefix;
        if (unique.size) {
            if (found >= room || !hash_ascii(unique, &hash)) break;
            rows[found] = row;
            hashes[found++] = index_hash(hash);
        }
        while (own.size > 0) {
            struct text key = first_until(own, ' ');
            own.at += key.size + 1;
            own.size -= key.size + 1;
            if (!key.size) continue;
            hash = prefix;
            if (found >= room || !hash_ascii(key, &hash)) goto end;
            rows[found] = row;
            hashes[found++] = index_hash(hash);
        }
        done = found;
    }
end:
    *keys = done;
    return row;
}

/* -- index: index_file.py ---------------------------------------------------------------------- */

enum { INDEX_HEADER_BYTES = 40, INDEX_SLOT_BYTES = 4, INDEX_UNIT_BYTES = 20 };

/* Enters keys in an index file, from unit `number` on; there is room for all. `begin_ms` is the
 * beginning of the file. Returns how many slots were empty. */
i64 tandem_index_put(u8 *file, i64 slots, i64 number, i64 begin_ms, const i64 *hashes,
                     const i64 *offsets, const i64 *times_ms, i64 count) {
    u8 *units = file + INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES;
    i64 taken = 0;
    for (i64 n = 0; n < count; n++, number++) {
        i64 place = hashes[n] % slots;
        u8 *slot = file + INDEX_HEADER_BYTES + (place < 0 ? place + slots : place) * INDEX_SLOT_BYTES;
        u8 *unit = units + number * INDEX_UNIT_BYTES;
        i64 before = int32_at(slot), seconds = 0;
        if (before < 0 || before > number) before = 0;
        if (begin_ms > 0 && times_ms[n] > begin_ms) seconds = (times_ms[n] - begin_ms) / 1000;
        if (seconds > INT32_MAX) seconds = INT32_MAX;
        put32(unit, (u32)hashes[n]);
        put64(unit + 4, offsets[n]);
        put32(unit + 12, (u32)seconds);
        put32(unit + 16, (u32)before);
        put32(slot, (u32)number);
        taken += !before;
        if (number == 1) begin_ms = times_ms[n];
    }
    return taken;
}

/* -- batches: MessageEncoder.encode_batch ------------------------------------------------------ */

enum { ENTRY_HEAD_BYTES = 20, RECORD_HEAD_BYTES = 36, TORN_BYTES_MIN = 512 };

struct batch {
    const u8 *body;
    i64 body_bytes;
    const u8 *shared; /* properties of the batch */
    i64 shared_bytes;
    const u8 *middle; /* SYSFLAG to PREPARED TRANSACTION OFFSET */
    i64 middle_bytes;
    const u8 *topic; /* with its length */
    i64 topic_bytes;
    i64 magic, queue_id, queue_offset, offset;
};

/* Returns how many entries a batch has and sets the bytes of their records; -1 if one of them is
 * not usual: lengths that lead out, properties that look torn or do not end in a separator. */
i64 tandem_batch_size(const struct batch *b, i64 *bytes) {
    i64 at = 0, count = 0, all = 0;
    int shares = b->shared_bytes > 0;
    if (shares && !b->shared[b->shared_bytes - 1]) return -1;
    while (at < b->body_bytes) {
        if (b->body_bytes - at < ENTRY_HEAD_BYTES) return -1;
        i64 body = int32_at(b->body + at + 16);
        i64 left = b->body_bytes - at - ENTRY_HEAD_BYTES;
        if (body < 0 || body > left - 2) return -1;
        const u8 *tail = b->body + at + ENTRY_HEAD_BYTES + body;
        i64 own = int16_at(tail);
        if (own < 0 || own > left - body - 2) return -1;
        if (own + b->shared_bytes >= TORN_BYTES_MIN - 2) return -1;
        if (own && !tail[1 + own]) return -1;
        if (shares && (!own || tail[1 + own] != 2)) return -1;
        at += ENTRY_HEAD_BYTES + body + 2 + own;
        all += RECORD_HEAD_BYTES + b->middle_bytes + 4 + body + b->topic_bytes + 2 + own +
               b->shared_bytes;
        count++;
    }
    *bytes = all;
    return count;
}

static u8 *put_bytes(u8 *at, const u8 *bytes, i64 size) {
    if (size) memcpy(at, bytes, (size_t)size);
    return at + size;
}

/* Writes the records of a batch that tandem_batch_size has been through, and for each of them
 * offset, size and tags code. False if tags are not ASCII. */
i64 tandem_split_batch(const struct batch *b, u8 *out, i64 *units) {
    const u8 *entry = b->body, *end = b->body + b->body_bytes;
    i64 queue_offset = b->queue_offset, offset = b->offset;
    while (entry < end) {
        i64 body = int32_at(entry + 16);
        const u8 *tail = entry + ENTRY_HEAD_BYTES + body;
        i64 own = int16_at(tail), properties = own + b->shared_bytes;
        u8 *at = out;
        put32(at + 4, (u32)b->magic);
        put32(at + 8, tandem_crc32(entry + ENTRY_HEAD_BYTES, body) & 0x7FFFFFFF);
        put32(at + 12, (u32)b->queue_id);
        memcpy(at + 16, entry + 12, 4);
        put64(at + 20, queue_offset);
        put64(at + 28, offset);
        at = put_bytes(at + RECORD_HEAD_BYTES, b->middle, b->middle_bytes);
        at = put_bytes(at, entry + 16, 4 + body);
        at = put_bytes(at, b->topic, b->topic_bytes);
        *at++ = (u8)(properties >> 8);
        *at++ = (u8)properties;
        at = put_bytes(at, tail + 2, own);
        at = put_bytes(at, b->shared, b->shared_bytes);
        i64 size = at - out;
        put32(out, (u32)size);
        units[0] = offset;
        units[1] = size;
        if (!tags_code((struct text){at - properties, properties}, units + 2)) return 0;
        units += 3;
        queue_offset++;
        offset += size;
        out = at;
        entry = tail + 2 + own;
    }
    return 1;
}

/* -- whose library this is --------------------------------------------------------------------- */

#ifndef SOURCE_CRC32
#define SOURCE_CRC32 0
#endif
const u32 tandem_source_crc32 = SOURCE_CRC32;
