/* The fields of requests to send, in JSON and in MSGPACK, as far as they are usual.
 *
 * Every field at most once and of the type that request_headers.py says. Of escapes, only those of
 * the separators of properties. A field that is not known here may say who sends the request, so it
 * is left to the guard. The rest is for Python.
 */

#include "native_sends.h"

enum { SEND_MESSAGE = 10, SEND_MESSAGE_V2 = 310 };

/* Where they go: the request, and `room` bytes for its properties. */
struct filled {
    const u8 *data;
    u8 *out;
    i64 room;
    struct send *s;
    struct contents *contents; /* NULL: nothing is signed */
};

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

/* -- the header ---------------------------------------------------------------------------------*/

/* The fields in the order of request_headers.py, where V2 has the letters from `a` on. */
enum {
    GROUP, TOPIC, DEFAULT_TOPIC, DEFAULT_QUEUES, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES,
    RECONSUMED, UNIT_MODE, RECONSUMED_MAX, BATCH, BROKER, FIELDS,
    /* Of a signed request, after the others. */
    ACCESS_KEY = FIELDS, TOKEN, SIGNATURE, ALL_FIELDS
};
static const char *const names[FIELDS] = {
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch", "bname"};
enum { REQUIRED = (1 << (PROPERTIES + 1)) - 1 };
enum { SIGNED = 1 << ACCESS_KEY | 1 << SIGNATURE, SIGNATURE_BYTES = 28, ACCESS_BYTES_MAX = 255 };
static const char *const signed_names[] = {"AccessKey", "SecurityToken", "Signature"};

/* The order of the long names; the short ones are in the order of the fields. */
static const u8 by_name[FIELDS] = {BATCH, BROKER, BORN, DEFAULT_TOPIC, DEFAULT_QUEUES, FLAG,
                                   RECONSUMED_MAX, GROUP, PROPERTIES, QUEUE_ID, RECONSUMED,
                                   SYS_FLAG, TOPIC, UNIT_MODE};

static int field_of(struct text name, i64 code) {
    if (code == SEND_MESSAGE_V2)
        return name.size == 1 && name.at[0] >= 'a' && name.at[0] < 'a' + FIELDS ? name.at[0] - 'a'
                                                                                : -1;
    for (int field = 0; field < FIELDS; field++)
        if (is(name, names[field])) return field;
    return -1;
}

static int is_number(int field) {
    return field == DEFAULT_QUEUES || field == QUEUE_ID || field == SYS_FLAG || field == BORN ||
           field == FLAG || field == RECONSUMED || field == RECONSUMED_MAX;
}

static int signed_field_of(struct text name) {
    for (int n = 0; n < ALL_FIELDS - FIELDS; n++)
        if (is(name, signed_names[n])) return FIELDS + n;
    return -1;
}

static int add(struct contents *c, struct text value) {
    if (value.size > c->room - c->used) return 0;
    memcpy(c->at + c->used, value.at, (size_t)value.size);
    c->used += value.size;
    return 1;
}

/* Gathers what is signed: AclUtils.combineRequestContent. Upper case is before lower case. */
static int take_content(struct filled *f, i64 code, int seen, const struct text *values) {
    struct send *s = f->s;
    struct contents *c = f->contents;
    struct text properties = {f->out, s->text_bytes};
    if ((seen & SIGNED) != SIGNED || values[SIGNATURE].size != SIGNATURE_BYTES) return 0;
    if (!values[ACCESS_KEY].size || values[ACCESS_KEY].size > ACCESS_BYTES_MAX) return 0;
    s->access_at = values[ACCESS_KEY].at - f->data;
    s->access_bytes = values[ACCESS_KEY].size;
    s->signature_at = values[SIGNATURE].at - f->data;
    s->content_at = c->used;
    if (!add(c, values[ACCESS_KEY])) return 0;
    if (seen >> TOKEN & 1 && !add(c, values[TOKEN])) return 0;
    for (int n = 0; n < FIELDS; n++) {
        int field = code == SEND_MESSAGE_V2 ? n : by_name[n];
        if (!(seen >> field & 1)) continue;
        if (!add(c, field == PROPERTIES ? properties : values[field])) return 0;
    }
    s->content_bytes = c->used - s->content_at;
    return 1;
}

static int take_json_fields(struct cursor *c, i64 code, void *into) {
    struct filled *f = into;
    struct send *s = f->s;
    struct text values[ALL_FIELDS], name;
    int seen = 0;
    i64 ignored;
    if (code != SEND_MESSAGE && code != SEND_MESSAGE_V2) return 0;
    if (!take(c, '{')) return 0;
    do {
        struct text value;
        if (!take_text(c, &name) || !take(c, ':')) return 0;
        int field = field_of(name, code);
        if (field < 0 && f->contents) field = signed_field_of(name);
        if (field < 0 || seen >> field & 1) return 0;
        if (field == PROPERTIES ? !take_properties(c, f->out, f->room, &s->text_bytes)
                                : !take_value(c, is_number(field), &value))
            return 0;
        seen |= 1 << field;
        if (field != PROPERTIES) values[field] = value;
    } while (take(c, ','));
    if (!take(c, '}') || (seen & REQUIRED) != REQUIRED) return 0;
    if (f->contents && !take_content(f, code, seen, values)) return 0;
    s->topic_at = values[TOPIC].at - f->data;
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

static int take_packed_field(struct cursor *c, int field, struct filled *f) {
    struct send *s = f->s;
    struct text text;
    i64 ignored;
    switch (field) {
    case GROUP: case DEFAULT_TOPIC: case BROKER:
        return take_packed_text(c, &text) && are_plain(text);
    case TOPIC:
        if (!take_packed_text(c, &text) || !are_plain(text)) return 0;
        s->topic_at = text.at - f->data;
        s->topic_bytes = text.size;
        return text.size > 0 && text.size <= TOPIC_BYTES_MAX;
    case DEFAULT_QUEUES: case RECONSUMED_MAX:
        return take_packed(c, INT32_MIN, INT32_MAX, &ignored);
    case QUEUE_ID: return take_packed(c, 0, INT32_MAX, &s->queue_id);
    case SYS_FLAG: case RECONSUMED: return take_packed(c, 0, 0, &ignored);
    case BORN: return take_packed(c, INT64_MIN, INT64_MAX, &s->born_ms);
    case FLAG: return take_packed(c, INT32_MIN, INT32_MAX, &s->flag);
    case PROPERTIES:
        if (!take_packed_text(c, &text) || text.size > f->room) return 0;
        for (i64 n = 0; n < text.size; n++)
            if (!is_plain(text.at[n]) && text.at[n] != 1 && text.at[n] != 2) return 0;
        memcpy(f->out, text.at, (size_t)text.size);
        s->text_bytes = text.size;
        return 1;
    case BATCH: return take(c, 0xC2);
    case UNIT_MODE: return take(c, 0xC2) || take(c, 0xC3);
    }
    return 0;
}

static int take_packed_fields(struct cursor *c, i64 code, void *into) {
    i64 count;
    int seen = 0;
    if (((struct filled *)into)->contents) return 0; /* who packs them signs them as text */
    if (code != SEND_MESSAGE && code != SEND_MESSAGE_V2) return 0;
    if (!take_bytes(c, 1, &count) || count < 0x80 || count > 0x8F) return 0;
    for (count &= 15; count; count--) {
        struct text name;
        int field;
        if (!take_packed_text(c, &name) || (field = field_of(name, code)) < 0) return 0;
        if (seen >> field & 1 || !take_packed_field(c, field, into)) return 0;
        seen |= 1 << field;
    }
    return (seen & REQUIRED) == REQUIRED;
}

int tandem_take_send_header(const u8 *data, const u8 *at, const u8 *end, u8 *out, i64 room,
                            struct send *s, struct contents *contents) {
    struct filled filled = {data, out, room, s, contents};
    struct cursor c = {at, end};
    return tandem_take_header(s->encoding, c, take_json_fields, take_packed_fields, &filled,
                              &s->opaque);
}
