/* Rows of columns: how they lie in memory, and the loop that writes them. It allocates nothing, and does not need the
 * interpreter. */

#ifndef KLAMM_ROWS_H
#define KLAMM_ROWS_H

#include "decode.h"

enum column { /* in the order of klamm.records.columnar.Arrays */
    KEY_VALIDITY,
    KEY_BOUNDS,
    KEY_DATA,
    VALUE_VALIDITY,
    VALUE_BOUNDS,
    VALUE_DATA,
    TOPIC_BOUNDS,
    TOPIC_DATA,
    PARTITIONS,
    OFFSETS,
    TIMESTAMPS,
    TIMESTAMP_TYPES,
    HEADERS_VALIDITY,
    HEADERS_BOUNDS,
    HEADER_KEY_BOUNDS,
    HEADER_KEY_DATA,
    HEADER_VALUE_VALIDITY,
    HEADER_VALUE_BOUNDS,
    HEADER_VALUE_DATA,
    COLUMNS,
};

struct filled { /* how much of the columns is in use */
    size_t rows, headers;
    size_t key_nulls, value_nulls, headers_nulls, header_value_nulls;
    size_t key_bytes, value_bytes, topic_bytes, header_key_bytes, header_value_bytes;
};

/* What is added by one call. */
struct addition {
    struct batch batch;
    struct times times;
    const char *topic;
    Py_ssize_t topic_bytes;
    int partition;
    long long start;
    Py_ssize_t limit;
};

/* How many bytes of each column are in use. */
void lay_out(const struct filled *filled, bool with_headers, size_t *used);

/* The headers of the records to come, counted. Nothing else of them is looked at. */
enum damage count_headers(const struct addition *given, struct filled *most);

/* Write rows behind those that are there, as many as are wanted. There is room for `most`; what was written counts only
 * if nothing was wrong. */
enum damage fill_rows(uint8_t *const *columns, bool with_headers, struct addition *given, const struct filled *most,
                      struct filled *filled);

/* What rows that did not count may have left behind the last bit. */
void clear_behind(uint8_t *bits, size_t count);

#endif
