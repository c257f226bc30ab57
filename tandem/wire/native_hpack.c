/* Header blocks of HTTP/2: node/grpc/header_blocks.py.
 *
 * A block is read as a whole or not at all: after an error the table means nothing any more. What
 * is read are names and values, each with a zero after it: a field that has one itself is none of a
 * request.
 *
 * Source: RFC 7541; RFC 9113, 8.2 and 8.3.
 */

#include "native.h"

enum {
    TABLE_BYTES_MAX = 4096,
    PAIR_BYTES = 32,
    ENTRIES_MAX = TABLE_BYTES_MAX / PAIR_BYTES,
    TEXT_ROOM = 6144,
    LIST_BYTES_MAX = 16 * 1024,
    STATIC_COUNT = 61,
    NUMBER_BYTES_MAX = 5,
    HUFFMAN_ROWS = 21,
    END_OF_STRING = 256
};

enum { BROKEN = -1, NO_REQUEST = -2 };

/* An entry of the dynamic table: where its name is in `text`; its value comes after that. */
struct entry {
    i32 at, name_bytes, value_bytes;
};

/* Of one connection; all zero at the beginning, but for `most_bytes`. The oldest entry is the first
 * in `text`, and entries are in a ring. */
struct hpack {
    i32 most_bytes, used_bytes; /* as RFC 7541, 4.1, counts them */
    i32 oldest, count;
    i32 text_end, unused;
    struct entry entries[ENTRIES_MAX];
    u8 text[TEXT_ROOM];
};

static const struct {
    const char *name, *value;
} fixed[STATIC_COUNT] = {
    {":authority", ""},
    {":method", "GET"},
    {":method", "POST"},
    {":path", "/"},
    {":path", "/index.html"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":status", "200"},
    {":status", "204"},
    {":status", "206"},
    {":status", "304"},
    {":status", "400"},
    {":status", "404"},
    {":status", "500"},
    {"accept-charset", ""},
    {"accept-encoding", "gzip, deflate"},
    {"accept-language", ""},
    {"accept-ranges", ""},
    {"accept", ""},
    {"access-control-allow-origin", ""},
    {"age", ""},
    {"allow", ""},
    {"authorization", ""},
    {"cache-control", ""},
    {"content-disposition", ""},
    {"content-encoding", ""},
    {"content-language", ""},
    {"content-length", ""},
    {"content-location", ""},
    {"content-range", ""},
    {"content-type", ""},
    {"cookie", ""},
    {"date", ""},
    {"etag", ""},
    {"expect", ""},
    {"expires", ""},
    {"from", ""},
    {"host", ""},
    {"if-match", ""},
    {"if-modified-since", ""},
    {"if-none-match", ""},
    {"if-range", ""},
    {"if-unmodified-since", ""},
    {"last-modified", ""},
    {"link", ""},
    {"location", ""},
    {"max-forwards", ""},
    {"proxy-authenticate", ""},
    {"proxy-authorization", ""},
    {"range", ""},
    {"referer", ""},
    {"refresh", ""},
    {"retry-after", ""},
    {"server", ""},
    {"set-cookie", ""},
    {"strict-transport-security", ""},
    {"transfer-encoding", ""},
    {"user-agent", ""},
    {"vary", ""},
    {"via", ""},
    {"www-authenticate", ""},
};

/* RFC 7541, B: codes of one length follow each other, in the order of `symbols`. */
static const struct {
    u8 bits, count, at;
    u32 first;
} lengths[HUFFMAN_ROWS] = {
    {5, 10, 0, 0x0},           {6, 26, 10, 0x14},         {7, 32, 36, 0x5c},
    {8, 6, 68, 0xf8},          {10, 5, 74, 0x3f8},        {11, 3, 79, 0x7fa},
    {12, 2, 82, 0xffa},        {13, 6, 84, 0x1ff8},       {14, 2, 90, 0x3ffc},
    {15, 3, 92, 0x7ffc},       {19, 3, 95, 0x7fff0},      {20, 8, 98, 0xfffe6},
    {21, 13, 106, 0x1fffdc},   {22, 26, 119, 0x3fffd2},   {23, 29, 145, 0x7fffd8},
    {24, 12, 174, 0xffffea},   {25, 4, 186, 0x1ffffec},   {26, 15, 190, 0x3ffffe0},
    {27, 19, 205, 0x7ffffde},  {28, 29, 224, 0xfffffe2},  {30, 4, 253, 0x3ffffffc},
};
static const uint16_t symbols[257] = {
    48,  49,  50,  97,  99,  101, 105, 111, 115, 116, 32,  37,  45,  46,  47,  51,  52,  53,  54,
    55,  56,  57,  61,  65,  95,  98,  100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58,  66,
    67,  68,  69,  70,  71,  72,  73,  74,  75,  76,  77,  78,  79,  80,  81,  82,  83,  84,  85,
    86,  87,  89,  106, 107, 113, 118, 119, 120, 121, 122, 38,  42,  44,  59,  88,  90,  33,  34,
    40,  41,  63,  39,  43,  124, 35,  62,  0,   36,  64,  91,  93,  126, 94,  125, 60,  96,  123,
    92,  195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209,
    216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173,
    178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,   135, 137, 138, 139, 140, 141,
    143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191,
    197, 231, 239, 9,   142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237, 199, 207, 234, 235,
    192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255, 203, 204, 211, 212,
    214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254, 2,   3,   4,   5,
    6,   7,   8,   11,  12,  14,  15,  16,  17,  18,  19,  20,  21,  23,  24,  25,  26,  27,  28,
    29,  30,  31,  127, 220, 249, 10,  13,  22,  256};

