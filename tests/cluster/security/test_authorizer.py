"""The authorizer against one that looks at every rule, as its documentation says it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.cluster.security.authorizer import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SUPER_USER,
    StandardAuthorizer,
    parse_super_users,
)
from bradbury.protocol.errors import InvalidConfig
from bradbury.protocol.principal import Principal
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
ALICE = Principal("User", "alice")
HERE = "127.0.0.1"

names = st.text("ab*", min_size=1, max_size=4)
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:*", "User:bob", "Team:alice"]),
    st.sampled_from(["*", HERE, "10.0.0.1"]),
    st.sampled_from([AclOperation.ALL, *OPERATIONS]),
    st.sampled_from([ALLOW, DENY]),
)
principals = st.sampled_from([ALICE, Principal("User", "bob"), Principal("Team", "alice")])
questions = st.tuples(
    principals, st.sampled_from([HERE, "10.0.0.1"]), st.sampled_from(OPERATIONS), names
)


def authorizer(
    rules: Iterable[AclBinding], *, super_users: str = "User:root", allows_if_no_acl: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(parse_super_users(super_users), allows_if_no_acl=allows_if_no_acl)
    made.use({str(number): rule for number, rule in enumerate(rules)})
    return made


def is_about(rule: AclBinding, name: str) -> bool:
    if rule.pattern == PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, "*")


def is_for(rule: AclBinding, principal: Principal, host: str) -> bool:
    return rule.principal in (f"{principal.kind}:{principal.name}", "User:*") and rule.host in (
        host,
        "*",
    )


IMPLIED_BY = {
    AclOperation.DESCRIBE: {"READ", "WRITE", "DELETE", "ALTER"},
    AclOperation.DESCRIBE_CONFIGS: {"ALTER_CONFIGS"},
}


def says(rule: AclBinding, operation: AclOperation) -> bool:
    if rule.operation in (AclOperation.ALL, operation):
        return True
    return rule.permission == ALLOW and rule.operation.name in IMPLIED_BY.get(operation, ())


def naive(
    rules: Iterable[AclBinding],
    principal: Principal,
    host: str,
    operation: AclOperation,
    name: str,
    *,
    otherwise: bool,
) -> bool:
    about = [rule for rule in rules if rule.resource_type == TOPIC and is_about(rule, name)]
    if not about:
        return otherwise
    said = [rule for rule in about if is_for(rule, principal, host) and says(rule, operation)]
    return bool(said) and all(rule.permission == ALLOW for rule in said)


@pytest.mark.thorough
@given(st.sets(bindings, max_size=12), st.lists(questions, max_size=6), st.booleans())
@settings(max_examples=400, deadline=None)
def test_what_is_decided_is_what_the_rules_say_one_by_one(
    rules: set[AclBinding],
    asked: list[tuple[Principal, str, AclOperation, str]],
    otherwise: bool,
) -> None:
    made = authorizer(rules, allows_if_no_acl=otherwise)
    for principal, host, operation, name in asked * 2:  # the second time from what is kept
        decision = made.authorize(principal, host, operation, TOPIC, name)
        assert decision.is_allowed == naive(
            rules, principal, host, operation, name, otherwise=otherwise
        )
        if isinstance(decision.rule, AclBinding):
            assert decision.rule in rules
            assert is_about(decision.rule, name)
            assert is_for(decision.rule, principal, host)
            assert says(decision.rule, operation)


@pytest.mark.thorough
@given(st.lists(st.sets(bindings, max_size=8), max_size=5), questions)
@settings(max_examples=200, deadline=None)
def test_after_any_changes_it_decides_as_one_that_is_made_of_the_last_rules(
    versions: list[set[AclBinding]], asked: tuple[Principal, str, AclOperation, str]
) -> None:
    principal, host, operation, name = asked
    numbers: dict[AclBinding, str] = {}
    changed = authorizer([])
    for rules in versions:
        changed.use({numbers.setdefault(rule, str(len(numbers))): rule for rule in rules})
        fresh = authorizer(rules)
        question = (principal, host, operation, TOPIC)
        assert (
            changed.authorize(*question, name).is_allowed
            == fresh.authorize(*question, name).is_allowed
        )
        assert (
            changed.authorize_any(*question).is_allowed == fresh.authorize_any(*question).is_allowed
        )


@pytest.mark.thorough
@given(st.sets(bindings, max_size=10), principals, st.sampled_from(OPERATIONS))
@settings(max_examples=300, deadline=None)
def test_any_of_a_type_is_allowed_if_some_name_that_a_rule_knows_is(
    rules: set[AclBinding], principal: Principal, operation: AclOperation
) -> None:
    """As Kafka says it: what is implied does not count, nor what a longer prefix denies."""
    plain = {rule for rule in rules if rule.operation in (AclOperation.ALL, operation)}
    made = authorizer(plain)
    names_allowed = {
        rule.name
        for rule in plain
        if rule.permission == ALLOW
        and rule.resource_type == TOPIC
        and is_for(rule, principal, HERE)
        # Below a prefix there is always another name than those that are denied by name.
        and naive(
            [
                each
                for each in plain
                if rule.pattern == LITERAL or each.pattern == PREFIXED or each.name == "*"
            ],
            principal,
            HERE,
            operation,
            rule.name,
            otherwise=False,
        )
    }
    # A name that stands for all is denied only as a whole.
    wildcard = AclBinding(TOPIC, "*", LITERAL, "", "", operation, ALLOW)
    denies_all = any(
        rule.name == "*" and rule.pattern == LITERAL and rule.permission == DENY
        for rule in plain
        if rule.resource_type == TOPIC and is_for(rule, principal, HERE)
    )
    allows_all = any(
        (rule.resource_type, rule.name, rule.pattern, rule.permission)
        == (TOPIC, wildcard.name, LITERAL, ALLOW)
        and is_for(rule, principal, HERE)
        for rule in plain
    )
    expected = bool(names_allowed) or (allows_all and not denies_all)
    assert made.authorize_any(principal, HERE, operation, TOPIC).is_allowed == expected


def test_a_super_user_is_asked_nothing() -> None:
    rule = AclBinding(TOPIC, "*", LITERAL, "User:*", "*", AclOperation.ALL, DENY)
    made = authorizer([rule], super_users="User:root; User:CN=broker,O=Example ;")
    for name in ("root", "CN=broker,O=Example"):
        decision = made.authorize(Principal("User", name), HERE, AclOperation.READ, TOPIC, "a")
        assert decision == SUPER_USER
    assert not made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, "a").is_allowed


def test_rules_of_others_end_what_is_allowed_without_any() -> None:
    rule = AclBinding(TOPIC, "a", PREFIXED, "User:bob", "*", AclOperation.READ, ALLOW)
    made = authorizer([rule], allows_if_no_acl=True)
    assert made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, "b") == DEFAULT_ALLOW
    assert made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, "ab") == DEFAULT_DENY


def test_a_change_of_rules_counts_at_once() -> None:
    rule = AclBinding(TOPIC, "a", LITERAL, "User:alice", "*", AclOperation.READ, ALLOW)
    made = authorizer([rule])
    version = made.version
    assert made.authorize(ALICE, HERE, AclOperation.DESCRIBE, TOPIC, "a").is_allowed
    made.use({})
    assert not made.authorize(ALICE, HERE, AclOperation.DESCRIBE, TOPIC, "a").is_allowed
    assert made.version != version


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bradbury.cluster.security.authorizer.MOST_KEPT", 10)
    made = authorizer([])
    for number in range(100):
        made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, str(number))
    assert len(made._kept) <= 10


@pytest.mark.parametrize("text", ["alice", ":alice", "User:a;b"])
def test_a_super_user_has_a_kind_and_a_name(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"super\.users"):
        parse_super_users(text)


def test_a_topic_whose_last_rule_is_gone_is_one_without_rules() -> None:
    rule = AclBinding(TOPIC, "a", LITERAL, "User:bob", "*", AclOperation.READ, ALLOW)
    made = authorizer([rule], allows_if_no_acl=True)
    assert made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, "a") == DEFAULT_DENY
    made.use({})
    assert made.authorize(ALICE, HERE, AclOperation.READ, TOPIC, "a") == DEFAULT_ALLOW
