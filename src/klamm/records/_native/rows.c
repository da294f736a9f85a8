#include "rows.h"

#include <string.h>

static size_t bitmap_bytes(size_t bits)
{
    return (bits + 7) / 8;
}

void lay_out(const struct filled *filled, bool with_headers, size_t *used)
{
    size_t rows = filled->rows, headers = filled->headers;
    used[KEY_VALIDITY] = used[VALUE_VALIDITY] = bitmap_bytes(rows);
    used[KEY_BOUNDS] = used[VALUE_BOUNDS] = used[TOPIC_BOUNDS] = (rows + 1) * 4;
    used[KEY_DATA] = filled->key_bytes;
    used[VALUE_DATA] = filled->value_bytes;
    used[TOPIC_DATA] = filled->topic_bytes;
    used[PARTITIONS] = used[TIMESTAMP_TYPES] = rows * 4;
    used[OFFSETS] = used[TIMESTAMPS] = rows * 8;
    used[HEADERS_VALIDITY] = with_headers ? bitmap_bytes(rows) : 0;
    used[HEADERS_BOUNDS] = with_headers ? (rows + 1) * 4 : 0;
    used[HEADER_KEY_BOUNDS] = used[HEADER_VALUE_BOUNDS] = with_headers ? (headers + 1) * 4 : 0;
    used[HEADER_VALUE_VALIDITY] = with_headers ? bitmap_bytes(headers) : 0;
    used[HEADER_KEY_DATA] = filled->header_key_bytes;
    used[HEADER_VALUE_DATA] = filled->header_value_bytes;
}

enum damage count_headers(const struct addition *given, struct filled *most)
{
    struct walk walk = given->batch.walk;
    struct record record;
    for (Py_ssize_t rows = 0; walk.left > 0 && rows < given->limit;) {
        size_t pos;
        int32_t count;
        enum damage wrong = walk_next(&walk, &record);
        if (wrong || (wrong = headers_start(&walk, &record, &pos, &count)))
            return wrong;
        if (given->batch.base_offset + record.offset_delta < given->start)
            continue;
        rows++;
        most->headers += (size_t)count;
        most->header_key_bytes += record.end - pos; /* more than enough for each of the two */
        most->header_value_bytes += record.end - pos;
    }
    return SOUND;
}

static inline void put_bit(uint8_t *bits, size_t at, bool set)
{
    uint8_t before = bits[at / 8] & (uint8_t)((1u << at % 8) - 1); /* at a byte's first bit it is not initialized */
    if (at % 8 == 0)
        before = 0;
    bits[at / 8] = before | (uint8_t)((unsigned)set << at % 8);
}

void clear_behind(uint8_t *bits, size_t count)
{
    if (count % 8 != 0)
        bits[count / 8] &= (uint8_t)((1u << count % 8) - 1);
}

static inline void put_int32(uint8_t *column, size_t at, int32_t value)
{
    memcpy(column + at * 4, &value, 4);
}

static inline void put_int64(uint8_t *column, size_t at, int64_t value)
{
    memcpy(column + at * 8, &value, 8);
}

/* Append a field to a column of bytes: data, the bound behind it, validity. */
static inline void put_field(uint8_t *const *data, enum column validity, size_t at, const struct walk *walk,
                             struct field field, size_t *bytes, size_t *nulls)
{
    put_bit(data[validity], at, field.bytes >= 0);
    if (field.bytes < 0) {
        *nulls += 1;
    } else {
        memcpy(data[validity + 2] + *bytes, walk->data + field.start, (size_t)field.bytes);
        *bytes += (size_t)field.bytes;
    }
    put_int32(data[validity + 1], at + 1, (int32_t)*bytes);
}

static bool is_text(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint8_t first = bytes[i++];
        if (first < 0x80)
            continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || size - i < (size_t)more)
            return false;
        uint8_t second = bytes[i]; /* overlong forms, surrogates, and what lies beyond Unicode */
        if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
            (first == 0xF4 && second > 0x8F))
            return false;
        for (; more > 0; more--)
            if ((bytes[i++] & 0xC0) != 0x80)
                return false;
    }
    return true;
}

/* The headers of one record. `most` is how much there is room for: somebody may have changed them since they were
 * counted. */
