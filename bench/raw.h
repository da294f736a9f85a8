/* What the files of the raw client share. */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include "fetch.h"

#define READ_BUFFER (256 << 10)

/* --topic and --partitions, once they have been read. */
extern const char *topic;
extern int partitions;

void read_topic_options(void);
struct reader *connected(size_t buffer); /* to --to */

/* The modes about topics. */
void topics_mode(bool create);
void ready_mode(void);
void metadata_mode(void);

void put_metadata(struct bytes *out, const char *one_topic); /* NULL: all */
int take_metadata_answer(struct reader *reader);             /* how many of its partitions have a leader */

#endif
