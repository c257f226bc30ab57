/* Pulls that come together, in C: found in what a client has sent, answered with what is stored.
 *
 * Only the usual ones: PULL_MESSAGE or LITE_PULL_MESSAGE with a header in JSON as RocketMQ's clients
 * write it, or in MSGPACK as ours does, in ASCII, all of one group, topic and subscription; and
 * among them those for which there are messages that nobody has to look at. The first one that is
 * not usual ends the run, and node.handlers.pull_message looks at it. What a usual one is may be
 * judged too narrowly here, never too widely: whatever is answered has to be as it would be there.
 */

#include "native_headers.h"

enum { PULL_MESSAGE = 11, LITE_PULL_MESSAGE = 361, MESSAGES_MAX = 32 };

struct pull {
    i64 end, opaque, queue_id, queue_offset, commit_offset, place;
};

/* What all pulls of a run have in common. A text that is not there has the size -1. */
struct kind {
    i64 code, encoding, sys_flag, max_msg_nums, sub_version;
    i64 group_at, group_bytes, topic_at, topic_bytes, wanted_at, wanted_bytes, type_at, type_bytes;
};

struct place {
    i64 queue_id, first_offset;
    /* From here on filled in by the reader of the queue: the units of one file of it, */
    const u8 *units;
    i64 units_first, units_end; /* the numbers of the first of them, and after the last */
    i64 lowest;                 /* below it, units are not known to be sound */
    i64 min_offset, max_offset; /* of the queue, as the client hears */
    /* what was answered. */
    i64 pulls, messages, body_bytes, next_offset;
};

struct pulls {
    struct pull *rows;
    struct place *places;
    i64 rows_max, places_max, place_count;
    struct kind kind;
};

/* -- finding ----------------------------------------------------------------------------------- */

