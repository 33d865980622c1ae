"""Access control: keys of the service, their roles, and rate limits.

A key is for one space or for all spaces. The store has the digests of keys, not the keys. Keys passed at the start of
the service (`--key`) have the role `admin`. Keys in the store (`practicum key add`) have the roles that the operator
chose, may expire, and take effect on all nodes within a second.
`serve.api` checks the role of a key before each operation.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, get_args

from itsdangerous import TimestampSigner
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from sqlalchemy import select

from practicum.core.errors import PracticumError, UsageError
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.scope import Scope, Transaction
from practicum.store.spaces import find_space, remove_space, require_space_name, reserve_space, unknown

logger = logging.getLogger("practicum.serve")

Role = Literal["ask", "report", "review", "admin"]
"""Role of a key. `ask`: send requests to the model, and read the playbook. `report`: report outcomes, and remember
notes. `review`: see interactions, and decide reviews. `admin`: everything, including keys, spaces and user data."""

ROLES: tuple[Role, ...] = get_args(Role)

MIN_KEY = 16
"""Smallest length (characters) of a key that is passed with `--key`."""

CACHED, LATE = 1.0, 0.2
"""Time (s) for which stored keys are cached, and longest time (s) that a request waits while the keys are read again.
If the store does not respond, the cached keys stay valid."""

SIGNED_IN = 43_200.0
"""Time (s) for which a browser stays signed in to the pages."""

LONGEST_NAME = 200
"""Largest length (characters) of the name of a key."""

WRONG_A_MINUTE = 60
"""Largest number of wrong keys per minute from one client address."""


@dataclass(frozen=True)
class Grant:
    """Permissions of a key: its space ("": all spaces), its roles, its expiry (`expires`, seconds since 1970), and its
    rate limit (`per_minute`, requests per minute; None: the limit of the service). For a stored key, `identity` is the
    identity of the key's space: if this space is deleted, the key does not open a new space of the same name."""

    name: str
    space: str
    roles: frozenset[str]
    digest: str
    expires: float | None = None
    per_minute: int | None = None
    identity: str = ""

    def may(self, role: Role) -> bool:
        return includes(self.roles, role)

    def require(self, role: Role, action: str) -> None:
        """Raise Forbidden if the key lacks `role`, which `action` needs."""
        require_role(self.roles, role, action, f"the key {self.name}")

    def require_all_spaces(self, action: str) -> None:
        """Raise Forbidden if the key is for one space only, because `action` needs a key for all spaces."""
        if self.space:
            raise Forbidden(
                "key.forbidden", f"{action} needs a key for all spaces; this key is limited to {self.space}"
            )

    @property
    def is_operator(self) -> bool:
        """Whether the key allows everything in all spaces."""
        return not self.space and "admin" in self.roles

    @property
    def expired(self) -> bool:
        return self.expires is not None and time.time() >= self.expires

    @property
    def named(self) -> list[Role]:
        """Roles, in the order of `ROLES`."""
        return in_order(self.roles)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, without the digest."""
        return {
            "name": self.name, "space": self.space, "roles": self.named,
            "expires": self.expires, "per_minute": self.per_minute,
        }  # fmt: skip


def includes(roles: Collection[str], role: Role) -> bool:
    """Return whether `roles` include `role`. The role `admin` includes all roles."""
    return role in roles or "admin" in roles


def in_order(roles: Collection[str]) -> list[Role]:
    """Return `roles` as a list in the order of `ROLES`."""
    return [role for role in ROLES if role in roles]


def require_role(roles: Collection[str], role: Role, action: str, holder: str) -> None:
    """Raise Forbidden if `roles`, the roles of `holder`, do not permit an action that needs `role`."""
    if not includes(roles, role):
        have = ", ".join(in_order(roles)) or "none"
        raise Forbidden("key.forbidden", f"{action} needs the role {role}; {holder} has {have}", role=role)


LOCAL_OPERATOR = Grant("this machine", "", frozenset({"admin"}), "")
"""Grant of all requests to a service without keys. Such a service accepts only requests from its own machine."""


class Wrong(UsageError):
    """The key is unknown or has expired."""


class Forbidden(UsageError):
    """The key does not permit the action."""


class TooMany(PracticumError):
    """Rate limit exceeded. `after` is the time (s) until the next request is allowed."""

    def __init__(self, code: str, message: str, after: float) -> None:
        super().__init__(code, message, after=after)
        self.after = after


def require_key_of(id: str, grant: Grant) -> None:
    """Raise Forbidden if the space of the key was deleted, and the space with the identity `id` is a later space of the
    same name."""
    if grant.space and grant.identity not in ("", id):
        raise Forbidden(
            "key.forbidden",
            f"the space of this key, {grant.space}, was deleted: get another key (practicum key add)",
        )


class Rates:
    """Rate limiter that counts the requests of each client in a sliding window."""

    def __init__(self) -> None:
        self._windows = SlidingWindowCounterRateLimiter(MemoryStorage())

    def take(self, client: str, most: int, problem: str, seconds: int = 60) -> None:
        """Count a request. Raise TooMany if the client has sent more than `most` requests in `seconds`. `problem` is
        the beginning of the error message."""
        rate = RateLimitItemPerSecond(most, seconds)
        if not self._windows.hit(rate, client):
            after = max(self._windows.get_window_stats(rate, client).reset_time - time.time(), 0.1)
            limit = f"at most {most:,} in {seconds} s"
            raise TooMany("request.too_many", f"{problem}: {limit}; wait {after:.1f} s", after)


def digest_of(secret: str) -> str:
    """Return the digest of a key or a cookie. Only the digest is stored, not the key or the cookie."""
    return sha256(secret.encode()).hexdigest()


def read_keys(texts: Iterable[str]) -> dict[str, Grant]:
    """Return the grants of keys by digest; each text is KEY or SPACE=KEY. Raise UsageError if a key is too short to be
    secret, or has characters that a header cannot hold."""
    grants = {}
    for text in texts:
        space, _, key = text.rpartition("=")
        if len(key) < MIN_KEY or not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageError(
                "key.invalid",
                f"a key needs at least {MIN_KEY} characters, only ASCII without blanks: pass KEY, or SPACE=KEY for a "
                "key of one space",
            )
        _require_space_name(space)
        digest = digest_of(key)
        grants[digest] = Grant("--key", space, frozenset({"admin"}), digest)
    return grants


class Keys:
    """Keys of a service: `configured` (passed with `--key`, by digest), and the keys in the store. `per_minute` is the
    rate limit (requests per minute) of keys that have no rate limit in their grant; None: no limit."""

    def __init__(self, configured: Mapping[str, Grant], database: Database, per_minute: int | None = None) -> None:
        self._configured, self._database, self._per_minute = configured, database, per_minute
        self._stored: Mapping[str, Grant] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._stale = False
        self._tried_at = float("-inf")
        self.late = LATE
        self._sent, self._wrong = Rates(), Rates()
        self._secret = secrets.token_urlsafe(32)
        self.required = bool(configured)
        """Whether requests need a key. Once requests need a key, they need one until the process ends."""

    async def refresh(self) -> None:
        """Read the stored keys if the cache is old. Raise StoreError if the read fails and no keys are cached."""
        now, never = time.monotonic(), self._read_at == float("-inf")
        if now - self._read_at <= CACHED:
            return
        if self._reading is None:
            if now - self._tried_at <= CACHED and not never:
                # The last read failed less than CACHED seconds ago.
                return
            self._reading, self._tried_at = asyncio.create_task(self._read_stored()), now
            self._reading.add_done_callback(self._read_ended)
        if never:
            await asyncio.shield(self._reading)
        else:
            await asyncio.wait({self._reading}, timeout=max(self._tried_at + self.late - now, 0.0))

    async def _read_stored(self) -> None:
        began = time.monotonic()
        self._stored = {grant.digest: grant for grant in await asyncio.to_thread(stored_keys, self._database)}
        self.required = self.required or bool(self._stored)
        self._read_at = began

    def _read_ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        error = None if reading.cancelled() else reading.exception()
        if error is not None and not self._stale:
            # Log once per outage.
            logger.warning("cannot read the stored keys, so cached keys stay valid: %s", error)
        self._stale = error is not None

    def forget(self) -> None:
        """Read the stored keys again at the next request, because this process has changed a key."""
        self._read_at = min(self._read_at, time.monotonic() - 2 * CACHED)
        self._tried_at = float("-inf")

    async def grant(self, key: str, address: str) -> Grant:
        """Return the grant of a key. Raise Wrong for an unknown or expired key, and TooMany if this client address has
        sent too many wrong keys."""
        # Keys are looked up by their digests, so that the time of a look-up reveals nothing about the keys.
        return await self._grant_of(digest_of(key), address)

    async def _grant_of(self, digest: str, address: str) -> Grant:
        await self.refresh()
        grant = self._configured.get(digest) or self._stored.get(digest)
        if grant is None:
            self._wrong.take(address, WRONG_A_MINUTE, "too many wrong keys from this address")
            raise Wrong("key.wrong", "unknown key: check the key, or create a new key (practicum key add)")
        if grant.expired:
            raise Wrong("key.expired", f"the key {grant.name} has expired: get another key (practicum key add)")
        return grant

    def count(self, grant: Grant) -> None:
        """Count a request with a key. Raise TooMany if this request exceeds the rate limit of the key."""
        per_minute = self._per_minute if grant.per_minute is None else grant.per_minute
        if per_minute is not None:
            self._sent.take(grant.digest, per_minute, f"too many requests with the key {grant.name}")

    # Sign-in for pages

    async def sign_in(self, key: str, address: str) -> str:
        """Sign a browser in to the pages with a key, and return the session cookie. Raise Wrong, TooMany or
        StoreError."""
        grant, cookie, now = await self.grant(key, address), secrets.token_urlsafe(32), time.time()
        until = min(now + SIGNED_IN, grant.expires or float("inf"))
        row = {"token": digest_of(cookie), "digest": grant.digest, "expires": until}

        def write(at: Transaction) -> None:
            t = schema.logins
            at.run(at.delete(t).where(t.c.expires < now))
            at.insert(t, row)

        await asyncio.wrap_future(self._database.do(write))
        return cookie

    async def signed_in(self, cookie: str) -> Grant | None:
        """Return the grant of a session cookie, or None if the cookie or its key is unknown or has expired. While
        requests need no key, return LOCAL_OPERATOR for any cookie."""
        if not self.required:
            return LOCAL_OPERATOR
        t = schema.logins
        mine = (t.c.token == digest_of(cookie)) & (t.c.expires > time.time())
        rows = await asyncio.to_thread(self._database.rows, Scope("").select(t.c.digest).where(mine))
        if not rows:
            return None
        try:
            return await self._grant_of(rows[0].digest, "")
        except (Wrong, TooMany):
            return None

    async def sign_out(self, cookie: str) -> None:
        """Sign out the browser that has this session cookie."""
        t = schema.logins
        session = t.c.token == digest_of(cookie)
        await asyncio.wrap_future(self._database.do(lambda at: at.run(at.delete(t).where(session))))

    def form_token(self, cookie: str) -> str:
        """Return a token for the forms of a page. The token prevents cross-site requests (CSRF)."""
        return self._signer(cookie).sign("form").decode()

    def is_form_token(self, cookie: str, token: str) -> bool:
        """Return whether `form_token` made this token for this cookie, and the token has not expired."""
        return self._signer(cookie).validate(token, max_age=int(SIGNED_IN))

    def _signer(self, cookie: str) -> TimestampSigner:
        # If requests need a key, sign with the cookie, so that all nodes can verify the token. Otherwise, browsers have
        # no cookie.
        return TimestampSigner(cookie if self.required else self._secret, salt="practicum form")


# Keys in the store


def stored_keys(database: Database) -> Sequence[Grant]:
    """Return the grants of the keys in the store, sorted by space and name."""
    stored = database.rows(select(schema.keys))
    names = {"": "", **database.names_of({row.space for row in stored})}
    rows = [row for row in stored if row.space in names]
    return [
        Grant(r.name, names[r.space], frozenset(r.roles.split(",")), r.digest, r.expires, r.per_minute, r.space)
        for r in sorted(rows, key=lambda row: (names[row.space], row.name))
    ]


def add_key(
    database: Database, name: str, space: str, roles: Sequence[str], days: float | None = None,
    per_minute: int | None = None, id: str | None = None,
) -> tuple[Grant, str]:  # fmt: skip
    """Create a key. Return the grant of the key and the key itself, which is not stored. `id` is the identity that the
    space must have. Without `id`, the space need not exist yet. Raise UsageError if the space has a key of this name,
    or if the name of the key or a role is invalid, and UnknownSpace if no space has the name `space` and the identity
    `id`."""
    if others := [role for role in roles if role not in ROLES]:
        raise UsageError("key.invalid", f"no role named {others[0]!r:.80}: choose from {', '.join(ROLES)}")
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or not name.strip():
        raise UsageError(
            "key.invalid", f"invalid key name {name!r:.80}: use one line of at most {LONGEST_NAME} characters"
        )
    _require_space_name(space)
    key, now, t = f"pk-{secrets.token_urlsafe(32)}", time.time(), schema.keys
    row: dict[str, Any] = {
        "name": name, "digest": digest_of(key), "roles": ",".join(sorted({*roles})), "made": now,
        "expires": None if days is None else now + 86_400 * days, "per_minute": per_minute,
    }  # fmt: skip

    def write(whole: Transaction) -> str:
        owner = None
        if space:
            owner = reserve_space(whole.db, space) if id is None else find_space(whole.db, space)
            if owner is None or id not in (None, owner.space):
                raise unknown(space)
        identity = owner.space if owner is not None else ""
        at = whole.of(identity)
        if at.first(at.select(t.c.name).where(t.c.name == name)) is not None:
            raise UsageError(
                "key.duplicate",
                f"a key {name!r:.80}{_of(space)} exists already: remove that key, or choose another name",
            )
        at.insert(t, row)
        return identity

    identity = database.do(write).result()
    return Grant(name, space, frozenset(roles), row["digest"], row["expires"], per_minute, identity), key


def _require_space_name(space: str) -> None:
    """Raise UsageError for an invalid name of a space. An empty name is valid (all spaces)."""
    if space:
        require_space_name(space)


def _of(space: str) -> str:
    return f" for space {space}" if space else ""


def remove_key(database: Database, name: str, space: str) -> None:
    """Delete a key, and sign out browsers that signed in with this key. Raise UsageError if the key does not exist."""
    t = schema.keys

    def write(whole: Transaction) -> None:
        owner = find_space(whole.db, space) if space else None
        at = whole.of(owner.space if owner is not None else "")
        exists = owner is not None or not space
        if not exists or not at.run(at.delete(t).where(t.c.name == name)):
            raise UsageError("key.unknown", f"no key named {name!r:.80}{_of(space)}: practicum key list shows all keys")
        if owner is not None and owner.state == "reserved" and at.first(at.select(t.c.name).limit(1)) is None:
            remove_space(at.db, owner.space)

    database.do(write).result()
