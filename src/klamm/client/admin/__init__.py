"""Administering a cluster, in parts: topics, options, groups, ACLs, users, placement, transactions, the cluster itself.

`klamm.client.admin.admin` puts them together into `Admin`; the names that users need are in `klamm.admin`. Each part
may be had alone, on a `Cluster` that is there already, so that a command imports no more than it needs:

    await Topics(cluster).delete_topics(["orders"])

A method that takes several items answers for each of them (`results`); `asking` knows whom to ask, and when again.
"""
