"""Access control lists of znodes. Source: ZooDefs.java."""

from enum import IntFlag
from typing import Final, NamedTuple


class Permission(IntFlag):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Acl(NamedTuple):
    """One entry of an access control list: `permissions` for `identity` in the authentication `scheme`."""

    permissions: int
    scheme: str
    identity: str


OPEN_ACL: Final = (Acl(Permission.ALL, "world", "anyone"),)
"""All permissions for everyone."""
READ_ACL: Final = (Acl(Permission.READ, "world", "anyone"),)
"""Read permission for everyone."""
