/* The headers of requests to send, in JSON and in MSGPACK, as far as they are usual.
 *
 * As strict as it can be: no blanks, no escapes but those of the separators of properties, only
 * ASCII, every field at most once and of the type that request_headers.py says. The rest is for
 * Python.
 */

#include "native_sends.h"

enum { SEND_MESSAGE = 10, SEND_MESSAGE_V2 = 310 };

/* -- JSON, as far as it is usual --------------------------------------------------------------- */

struct cursor {
    const u8 *at, *end;
};

static int take(struct cursor *c, u8 mark) {
    if (c->at == c->end || *c->at != mark) return 0;
    c->at++;
    return 1;
}

static int is_plain(u8 byte) { return byte >= 0x20 && byte < 0x7F; }

/* A string without escapes. */
static int take_text(struct cursor *c, struct text *text) {
    if (!take(c, '"')) return 0;
    const u8 *start = c->at;
    while (c->at < c->end && *c->at != '"') {
        if (!is_plain(*c->at) || *c->at == '\\') return 0;
        c->at++;
    }
    *text = (struct text){start, c->at - start};
    return take(c, '"');
}

/* A string that may have the separators of properties in it, as \u0001 and \u0002. */
static int take_properties(struct cursor *c, u8 *out, i64 room, i64 *size) {
    if (!take(c, '"')) return 0;
    i64 count = 0;
    while (c->at < c->end) {
        u8 byte = *c->at++;
        if (byte == '"') {
            *size = count;
            return 1;
        }
        if (byte == '\\') {
            if (c->end - c->at < 5 || memcmp(c->at, "u000", 4)) return 0;
            byte = (u8)(c->at[4] - '0');
            if (byte != 1 && byte != 2) return 0;
            c->at += 5;
        } else if (!is_plain(byte)) {
            return 0;
        }
        if (count == room) return 0;
        out[count++] = byte;
    }
    return 0;
}

