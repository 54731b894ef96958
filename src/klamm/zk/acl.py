"""Who may do what to a znode. Source: ZooDefs.java, DigestAuthenticationProvider.java."""

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
    """One entry: `permissions` for whoever is `identity` in `scheme`."""

    permissions: int
    scheme: str
    identity: str


OPEN_ACL: Final = (Acl(Permission.ALL, "world", "anyone"),)
READ_ACL: Final = (Acl(Permission.READ, "world", "anyone"),)
CREATOR_ALL_ACL: Final = (Acl(Permission.ALL, "auth", ""),)
"""Everything for those whose credentials the creating session carries."""


def digest_acl(user: str, password: str, permissions: int = Permission.ALL) -> Acl:
    """An entry for whoever adds `user:password` to the session under the scheme `digest`."""
    digest = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return Acl(permissions, "digest", f"{user}:{base64.b64encode(digest).decode()}")
