"""Are the methods of Admin's parts its own, for whoever reads or calls them?"""

import inspect

import bradbury
from bradbury.clients.admin.access.acls_calls import AclsCalls
from bradbury.clients.admin.transactions_calls import TransactionsCalls
from bradbury.protocol.errors import SecurityDisabled


def test_a_method_of_a_part_has_its_signature_and_text() -> None:
    for own, part in (
        (bradbury.Admin.delete_acls, AclsCalls.delete_acls),
        (bradbury.Admin.list_transactions, TransactionsCalls.list_transactions),
    ):
        assert inspect.signature(own) == inspect.signature(part)
        assert (own.__name__, own.__doc__) == (part.__name__, part.__doc__)


def test_a_part_asks_by_the_connection_of_its_admin(admin: bradbury.Admin) -> None:
    assert admin.list_transactions(states=["Ongoing"]) == []
    assert admin.describe_client_quotas() == {}
    try:
        admin.describe_acls()
    except SecurityDisabled:
        return
    raise AssertionError("these brokers have no authorizer")
