/* Requests to send that come together, in C: found in what a client has sent, written as records,
 * answered.
 *
 * Only the usual ones: SEND_MESSAGE or SEND_MESSAGE_V2 with a header in JSON as RocketMQ's clients
 * write it, or in MSGPACK as ours does, in ASCII, about one message that is to be stored as it
 * comes. The first one that is not usual ends the run, and node.handlers.send_message looks at it.
 * What a usual one is may be judged too narrowly here, never too widely: whatever is taken has to
 * end as it would there.
 */

#define _GNU_SOURCE
#include "native_demands.h"
#include "native_sends.h"

enum { KEY_BYTES_MAX = 64 };
enum { SEALED = 0x80, SEAL_BYTES = 32 }; /* frame_seal.py */

struct place {
    i64 topic_at, topic_bytes, queue_id;
    i64 first; /* its first send */
    i64 count, queue_offset, unit_at;
};

struct sends {
    struct send *rows;
    struct place *places;
    u8 *texts; /* text_bytes_max for each row */
    const u8 *suffix;
    i64 suffix_bytes, rows_max, places_max, body_bytes_max, text_bytes_max;
    i64 place_count, is_waiting;
    struct contents contents; /* without room nothing is signed */
};

/* -- properties: demands.py -------------------------------------------------------------------- */

/* Looks through the properties of a request: false if one of them asks for more than to be stored.
 * Sets where the UNIQ_KEY is, and whether the producer waits for disk and slaves. */
static int are_usual(struct text all, const u8 *texts, struct send *s, i64 *is_waiting) {
    struct text piece;
    int waits = 0;
    if (memmem(all.at, (size_t)all.size, DELAY_HINT, sizeof DELAY_HINT - 1)) return 0;
    s->key_bytes = 0;
    *is_waiting = 1;
    while (next_piece(&all, &piece)) {
        struct text name = first_until(piece, 1);
        struct text value = {name.at + name.size + 1, piece.size - name.size - 1};
        if (!name.size || value.size < 0 || first_until(value, 1).size < value.size) return 0;
        for (int n = 0; n < DEMANDING; n++)
            if (ends_with(name, demanding[n])) return 0;
        if (is(name, "WAIT")) {
            if (waits++) return 0;
            *is_waiting = is(value, "true");
            if (!*is_waiting && !is(value, "false")) return 0;
        } else if (is(name, "UNIQ_KEY")) {
            if (s->key_bytes || !value.size || value.size > KEY_BYTES_MAX) return 0;
            for (i64 n = 0; n < value.size; n++) {
                u8 byte = value.at[n], lower = byte | 0x20;
                if ((byte < '0' || byte > '9') && (lower < 'a' || lower > 'z')) return 0;
            }
            s->key_at = value.at - texts;
            s->key_bytes = value.size;
        }
    }
    return s->key_bytes > 0;
}

/* -- a run ------------------------------------------------------------------------------------- */

static i64 place_of(const u8 *data, struct sends *all, const struct send *s, i64 last) {
    i64 count = all->place_count, place = last;
    for (i64 looked = 0; looked < count; looked++) {
        /* Most producers take one queue after the other. */
        place = place + 1 < count ? place + 1 : 0;
        const struct place *p = all->places + place;
        if (p->queue_id == s->queue_id && p->topic_bytes == s->topic_bytes &&
            !memcmp(data + p->topic_at, data + s->topic_at, (size_t)s->topic_bytes))
            return place;
    }
    return -1;
}

static int take_frame(const u8 *data, i64 start, i64 end, struct sends *all, i64 row,
                      i64 *is_waiting) {
    struct send *s = all->rows + row;
    if (end - start < FRAME_HEAD_BYTES) return 0;
    i64 total = get32(data + start), header = get32(data + start + 4) & 0xFFFFFF;
    if (header > HEADER_BYTES_MAX || total < header + 4 || total > end - start - 4) return 0;
    const u8 *at = data + start + FRAME_HEAD_BYTES;
    s->end = start + 4 + total;
    s->body_at = start + FRAME_HEAD_BYTES + header;
    int is_sealed = data[start + 4] & SEALED;
    s->body_bytes = s->end - s->body_at - (is_sealed ? SEAL_BYTES : 0);
    s->text_at = row * all->text_bytes_max;
    u8 *text = all->texts + s->text_at;
    i64 room = all->text_bytes_max - all->suffix_bytes - 1;
    s->encoding = data[start + 4] & ~SEALED;
    if (s->body_bytes < 0 || s->body_bytes > all->body_bytes_max) return 0;
    struct contents *contents = all->contents.room && !is_sealed ? &all->contents : NULL;
    if (is_sealed) {
        s->access_at = s->access_bytes = 0;
        s->signature_at = s->end - SEAL_BYTES;
        s->content_at = start;
        s->content_bytes = s->signature_at - start;
    }
    if (!tandem_take_send_header(data, at, at + header, text, room, s, contents)) return 0;
    if (!s->text_bytes || !are_usual((struct text){text, s->text_bytes}, all->texts, s, is_waiting))
        return 0;
    if (text[s->text_bytes - 1] != 2) text[s->text_bytes++] = 2;
    memcpy(text + s->text_bytes, all->suffix, (size_t)all->suffix_bytes);
    s->text_bytes += all->suffix_bytes;
    return 1;
}

