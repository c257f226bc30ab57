/* A request to send, as it is found, and its header. */

#ifndef TANDEM_NATIVE_SENDS_H
#define TANDEM_NATIVE_SENDS_H

#include "native_headers.h"

struct send {
    i64 end, opaque, flag, born_ms, queue_id, place, body_at, body_bytes, topic_at, topic_bytes;
    i64 text_at, text_bytes, key_at, key_bytes;
    i64 record_bytes; /* of all up to this one, without their hosts */
    i64 encoding;     /* of the header */
    /* Of a signed one: who says to have signed it, the signature, and what it is about. A sealed
     * one says nobody; it is about the frame up to its seal. */
    i64 access_at, access_bytes, signature_at, content_at, content_bytes;
    i64 connection; /* by which it has come, of those that are looked at together */
};

/* Where what is signed is gathered; the content is the values of the fields, in the order of their
 * names. */
struct contents {
    u8 *at;
    i64 used, room;
};

/* Reads a header in front of `end`; its properties go to `out`, where `room` bytes are. With
 * `contents` it has to be signed, and is in JSON; without, it must not be. Returns false, and what
 * it has filled in means nothing, if it is not that of a usual request. */
int tandem_take_send_header(const u8 *data, const u8 *at, const u8 *end, u8 *out, i64 room,
                            struct send *s, struct contents *contents);

static inline int ends_with(struct text text, const char *word) {
    i64 more = text.size - (i64)strlen(word);
    return more >= 0 && !memcmp(text.at + more, word, strlen(word));
}

#endif