/* Digits as Python writes them. */
static int number_of(struct text text, i64 least, i64 most, i64 *value) {
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

static int int32_of(struct text text, i64 *value) {
    return number_of(text, INT32_MIN, INT32_MAX, value);
}

static int take_number(struct cursor *c, i64 *value) {
    const u8 *start = c->at;
    while (c->at < c->end && (*c->at == '-' || (*c->at >= '0' && *c->at <= '9'))) c->at++;
    return int32_of((struct text){start, c->at - start}, value);
}

/* -- the header ---------------------------------------------------------------------------------*/

/* The fields in the order of request_headers.py, where V2 has the letters from `a` on. */
enum {
    GROUP, TOPIC, DEFAULT_TOPIC, DEFAULT_QUEUES, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES,
    RECONSUMED, UNIT_MODE, RECONSUMED_MAX, BATCH, BROKER, FIELDS
};
static const char *const names[FIELDS] = {
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch", "bname"};
enum { REQUIRED = (1 << (PROPERTIES + 1)) - 1 };

static int field_of(struct text name, i64 code) {
    if (code == SEND_MESSAGE_V2)
        return name.size == 1 && name.at[0] >= 'a' && name.at[0] < 'a' + FIELDS ? name.at[0] - 'a'
                                                                                : -1;
    for (int field = 0; field < FIELDS; field++)
        if (is(name, names[field])) return field;
    return -1;
}

static int take_fields(struct cursor *c, i64 code, const u8 *data, u8 *out, i64 room,
                       struct send *s) {
    struct text values[FIELDS], name;
    int seen = 0;
    i64 ignored;
    if (!take(c, '{')) return 0;
    do {
        struct text value;
        if (!take_text(c, &name) || !take(c, ':')) return 0;
        int field = field_of(name, code);
        if (field >= 0 && seen >> field & 1) return 0;
        if (field == PROPERTIES ? !take_properties(c, out, room, &s->text_bytes)
                                : !take_text(c, &value))
            return 0;
        if (field < 0) continue;
        seen |= 1 << field;
        if (field != PROPERTIES) values[field] = value;
    } while (take(c, ','));
    if (!take(c, '}') || (seen & REQUIRED) != REQUIRED) return 0;
    s->topic_at = values[TOPIC].at - data;
    s->topic_bytes = values[TOPIC].size;
    return s->topic_bytes > 0 && s->topic_bytes <= TOPIC_BYTES_MAX &&
           int32_of(values[DEFAULT_QUEUES], &ignored) &&
           number_of(values[QUEUE_ID], 0, INT32_MAX, &s->queue_id) && is(values[SYS_FLAG], "0") &&
           number_of(values[BORN], INT64_MIN, INT64_MAX, &s->born_ms) &&
           int32_of(values[FLAG], &s->flag) &&
           (!(seen >> RECONSUMED & 1) || is(values[RECONSUMED], "0")) &&
           (!(seen >> UNIT_MODE & 1) || is(values[UNIT_MODE], "false") ||
            is(values[UNIT_MODE], "true")) &&
           (!(seen >> RECONSUMED_MAX & 1) || int32_of(values[RECONSUMED_MAX], &ignored)) &&
           (!(seen >> BATCH & 1) || is(values[BATCH], "false"));
}

static int take_header(struct cursor *c, const u8 *data, u8 *out, i64 room, struct send *s) {
    enum { CODE = 1, EXT = 2, ONE_WAY = 4, OPAQUE = 8, VERSION = 16, LANGUAGE = 32, REMARK = 64,
           ENCODING = 128 };
    int seen = 0;
    i64 code = 0, number;
    if (!take(c, '{')) return 0;
    do {
        struct text name, value;
        int field, good;
        if (!take_text(c, &name) || !take(c, ':')) return 0;
        if (is(name, "code")) {
            field = CODE;
            good = take_number(c, &code) && (code == SEND_MESSAGE || code == SEND_MESSAGE_V2);
        } else if (is(name, "extFields")) {
            field = EXT;
            good = seen & CODE && take_fields(c, code, data, out, room, s);
        } else if (is(name, "flag")) {
            field = ONE_WAY;
            good = take_number(c, &number) && !number;
        } else if (is(name, "opaque")) {
            field = OPAQUE;
            good = take_number(c, &s->opaque);
        } else if (is(name, "version")) {
            field = VERSION;
            good = take_number(c, &number);
        } else {
            field = is(name, "language") ? LANGUAGE : is(name, "remark") ? REMARK
                  : is(name, "serializeTypeCurrentRPC") ? ENCODING : 0;
            good = field && take_text(c, &value);
        }
        if (!good || seen & field) return 0;
        seen |= field;
    } while (take(c, ','));
    return take(c, '}') && c->at == c->end && seen & EXT && seen & OPAQUE;
}

/* -- MSGPACK, as far as it is usual ------------------------------------------------------------ */

/* A number of `bytes` bytes; false unless they are there. */
static int take_bytes(struct cursor *c, int bytes, i64 *value) {
    u64 found = 0;
    if (c->end - c->at < bytes) return 0;
    while (bytes--) found = found << 8 | *c->at++;
    *value = (i64)found;
    return 1;
}

static int take_packed(struct cursor *c, i64 least, i64 most, i64 *value) {
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

static int take_packed_text(struct cursor *c, struct text *text) {
    i64 kind, size;
    if (!take_bytes(c, 1, &kind)) return 0;
    if (kind >= 0xA0 && kind < 0xC0) size = kind & 31;
    else if ((kind != 0xD9 && kind != 0xDA) || !take_bytes(c, kind == 0xD9 ? 1 : 2, &size)) return 0;
    if (c->end - c->at < size) return 0;
    *text = (struct text){c->at, size};
    c->at += size;
    return 1;
}

static int are_plain(struct text text) {
    for (i64 n = 0; n < text.size; n++)
        if (!is_plain(text.at[n])) return 0;
    return 1;
}

static int take_packed_field(struct cursor *c, int field, const u8 *data, u8 *out, i64 room,
                             struct send *s) {
    struct text text;
    i64 ignored;
    switch (field) {
    case GROUP: case DEFAULT_TOPIC: case BROKER:
        return take_packed_text(c, &text) && are_plain(text);
    case TOPIC:
        if (!take_packed_text(c, &text) || !are_plain(text)) return 0;
        s->topic_at = text.at - data;
        s->topic_bytes = text.size;
        return text.size > 0 && text.size <= TOPIC_BYTES_MAX;
    case DEFAULT_QUEUES: case RECONSUMED_MAX:
        return take_packed(c, INT32_MIN, INT32_MAX, &ignored);
    case QUEUE_ID: return take_packed(c, 0, INT32_MAX, &s->queue_id);
    case SYS_FLAG: case RECONSUMED: return take_packed(c, 0, 0, &ignored);
    case BORN: return take_packed(c, INT64_MIN, INT64_MAX, &s->born_ms);
    case FLAG: return take_packed(c, INT32_MIN, INT32_MAX, &s->flag);
    case PROPERTIES:
        if (!take_packed_text(c, &text) || text.size > room) return 0;
        for (i64 n = 0; n < text.size; n++)
            if (!is_plain(text.at[n]) && text.at[n] != 1 && text.at[n] != 2) return 0;
        memcpy(out, text.at, (size_t)text.size);
        s->text_bytes = text.size;
        return 1;
    case BATCH: return take(c, 0xC2);
    case UNIT_MODE: return take(c, 0xC2) || take(c, 0xC3);
    }
    return 0;
}

/* [code, language, version, opaque, flag 0, remark nil, fields] */
static int take_packed_header(struct cursor *c, const u8 *data, u8 *out, i64 room,
                              struct send *s) {
    i64 code, ignored, count;
    int seen = 0;
    if (!take(c, 0x97) || !take_packed(c, SEND_MESSAGE, SEND_MESSAGE_V2, &code)) return 0;
    if (code != SEND_MESSAGE && code != SEND_MESSAGE_V2) return 0;
    if (!take_packed(c, INT32_MIN, INT32_MAX, &ignored)) return 0;
    if (!take_packed(c, INT32_MIN, INT32_MAX, &ignored)) return 0;
    if (!take_packed(c, 0, INT32_MAX, &s->opaque) || !take(c, 0) || !take(c, 0xC0)) return 0;
    if (!take_bytes(c, 1, &count) || count < 0x80 || count > 0x8F) return 0;
    for (count &= 15; count; count--) {
        struct text name;
        int field;
        if (!take_packed_text(c, &name) || (field = field_of(name, code)) < 0) return 0;
        if (seen >> field & 1 || !take_packed_field(c, field, data, out, room, s)) return 0;
        seen |= 1 << field;
    }
    return c->at == c->end && (seen & REQUIRED) == REQUIRED;
}

int tandem_take_send_header(const u8 *data, const u8 *at, const u8 *end, u8 *out, i64 room,
                            struct send *s) {
    struct cursor c = {at, end};
    if (s->encoding == JSON) return take_header(&c, data, out, room, s);
    return s->encoding == MSGPACK && take_packed_header(&c, data, out, room, s);
}