static int is_same_sender(const u8 *data, const struct send *one, const struct send *other) {
    struct text first = {data + one->access_at, one->access_bytes};
    return is_same(first, (struct text){data + other->access_at, other->access_bytes});
}

enum { RECORD_FIXED_BYTES = 75 };

/* Adds usual requests from data[start] on, up to `end`, to the `count` that are there. Returns how
 * many there are then. */
static i64 add_some(const u8 *data, i64 start, i64 end, struct sends *all, i64 count,
                    i64 connection) {
    i64 is_waiting;
    i64 place = count ? all->rows[count - 1].place : 0;
    i64 record_bytes = count ? all->rows[count - 1].record_bytes : 0;
    for (; count < all->rows_max; count++) {
        struct send *s = all->rows + count;
        if (!take_frame(data, start, end, all, count, &is_waiting)) break;
        if (count && is_waiting != all->is_waiting) break;
        if (count && all->contents.room && !is_same_sender(data, all->rows, s)) break;
        place = place_of(data, all, s, place);
        if (place < 0) {
            if (all->place_count == all->places_max) break;
            place = all->place_count++;
            all->places[place] =
                (struct place){s->topic_at, s->topic_bytes, s->queue_id, count, 0, 0, 0};
        }
        all->is_waiting = is_waiting;
        all->places[place].count++;
        s->place = place;
        s->connection = connection;
        record_bytes += RECORD_FIXED_BYTES + s->body_bytes + s->topic_bytes + s->text_bytes;
        s->record_bytes = record_bytes;
        start = s->end;
    }
    return count;
}

/* Finds usual requests from data[start] on, up to `end`. Returns how many there are. */
i64 tandem_find_sends(const u8 *data, i64 start, i64 end, struct sends *all) {
    all->place_count = 0;
    all->contents.used = 0;
    return add_some(data, start, end, all, 0, 0);
}

/* The same of several connections. What connection n has sent goes from starts[n] to ends[n]: no
 * request reads on in what another connection has sent. What is not usual ends the part of its own
 * connection alone. */
i64 tandem_find_sends_of(const u8 *data, const i64 *starts, const i64 *ends, i64 connections,
                         struct sends *all) {
    i64 count = 0;
    all->place_count = 0;
    all->contents.used = 0;
    for (i64 n = 0; n < connections; n++)
        count = add_some(data, starts[n], ends[n], all, count, n);
    return count;
}

/* What each connection has in a run of `count`: counts[n] becomes how many requests; starts[n] is
 * moved behind the last of them. */
void tandem_share_sends(const struct sends *all, i64 count, i64 connections, i64 *starts,
                        i64 *counts) {
    memset(counts, 0, (size_t)connections * sizeof *counts);
    for (i64 row = 0; row < count; row++) {
        const struct send *s = all->rows + row;
        counts[s->connection]++;
        starts[s->connection] = s->end;
    }
}

enum { ANSWER_PARTS = 6, PACKED_PARTS = 4 };

struct run {
    i64 count, offset, store_ms, magic, sys_flag;
    struct part born_host, store_host;
    const u8 *born_hosts; /* of each connection, one after the other; NULL: there is only one */
    struct part answer[ANSWER_PARTS]; /* between them offset, queue, number, key and opaque */
    struct part packed[PACKED_PARTS]; /* before opaque, offset, queue and number */
    u8 *records, *answers;
    i64 *units;       /* offset, size and tags code, by places */
    i64 *record_ends; /* in the log */
    i64 *answer_ends;
};

