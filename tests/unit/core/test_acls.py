from __future__ import annotations

import pytest

from klamm.core.acls import AclCode, AclOperation, AclResource, PatternType, Permission


@pytest.mark.parametrize("kind", [AclOperation, AclResource, PatternType, Permission])
def test_a_number_that_nobody_knows_is_unknown_and_has_no_meaning(kind: type[AclCode]) -> None:
    for code in (-1, 0, 100):
        assert kind(code).name == "UNKNOWN"
        assert not kind.knows(code)
    assert all(kind.knows(code) for code in kind if code)
    assert not kind.knows(100), "asking for it has not made it known"
