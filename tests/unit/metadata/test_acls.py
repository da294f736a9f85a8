"""Which entries a filter finds: Kafka's rules, held against a table written from its documentation."""

from __future__ import annotations

import pytest

from klamm.core.acls import AclOperation, AclResource, PatternType, Permission
from klamm.core.slices import at_once
from klamm.metadata import acls
from klamm.metadata.acls import Acl, AclFilter, finding

_, ANY, MATCH, LITERAL, PREFIXED = PatternType


def entry(name="orders", pattern=LITERAL, resource=AclResource.TOPIC, principal="User:a", host="*"):
    return Acl(resource, name, pattern, principal, host, AclOperation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    ("name", "pattern", "found"),
    [
        (None, ANY, {"orders", "ord+", "*", "other"}),
        (None, LITERAL, {"orders", "*", "other"}),
        (None, PREFIXED, {"ord+"}),
        (None, MATCH, {"orders", "ord+", "*", "other"}),
        ("orders", ANY, {"orders"}),
        ("orders", LITERAL, {"orders"}),
        ("orders", PREFIXED, set()),
        ("ord", PREFIXED, {"ord+"}),
        ("ord", ANY, {"ord+"}),
        ("orders", MATCH, {"orders", "ord+", "*"}),
        ("ord", MATCH, {"ord+", "*"}),
        ("or", MATCH, {"*"}),
        ("*", LITERAL, {"*"}),
        ("*", MATCH, {"*"}),
    ],
)
def test_names_and_patterns(name, pattern, found):
    entries = {
        "orders": entry(),
        "ord+": entry("ord", PREFIXED),
        "*": entry("*"),
        "other": entry("other"),
    }
    wanted = AclFilter(resource_name=name, pattern=pattern)
    assert {key for key, acl in entries.items() if wanted.matches(acl)} == found


def test_all_other_fields_are_equal_or_not_asked_for():
    acl = entry()
    assert AclFilter().matches(acl)
    exact = AclFilter(*acl)
    assert exact.matches(acl)
    for field, other in (
        ("resource_type", AclResource.GROUP),
        ("principal", "User:b"),
        ("host", "10.0.0.1"),
        ("operation", AclOperation.WRITE),
        ("operation", AclOperation.ALL),
        ("permission", Permission.DENY),
    ):
        assert not exact._replace(**{field: other}).matches(acl), field


def test_many_entries_are_looked_through_in_slices(monkeypatch):
    monkeypatch.setattr(acls, "ACLS_PER_SLICE", 2)
    entries = [entry(str(number)) for number in range(5)]
    assert len(list(finding(entries, AclFilter()))) == 2
    assert at_once(finding(entries, AclFilter())) == entries


@pytest.mark.parametrize("field", ["resource_type", "pattern", "operation", "permission"])
@pytest.mark.parametrize("value", [0, 99])
def test_what_we_do_not_know_cannot_be_looked_for(field, value):
    assert AclFilter().problem() is None
    assert AclFilter()._replace(**{field: value}).problem()