/* The fields in the order of request_headers.py. */
enum {
    GROUP, TOPIC, QUEUE_ID, QUEUE_OFFSET, MAX_MSG_NUMS, SYS_FLAG, COMMIT_OFFSET, SUSPEND,
    SUB_VERSION, SUBSCRIPTION, TYPE, MAX_BYTES, BROKER, FIELDS
};
static const char *const names[FIELDS] = {
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subVersion", "subscription", "expressionType", "maxMsgBytes", "bname"};
enum { REQUIRED = (1 << (SUB_VERSION + 1)) - 1 };
enum { GROUP_BYTES_MAX = 255 };

struct filled {
    const u8 *data;
    struct pull *row;
    struct kind *kind;
};

static int field_of(struct text name) {
    for (int field = 0; field < FIELDS; field++)
        if (is(name, names[field])) return field;
    return -1;
}

static int is_pull(i64 code) { return code == PULL_MESSAGE || code == LITE_PULL_MESSAGE; }

static int is_text(int field) {
    return field == GROUP || field == TOPIC || field == SUBSCRIPTION || field == TYPE ||
           field == BROKER;
}

/* Keeps what was read; `texts` has the texts, `numbers` the rest. */
static int keep(struct filled *f, i64 code, int seen, const struct text *texts,
                const i64 *numbers) {
    if ((seen & REQUIRED) != REQUIRED) return 0;
    int has_wanted = seen >> SUBSCRIPTION & 1, has_type = seen >> TYPE & 1;
    *f->kind = (struct kind){
        code,
        f->kind->encoding,
        numbers[SYS_FLAG],
        numbers[MAX_MSG_NUMS],
        numbers[SUB_VERSION],
        texts[GROUP].at - f->data,
        texts[GROUP].size,
        texts[TOPIC].at - f->data,
        texts[TOPIC].size,
        has_wanted ? texts[SUBSCRIPTION].at - f->data : 0,
        has_wanted ? texts[SUBSCRIPTION].size : -1,
        has_type ? texts[TYPE].at - f->data : 0,
        has_type ? texts[TYPE].size : -1,
    };
    f->row->queue_id = numbers[QUEUE_ID];
    f->row->queue_offset = numbers[QUEUE_OFFSET];
    f->row->commit_offset = numbers[COMMIT_OFFSET];
    return texts[TOPIC].size > 0 && texts[TOPIC].size <= TOPIC_BYTES_MAX && texts[GROUP].size > 0 &&
           texts[GROUP].size <= GROUP_BYTES_MAX && numbers[MAX_MSG_NUMS] > 0;
}

static void bounds_of(int field, i64 *least, i64 *most) {
    int is_long = field == QUEUE_OFFSET || field == COMMIT_OFFSET || field == SUSPEND ||
                  field == SUB_VERSION;
    *least = field == QUEUE_ID || field == QUEUE_OFFSET ? 0 : is_long ? INT64_MIN : INT32_MIN;
    *most = is_long ? INT64_MAX : INT32_MAX;
}

static int take_json_fields(struct cursor *c, i64 code, void *into) {
    struct text texts[FIELDS], name, value;
    i64 numbers[FIELDS], least, most;
    int seen = 0;
    if (!is_pull(code) || !take(c, '{')) return 0;
    do {
        if (!take_text(c, &name) || !take(c, ':')) return 0;
        int field = field_of(name);
        /* A field that is not known here may say who asks: see native_send_headers.c. */
        if (field < 0 || seen >> field & 1) return 0;
        if (!take_value(c, !is_text(field), &value)) return 0;
        seen |= 1 << field;
        texts[field] = value;
        if (is_text(field)) continue;
        bounds_of(field, &least, &most);
        if (!number_of(value, least, most, numbers + field)) return 0;
    } while (take(c, ','));
    return take(c, '}') && keep(into, code, seen, texts, numbers);
}

static int take_packed_fields(struct cursor *c, i64 code, void *into) {
    struct text texts[FIELDS], name;
    i64 numbers[FIELDS], count, least, most;
    int seen = 0;
    if (!is_pull(code) || !take_bytes(c, 1, &count) || count < 0x80 || count > 0x8F) return 0;
    for (count &= 15; count; count--) {
        int field;
        if (!take_packed_text(c, &name) || (field = field_of(name)) < 0) return 0;
        if (seen >> field & 1) return 0;
        seen |= 1 << field;
        if (is_text(field)) {
            if (!take_packed_text(c, texts + field) || !are_plain(texts[field])) return 0;
        } else {
            bounds_of(field, &least, &most);
            if (!take_packed(c, least, most, numbers + field)) return 0;
        }
    }
    return keep(into, code, seen, texts, numbers);
}

static int are_same(const u8 *data, i64 at, i64 size, i64 other_at, i64 other_size) {
    return size == other_size && (size <= 0 || !memcmp(data + at, data + other_at, (size_t)size));
}

static int is_of_kind(const u8 *data, const struct kind *k, const struct kind *o) {
    return k->code == o->code && k->encoding == o->encoding && k->sys_flag == o->sys_flag &&
           k->max_msg_nums == o->max_msg_nums && k->sub_version == o->sub_version &&
           are_same(data, k->group_at, k->group_bytes, o->group_at, o->group_bytes) &&
           are_same(data, k->topic_at, k->topic_bytes, o->topic_at, o->topic_bytes) &&
           are_same(data, k->wanted_at, k->wanted_bytes, o->wanted_at, o->wanted_bytes) &&
           are_same(data, k->type_at, k->type_bytes, o->type_at, o->type_bytes);
}

static int take_frame(const u8 *data, i64 start, i64 end, struct pull *row, struct kind *kind) {
    if (end - start < FRAME_HEAD_BYTES) return 0;
    i64 total = get32(data + start), header = get32(data + start + 4) & 0xFFFFFF;
    /* A pull has no body. */
    if (header > HEADER_BYTES_MAX || total != header + 4 || total > end - start - 4) return 0;
    const u8 *at = data + start + FRAME_HEAD_BYTES;
    struct filled filled = {data, row, kind};
    struct cursor c = {at, at + header};
    row->end = start + 4 + total;
    kind->encoding = data[start + 4];
    return tandem_take_header(kind->encoding, c, take_json_fields, take_packed_fields, &filled,
                              &row->opaque);
}

static i64 place_of(struct pulls *all, i64 queue_id) {
    for (i64 place = 0; place < all->place_count; place++)
        if (all->places[place].queue_id == queue_id) return place;
    return -1;
}

/* Finds usual pulls of one kind from data[start] on, up to `end`. Returns how many there are. */
i64 tandem_find_pulls(const u8 *data, i64 start, i64 end, struct pulls *all) {
    i64 count = 0;
    struct kind kind;
    all->place_count = 0;
    for (; count < all->rows_max; count++) {
        struct pull *row = all->rows + count;
        if (!take_frame(data, start, end, row, &kind)) break;
        if (!count) all->kind = kind;
        else if (!is_of_kind(data, &kind, &all->kind)) break;
        row->place = place_of(all, row->queue_id);
        if (row->place < 0) {
            if (all->place_count == all->places_max) break;
            row->place = all->place_count++;
            all->places[row->place] =
                (struct place){.queue_id = row->queue_id, .first_offset = row->queue_offset};
        }
        start = row->end;
    }
    return count;
}

/* -- answering --------------------------------------------------------------------------------- */

enum { UNIT_BYTES = 20, FILLER_SIZE = INT32_MAX, SCANNED_MAX = 800, NUMBERS_BYTES_MAX = 80 };
enum { ANSWER_PARTS = 5 };
#define EXT_ADDRESS_MAX (-((i64)1 << 31) - 1) /* up to it: no tags codes, see store_layout.py */

struct log_file {
    const u8 *at;
    i64 first, end; /* physical offsets */
};

struct reads {
    i64 done, count; /* rows: answered, to be answered */
    i64 min_physical, bytes_max;
    const i64 *tags; /* codes; NULL: all are wanted */
    i64 tags_count;
    const struct log_file *files;
    i64 files_count;
    i64 needed;  /* a physical offset whose file is missing; -1: none is */
    i64 is_full; /* whether there was no room for one more */
    struct part in_json[ANSWER_PARTS]; /* between them next, min, max offset, opaque */
    struct part packed[ANSWER_PARTS];  /* between them opaque, next, min, max offset */
    i64 parts_bytes;                   /* of either, at most */
    u8 *out;
    i64 out_bytes, out_room;
};

struct piece {
    i64 at, size;
};

struct found {
    struct piece pieces[MESSAGES_MAX];
    int pieces_count;
    i64 messages, bytes, next_offset;
};

static int is_wanted(const struct reads *r, i64 code) {
    for (i64 n = 0; n < r->tags_count; n++)
        if (r->tags[n] == code) return 1;
    return !r->tags;
}

/* What store.messages.get_message collects; false if a unit has to be looked at by it. */
static int collect(const struct pulls *all, const struct reads *r, const struct pull *row,
                   struct found *f) {
    const struct place *p = all->places + row->place;
    i64 first = row->queue_offset, count_max = all->kind.max_msg_nums;
    if (count_max > MESSAGES_MAX) count_max = MESSAGES_MAX;
    if (first < p->lowest || first >= p->max_offset) return 0;
    if (first < p->units_first || first >= p->units_end) return 0;
    i64 end = p->max_offset < p->units_end ? p->max_offset : p->units_end;
    if (end - first > SCANNED_MAX) end = first + SCANNED_MAX;
    f->pieces_count = 0;
    f->messages = f->bytes = 0;
    for (i64 number = first; number < end; number++) {
        const u8 *unit = p->units + (number - p->units_first) * UNIT_BYTES;
        i64 at = get64(unit), size = int32_at(unit + 8), code = get64(unit + 12);
        if (f->messages && (f->messages == count_max || f->bytes + size > r->bytes_max)) break;
        f->next_offset = number + 1;
        if (r->tags && code <= EXT_ADDRESS_MAX) return 0;
        if (!is_wanted(r, code)) continue;
        if (size == FILLER_SIZE || size <= 0 || at < r->min_physical) return 0;
        struct piece *last = f->pieces_count ? f->pieces + f->pieces_count - 1 : NULL;
        if (last && last->at == at - last->size) last->size += size;
        else f->pieces[f->pieces_count++] = (struct piece){at, size};
        f->messages++;
        f->bytes += size;
    }
    return f->messages > 0;
}

static const u8 *bytes_of(struct reads *r, const struct piece *piece) {
    for (i64 n = 0; n < r->files_count; n++) {
        const struct log_file *file = r->files + n;
        if (piece->at >= file->first && piece->at < file->end)
            return piece->size <= file->end - piece->at ? file->at + (piece->at - file->first)
                                                        : NULL;
    }
    r->needed = piece->at;
    return NULL;
}

static u8 *put_head(u8 *out, const struct pulls *all, const struct reads *r,
                    const struct pull *row, const struct found *f) {
    const struct place *p = all->places + row->place;
    u8 *at = out + FRAME_HEAD_BYTES;
    if (all->kind.encoding == JSON) {
        at = put_decimal(put_part(at, r->in_json[0]), f->next_offset);
        at = put_decimal(put_part(at, r->in_json[1]), p->min_offset);
        at = put_decimal(put_part(at, r->in_json[2]), p->max_offset);
        at = put_decimal(put_part(at, r->in_json[3]), row->opaque);
        at = put_part(at, r->in_json[4]);
    } else {
        at = put_packed(put_part(at, r->packed[0]), row->opaque);
        at = put_packed(put_part(at, r->packed[1]), f->next_offset);
        at = put_packed(put_part(at, r->packed[2]), p->min_offset);
        at = put_packed(put_part(at, r->packed[3]), p->max_offset);
        at = put_part(at, r->packed[4]);
    }
    u32 size = (u32)(at - out);
    put32(out, (u32)(size - 4 + f->bytes));
    put32(out + 4, size - FRAME_HEAD_BYTES);
    out[4] = (u8)all->kind.encoding;
    return at;
}

static int answer(struct pulls *all, struct reads *r, const struct pull *row) {
    struct found f;
    const u8 *sources[MESSAGES_MAX];
    struct place *p = all->places + row->place;
    if (!collect(all, r, row, &f)) return 0;
    if (f.bytes > r->out_room - r->out_bytes - r->parts_bytes - NUMBERS_BYTES_MAX -
                      FRAME_HEAD_BYTES) {
        r->is_full = 1;
        return 0;
    }
    for (int n = 0; n < f.pieces_count; n++)
        if (!(sources[n] = bytes_of(r, f.pieces + n))) return 0;
    u8 *at = put_head(r->out + r->out_bytes, all, r, row, &f);
    for (int n = 0; n < f.pieces_count; n++)
        at = put_part(at, (struct part){sources[n], f.pieces[n].size});
    r->out_bytes = at - r->out;
    p->pulls++;
    p->messages += f.messages;
    p->body_bytes += f.bytes;
    p->next_offset = f.next_offset;
    return 1;
}

/* Answers pulls from r->done on, up to r->count; less if one is not usual, if there is no room, or
 * if a file of the log is needed. Returns how many are answered, in all. */
i64 tandem_answer_pulls(struct pulls *all, struct reads *r) {
    r->needed = -1;
    r->is_full = 0;
    while (r->done < r->count && answer(all, r, all->rows + r->done)) r->done++;
    return r->done;
}
