"""Membership in a group: joining, heartbeats, assignment, commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.client.cluster import Cluster
from klamm.client.subscription import Subscriptions

if TYPE_CHECKING:
    from klamm.client.membership import Membership


def member_of(cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> Membership:
    """The member for a consumer with these subscriptions, as the cluster's config describes it. `wake` is to be called
    whenever `wants_turn` or `failure` was set, and after every change of the subscriptions' partitions."""
    raise NotImplementedError