/* -- the dynamic table ------------------------------------------------------------------------- */

static struct entry *entry_of(struct hpack *table, i32 place) {
    return &table->entries[(table->oldest + place) % ENTRIES_MAX];
}

static i32 counted(i32 name_bytes, i32 value_bytes) { return name_bytes + value_bytes + PAIR_BYTES; }

static void shrink(struct hpack *table, i32 bytes) {
    while (table->count && table->used_bytes > bytes) {
        struct entry *oldest = entry_of(table, 0);
        table->used_bytes -= counted(oldest->name_bytes, oldest->value_bytes);
        table->oldest = (table->oldest + 1) % ENTRIES_MAX;
        table->count--;
    }
}

/* Moves what is left to the beginning of `text`, in front of which nothing is. */
static void move_down(struct hpack *table) {
    if (!table->count) {
        table->text_end = 0;
        return;
    }
    i32 from = entry_of(table, 0)->at;
    memmove(table->text, table->text + from, (size_t)(table->text_end - from));
    for (i32 n = 0; n < table->count; n++) entry_of(table, n)->at -= from;
    table->text_end -= from;
}

static void add(struct hpack *table, struct text name, struct text value) {
    i32 name_bytes = (i32)name.size, value_bytes = (i32)value.size;
    i32 size = counted(name_bytes, value_bytes);
    shrink(table, size > table->most_bytes ? 0 : table->most_bytes - size);
    if (size > table->most_bytes) return;
    if (table->text_end + name_bytes + value_bytes > TEXT_ROOM) move_down(table);
    struct entry *entry = entry_of(table, table->count++);
    *entry = (struct entry){table->text_end, name_bytes, value_bytes};
    memcpy(table->text + table->text_end, name.at, (size_t)name_bytes);
    memcpy(table->text + table->text_end + name_bytes, value.at, (size_t)value_bytes);
    table->text_end += name_bytes + value_bytes;
    table->used_bytes += size;
}

/* -- what is read ------------------------------------------------------------------------------ */

struct reading {
    const u8 *at, *end;
    u8 *out, *out_end;
};

/* RFC 7541, 5.1; false: it is cut, or too long. */
static int number(struct reading *reading, u8 most, i64 *value) {
    if (reading->at == reading->end) return 0;
    *value = *reading->at++ & most;
    if (*value < most) return 1;
    for (int n = 0; n < NUMBER_BYTES_MAX && reading->at < reading->end; n++) {
        u8 byte = *reading->at++;
        *value += (i64)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) return 1;
    }
    return 0;
}

static int put(struct reading *reading, const u8 *at, i64 size) {
    if (size > reading->out_end - reading->out) return 0;
    memcpy(reading->out, at, (size_t)size);
    reading->out += size;
    return 1;
}

/* RFC 7541, 5.2: what is left after the last symbol is ones, and less than a byte. */
static int put_huffman(struct reading *reading, const u8 *at, i64 size) {
    const u8 *end = at + size;
    u64 window = 0; /* its first `bits` bits count */
    int bits = 0;
    for (;;) {
        for (; bits <= 56 && at < end; bits += 8) window |= (u64)*at++ << (56 - bits);
        int row = 0;
        u32 place = 0;
        for (; row < HUFFMAN_ROWS && lengths[row].bits <= bits; row++) {
            place = (u32)(window >> (64 - lengths[row].bits)) - lengths[row].first;
            if (place < lengths[row].count) break;
        }
        if (row == HUFFMAN_ROWS || lengths[row].bits > bits)
            return bits < 8 && (!bits || window >> (64 - bits) == (1u << bits) - 1);
        u32 symbol = symbols[lengths[row].at + place];
        if (symbol == END_OF_STRING || reading->out == reading->out_end) return 0;
        *reading->out++ = (u8)symbol;
        window <<= lengths[row].bits;
        bits -= lengths[row].bits;
    }
}

