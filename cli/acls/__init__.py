"""Commands about rules of access: acls list, add, remove."""
