#include "records.h"

#include <string.h>

const char *damage_text(enum damage what)
{
    switch (what) {
    case TOO_LARGE: return "so many bytes of records are too many";
    case TOO_MANY_RECORDS: return "more records than these bytes can hold";
    case ENDS_EARLY: return "a record ends too early";
    case BAD_VARINT: return "a record is malformed: a varint of too many bits";
    case BAD_LENGTH: return "a record of a length that cannot be";
    case BAD_FIELD: return "a field of a length that cannot be";
    case BAD_HEADERS: return "headers that cannot be";
    case BAD_OFFSET_DELTA: return "an offset delta that is not between the one before it and the last";
    case BAD_BASE_OFFSET: return "a batch at an offset that cannot be";
    case BAD_TIMESTAMP: return "a timestamp of more than 64 bits";
    case BYTES_LEFT: return "bytes are left after the last record";
    default: return "sound";
    }
}

/* A zig-zag varint of `bits` bits (32 or 64) that ends before `end`. Overlong forms are read, as everybody does. */
static enum damage read_long_form(const uint8_t *data, size_t *pos, size_t end, int bits, int64_t *value)
{
    uint64_t raw = 0;
    size_t at = *pos;
    for (int shift = 0; shift < bits; shift += 7) {
        if (at >= end)
            return ENDS_EARLY;
        uint8_t byte = data[at++];
        int room = bits - shift; /* less than 7 only for the last byte */
        if (room < 7 && (byte & 0x7F) >> room)
            return BAD_VARINT;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *pos = at;
            *value = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
            return SOUND;
        }
    }
    return BAD_VARINT;
}

static inline enum damage read_number(const uint8_t *data, size_t *pos, size_t end, int bits, int64_t *value)
{
    if (*pos >= end)
        return ENDS_EARLY;
    uint8_t byte = data[*pos];
    if (byte < 0x80) {
        *pos += 1;
        *value = (byte >> 1) ^ -(byte & 1);
        return SOUND;
    }
    return read_long_form(data, pos, end, bits, value);
}

static inline enum damage read_int32(const uint8_t *data, size_t *pos, size_t end, int32_t *value)
{
    int64_t wide;
    enum damage wrong = read_number(data, pos, end, 32, &wide);
    if (!wrong)
        *value = (int32_t)wide;
    return wrong;
}

/* A length of -1 or more, and that many bytes before `end`. */
static inline enum damage read_field(const uint8_t *data, size_t *pos, size_t end, size_t *start, int32_t *bytes)
{
    int32_t length;
    enum damage wrong = read_int32(data, pos, end, &length);
    if (wrong)
        return wrong;
    *start = *pos;
    *bytes = length;
    if (length < 0)
        return length == -1 ? SOUND : BAD_FIELD;
    if ((size_t)length > end - *pos)
        return BAD_FIELD;
    *pos += (size_t)length;
    return SOUND;
}

enum damage walk_start(struct walk *walk, const void *data, size_t size, int64_t count, int32_t last_delta)
{
    if (size > MAX_PAYLOAD_BYTES)
        return TOO_LARGE;
    if (last_delta < 0)
        return BAD_OFFSET_DELTA;
    if (count < 0 || count > (int64_t)(size / MIN_RECORD_BYTES))
        return TOO_MANY_RECORDS;
    *walk = (struct walk){.data = data, .size = size, .left = count, .last_delta = -1, .max_delta = last_delta};
    return SOUND;
}

enum damage walk_next(struct walk *walk, struct record *record)
{
    const uint8_t *data = walk->data;
    size_t pos = walk->pos;
    int32_t length;
    enum damage wrong;
    record->start = pos;
    if ((wrong = read_int32(data, &pos, walk->size, &length)))
        return wrong;
    if (length < MIN_RECORD_BYTES - 1 || (size_t)length > walk->size - pos)
        return BAD_LENGTH;
    size_t end = pos + (size_t)length;
    record->body = pos++; /* attributes: none in use */
    record->end = end;
    if ((wrong = read_number(data, &pos, end, 64, &record->timestamp_delta)))
        return wrong;
    record->timestamp_end = pos;
    if ((wrong = read_int32(data, &pos, end, &record->offset_delta)))
        return wrong;
    if ((wrong = read_field(data, &pos, end, &record->key, &record->key_bytes)))
        return wrong;
    if ((wrong = read_field(data, &pos, end, &record->value, &record->value_bytes)))
        return wrong;
    if (pos >= end) /* the number of headers is missing */
        return ENDS_EARLY;
    record->headers = pos;
    if (record->offset_delta <= walk->last_delta || record->offset_delta > walk->max_delta)
        return BAD_OFFSET_DELTA;
    walk->last_delta = record->offset_delta;
    walk->pos = end;
    walk->left--;
    return SOUND;
}

enum damage walk_end(const struct walk *walk)
{
    return walk->pos == walk->size ? SOUND : BYTES_LEFT;
}

enum damage headers_start(const struct walk *walk, const struct record *record, size_t *pos, int32_t *count)
{
    *pos = record->headers;
    if (walk->data[*pos] == 0) { /* most records have none */
        *count = 0;
        *pos += 1;
        return *pos == record->end ? SOUND : BAD_LENGTH;
    }
    enum damage wrong = read_int32(walk->data, pos, record->end, count);
    if (wrong)
        return wrong;
    return *count > 0 && (size_t)*count <= (record->end - *pos) / MIN_HEADER_BYTES ? SOUND : BAD_HEADERS;
}

enum damage header_next(const struct walk *walk, size_t end, size_t *pos, struct field *key, struct field *value)
{
    enum damage wrong = read_field(walk->data, pos, end, &key->start, &key->bytes);
    if (wrong)
        return wrong;
    if (key->bytes < 0)
        return BAD_HEADERS;
    return read_field(walk->data, pos, end, &value->start, &value->bytes);
}

size_t write_varlong(uint8_t *out, int64_t value)
{
    uint64_t rest = ((uint64_t)value << 1) ^ (value < 0 ? ~(uint64_t)0 : 0);
    size_t bytes = 0;
    while (rest > 0x7F) {
        out[bytes++] = (uint8_t)(rest & 0x7F) | 0x80;
        rest >>= 7;
    }
    out[bytes++] = (uint8_t)rest;
    return bytes;
}

size_t write_shifted(uint8_t *out, const struct walk *walk, const struct record *record, int64_t timestamp_delta)
{
    uint8_t timestamp[MAX_VARLONG_BYTES];
    size_t timestamp_bytes = write_varlong(timestamp, timestamp_delta);
    size_t rest = record->end - record->timestamp_end;
    size_t at = write_varlong(out, (int64_t)(1 + timestamp_bytes + rest));
    out[at++] = walk->data[record->body];
    memcpy(out + at, timestamp, timestamp_bytes);
    at += timestamp_bytes;
    memcpy(out + at, walk->data + record->timestamp_end, rest);
    return at + rest;
}

enum damage check_base(int64_t base_offset, int32_t last_delta)
{
    /* the checksum of a batch does not cover its offset */
    return base_offset >= 0 && base_offset < INT64_MAX - (last_delta > 0 ? last_delta : 0) ? SOUND : BAD_BASE_OFFSET;
}