static int text(struct reading *reading, struct text *found) {
    i64 size;
    if (reading->at == reading->end) return 0;
    int is_short = *reading->at & 0x80;
    if (!number(reading, 0x7F, &size) || size > reading->end - reading->at) return 0;
    const u8 *from = reading->at;
    reading->at += size;
    found->at = reading->out;
    if (!(is_short ? put_huffman(reading, from, size) : put(reading, from, size))) return 0;
    found->size = reading->out - found->at;
    return 1;
}

static int indexed(struct hpack *table, i64 index, struct text *name, struct text *value) {
    if (index < 1 || index > STATIC_COUNT + table->count) return 0;
    if (index <= STATIC_COUNT) {
        const char *first = fixed[index - 1].name, *second = fixed[index - 1].value;
        *name = (struct text){(const u8 *)first, (i64)strlen(first)};
        *value = (struct text){(const u8 *)second, (i64)strlen(second)};
        return 1;
    }
    struct entry *entry = entry_of(table, table->count - (i32)(index - STATIC_COUNT));
    const u8 *at = table->text + entry->at;
    *name = (struct text){at, entry->name_bytes};
    *value = (struct text){at + entry->name_bytes, entry->value_bytes};
    return 1;
}

static int put_text(struct reading *reading, struct text *moved) {
    const u8 *out = reading->out;
    if (!put(reading, moved->at, moved->size)) return 0;
    moved->at = out;
    return 1;
}

/* Reads one field, and leaves name and value in what is put out. */
static int field(struct hpack *table, struct reading *reading, struct text *name,
                 struct text *value) {
    i64 index;
    u8 first = *reading->at;
    int is_indexed = first & 0x80, is_added = !is_indexed && first & 0x40;
    if (!number(reading, is_indexed ? 0x7F : is_added ? 0x3F : 0x0F, &index)) return 0;
    if (index || is_indexed) {
        if (!indexed(table, index, name, value) || !put_text(reading, name)) return 0;
    } else if (!text(reading, name)) {
        return 0;
    }
    if (!put(reading, (const u8 *)"", 1)) return 0;
    if (!(is_indexed ? put_text(reading, value) : text(reading, value))) return 0;
    if (is_added) add(table, *name, *value);
    return put(reading, (const u8 *)"", 1);
}

/* -- what a request is ------------------------------------------------------------------------- */

static int is_clean(struct text text, int is_name) {
    for (i64 n = 0; n < text.size; n++) {
        u8 byte = text.at[n];
        if (byte == 0 || byte == '\r' || byte == '\n') return 0;
        if (is_name && byte >= 'A' && byte <= 'Z') return 0;
    }
    return 1;
}

/* The number of a field that comes before all others, each once; -1: it is none. */
static int place_before(struct text name) {
    static const char *const known[] = {":method", ":path", ":scheme", ":authority"};
    for (int n = 0; n < 4; n++) {
        size_t size = strlen(known[n]);
        if (name.size == (i64)size && !memcmp(name.at, known[n], size)) return n;
    }
    return -1;
}

/* Reads a block of `size` bytes into `out`, which has room for twice LIST_BYTES_MAX. Returns how
 * many bytes were put out; BROKEN: the connection is over; NO_REQUEST: it is none. */
i64 tandem_read_headers(struct hpack *table, const u8 *block, i64 size, u8 *out) {
    struct reading reading = {block, block + size, out, out + 2 * LIST_BYTES_MAX};
    i64 list_bytes = 0;
    int is_request = 1, is_past = 0, seen = 0;
    while (reading.at < reading.end) {
        struct text name, value;
        if ((*reading.at & 0xE0) == 0x20) {
            i64 most;
            if (list_bytes || !number(&reading, 0x1F, &most) || most > TABLE_BYTES_MAX)
                return BROKEN;
            table->most_bytes = (i32)most;
            shrink(table, table->most_bytes);
            continue;
        }
        if (!field(table, &reading, &name, &value)) return BROKEN;
        list_bytes += name.size + value.size + PAIR_BYTES;
        if (list_bytes > LIST_BYTES_MAX) return BROKEN;
        if (name.size && *name.at == ':') {
            int place = place_before(name);
            if (is_past || place < 0 || seen & 1 << place) is_request = 0;
            if (place >= 0) seen |= 1 << place;
        } else {
            is_past = 1;
        }
        if (!is_clean(name, 1) || !is_clean(value, 0)) is_request = 0;
    }
    return is_request ? reading.out - out : NO_REQUEST;
}

/* How many bytes the table of a connection takes. */
i64 tandem_hpack_bytes(void) { return sizeof(struct hpack); }
