"""Access control lists of znodes. Source: ZooDefs.java, DigestAuthenticationProvider.java."""

import base64
import hashlib
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
CREATOR_ALL_ACL: Final = (Acl(Permission.ALL, "auth", ""),)
"""All permissions for the identities of the session that creates the znode."""


def digest_acl(user: str, password: str, permissions: int = Permission.ALL) -> Acl:
    """An entry for sessions that present `user:password` under the scheme `digest`."""
    digest = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return Acl(permissions, "digest", f"{user}:{base64.b64encode(digest).decode()}")
