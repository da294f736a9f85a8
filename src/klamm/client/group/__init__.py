"""Membership in a group: joining, heartbeats, assignment, commits.

Two protocols: `classic`, in which members assign (`classic.py` decides, `classic_member.py` does), and `consumer`,
KIP-848, in which the broker does (`consumer.py`, `consumer_member.py`). What they share is in `member.py`; how
partitions change hands is in `handover.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.client.cluster import Cluster
from klamm.client.subscription import Subscriptions

if TYPE_CHECKING:
    from klamm.client.membership import Membership


def member_of(cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> Membership:
    """The member for a consumer with these subscriptions, as the cluster's config describes it. `wake` is called
    whenever `wants_turn` or `failure` was set, and after every change of the subscriptions' partitions."""
    if cluster.config.group_protocol == "consumer":
        from klamm.client.group.consumer_member import Modern

        return Modern(cluster, subscriptions, wake)
    from klamm.client.group.classic_member import Classic

    return Classic(cluster, subscriptions, wake)
