/* The headers of requests around their fields, in JSON and in MSGPACK: see native_headers.h. */

#include "native_headers.h"

static int take_json(struct cursor *c, take_fields *fields, void *into, i64 *opaque) {
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
            good = take_number(c, &code);
        } else if (is(name, "extFields")) {
            field = EXT;
            good = seen & CODE && fields(c, code, into);
        } else if (is(name, "flag")) {
            field = ONE_WAY;
            good = take_number(c, &number) && !number;
        } else if (is(name, "opaque")) {
            field = OPAQUE;
            good = take_number(c, opaque);
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

/* [code, language, version, opaque, flag 0, remark nil, fields] */
static int take_msgpack(struct cursor *c, take_fields *fields, void *into, i64 *opaque) {
    i64 code, ignored;
    if (!take(c, 0x97) || !take_packed(c, INT32_MIN, INT32_MAX, &code)) return 0;
    if (!take_packed(c, INT32_MIN, INT32_MAX, &ignored)) return 0;
    if (!take_packed(c, INT32_MIN, INT32_MAX, &ignored)) return 0;
    if (!take_packed(c, 0, INT32_MAX, opaque) || !take(c, 0) || !take(c, 0xC0)) return 0;
    return fields(c, code, into) && c->at == c->end;
}

int tandem_take_header(i64 encoding, struct cursor c, take_fields *json, take_fields *packed,
                       void *into, i64 *opaque) {
    if (encoding == JSON) return take_json(&c, json, into, opaque);
    return encoding == MSGPACK && take_msgpack(&c, packed, into, opaque);
}