static u8 *put_record(u8 *out, const u8 *data, const u8 *text, const struct send *s,
                      const struct run *r, i64 queue_offset, i64 offset) {
    u8 *at = out;
    put32(at + 4, (u32)r->magic);
    put32(at + 8, tandem_crc32(data + s->body_at, s->body_bytes) & 0x7FFFFFFF);
    put32(at + 12, (u32)s->queue_id);
    put32(at + 16, (u32)s->flag);
    put64(at + 20, queue_offset);
    put64(at + 28, offset);
    put32(at + 36, (u32)r->sys_flag);
    put64(at + 40, s->born_ms);
    struct part born_host = r->born_host;
    if (r->born_hosts) born_host.at = r->born_hosts + s->connection * born_host.size;
    at = put_part(at + 48, born_host);
    put64(at, r->store_ms);
    at = put_part(at + 8, r->store_host);
    memset(at, 0, 12); /* times consumed again, offset of what was prepared */
    put32(at + 12, (u32)s->body_bytes);
    at = put_part(at + 16, (struct part){data + s->body_at, s->body_bytes});
    *at++ = (u8)s->topic_bytes;
    at = put_part(at, (struct part){data + s->topic_at, s->topic_bytes});
    *at++ = (u8)(s->text_bytes >> 8);
    *at++ = (u8)s->text_bytes;
    at = put_part(at, (struct part){text, s->text_bytes});
    put32(out, (u32)(at - out));
    return at;
}

static u8 *put_json_answer(u8 *at, const u8 *texts, const struct send *s, const struct run *r,
                           i64 queue_offset, i64 offset) {
    at = put_hex(put_part(at, r->answer[0]), offset);
    at = put_decimal(put_part(at, r->answer[1]), s->queue_id);
    at = put_decimal(put_part(at, r->answer[2]), queue_offset);
    at = put_part(put_part(at, r->answer[3]), (struct part){texts + s->key_at, s->key_bytes});
    at = put_decimal(put_part(at, r->answer[4]), s->opaque);
    return put_part(at, r->answer[5]);
}

static u8 *put_packed_answer(u8 *at, const struct send *s, const struct run *r, i64 queue_offset,
                             i64 offset) {
    at = put_packed(put_part(at, r->packed[0]), s->opaque);
    at = put_hex(put_part(at, r->packed[1]), offset);
    at = put_packed(put_part(at, r->packed[2]), s->queue_id);
    return put_packed(put_part(at, r->packed[3]), queue_offset);
}

static u8 *put_answer(u8 *out, const u8 *texts, const struct send *s, const struct run *r,
                      i64 queue_offset, i64 offset) {
    u8 *at = out + FRAME_HEAD_BYTES;
    at = s->encoding == JSON ? put_json_answer(at, texts, s, r, queue_offset, offset)
                             : put_packed_answer(at, s, r, queue_offset, offset);
    u32 size = (u32)(at - out);
    put32(out, size - 4);
    put32(out + 4, size - FRAME_HEAD_BYTES);
    out[4] = (u8)s->encoding;
    return at;
}

/* Writes the first r->count of what tandem_find_sends has found: records, what queues get, answers.
 * The places have their counts of these, and the numbers of the first in their queues. Returns how
 * many bytes the answers take. */
i64 tandem_write_sends(const u8 *data, struct sends *all, struct run *r) {
    i64 unit_at = 0, offset = r->offset;
    u8 *record = r->records, *answer = r->answers;
    for (i64 n = 0; n < all->place_count; n++) {
        all->places[n].unit_at = unit_at;
        unit_at += 3 * all->places[n].count;
    }
    for (i64 n = 0; n < r->count; n++) {
        const struct send *s = all->rows + n;
        struct place *p = all->places + s->place;
        struct text text = {all->texts + s->text_at, s->text_bytes};
        i64 *unit = r->units + p->unit_at;
        u8 *end = put_record(record, data, text.at, s, r, p->queue_offset, offset);
        answer = put_answer(answer, all->texts, s, r, p->queue_offset, offset);
        unit[0] = offset;
        unit[1] = end - record;
        tags_code(text, unit + 2); /* of ASCII, so it is known */
        offset += end - record;
        record = end;
        r->record_ends[n] = offset;
        r->answer_ends[n] = answer - r->answers;
        p->unit_at += 3;
        p->queue_offset++;
    }
    return answer - r->answers;
}
