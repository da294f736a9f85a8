"""Compaction: of the records with one key only the last stays, and a tombstone goes when it has been there for long.

plan           how dirty a log is, and which of its segments may be compacted: decisions only
transactions   which batches belong to aborted transactions, and which markers nobody needs any more
batches        what is left of one batch
work           all of a log's rounds through its files; runs in a child process
swap           new segments into the place of the old ones, whenever a crash may come
cleaner        which log is next, and everything around it that runs on the loop
"""