static enum damage put_headers_of(uint8_t *const *data, const struct walk *walk, const struct record *record,
                                  const struct filled *most, struct filled *now)
{
    size_t pos;
    int32_t count;
    enum damage wrong = headers_start(walk, record, &pos, &count);
    if (wrong)
        return wrong;
    if ((size_t)count > most->headers - now->headers || record->end - pos > most->header_key_bytes - now->header_key_bytes ||
        record->end - pos > most->header_value_bytes - now->header_value_bytes)
        return BAD_HEADERS;
    for (int32_t i = 0; i < count; i++) {
        struct field key, value;
        if ((wrong = header_next(walk, record->end, &pos, &key, &value)))
            return wrong;
        uint8_t *name = data[HEADER_KEY_DATA] + now->header_key_bytes;
        memcpy(name, walk->data + key.start, (size_t)key.bytes);
        if (!is_text(name, (size_t)key.bytes))
            return BAD_HEADERS;
        now->header_key_bytes += (size_t)key.bytes;
        put_int32(data[HEADER_KEY_BOUNDS], now->headers + 1, (int32_t)now->header_key_bytes);
        put_field(data, HEADER_VALUE_VALIDITY, now->headers, walk, value, &now->header_value_bytes,
                  &now->header_value_nulls);
        now->headers++;
    }
    put_bit(data[HEADERS_VALIDITY], now->rows, count > 0);
    put_int32(data[HEADERS_BOUNDS], now->rows + 1, (int32_t)now->headers);
    now->headers_nulls += count == 0;
    return pos == record->end ? SOUND : BAD_LENGTH;
}

/* Nobody wants them; they have to be sound all the same. */
static inline enum damage pass_headers(const struct walk *walk, const struct record *record)
{
    size_t start;
    int32_t count;
    if (walk->data[record->headers] == 0 && record->headers + 1 == record->end) /* most records have none */
        return SOUND;
    return headers_check(walk, record, &start, &count);
}

static inline int64_t microseconds(int64_t milliseconds)
{
    if (milliseconds > INT64_MAX / 1000)
        return INT64_MAX;
    return milliseconds < INT64_MIN / 1000 ? INT64_MIN : milliseconds * 1000;
}

enum damage fill_rows(uint8_t *const *columns, bool with_headers, struct addition *given, const struct filled *most,
                      struct filled *filled)
{
    struct walk *walk = &given->batch.walk;
    struct filled now = *filled;
    uint8_t *data[COLUMNS]; /* of our own: no byte that is written can be a part of it */
    memcpy(data, columns, sizeof data);
    size_t enough = now.rows + (size_t)given->limit;
    while (walk->left > 0 && now.rows < enough) {
        struct record record;
        int64_t timestamp;
        enum damage wrong = walk_next(walk, &record);
        if (wrong)
            return wrong;
        int64_t offset = given->batch.base_offset + record.offset_delta;
        bool wanted = offset >= given->start;
        wrong = with_headers && wanted ? put_headers_of(data, walk, &record, most, &now) : pass_headers(walk, &record);
        if (wrong)
            return wrong;
        if (!wanted)
            continue;
        if ((wrong = time_of(&given->times, record.timestamp_delta, &timestamp)))
            return wrong;
        size_t row = now.rows++;
        put_field(data, KEY_VALIDITY, row, walk, (struct field){record.key, record.key_bytes}, &now.key_bytes,
                  &now.key_nulls);
        put_field(data, VALUE_VALIDITY, row, walk, (struct field){record.value, record.value_bytes}, &now.value_bytes,
                  &now.value_nulls);
        memcpy(data[TOPIC_DATA] + now.topic_bytes, given->topic, (size_t)given->topic_bytes);
        now.topic_bytes += (size_t)given->topic_bytes;
        put_int32(data[TOPIC_BOUNDS], row + 1, (int32_t)now.topic_bytes);
        put_int32(data[PARTITIONS], row, given->partition);
        put_int64(data[OFFSETS], row, offset);
        put_int64(data[TIMESTAMPS], row, microseconds(timestamp));
        put_int32(data[TIMESTAMP_TYPES], row, given->times.has_append);
    }
    *filled = now;
    return walk->left > 0 ? SOUND : walk_end(walk);
}
