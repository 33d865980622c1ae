"""Who may do what: the keys of the service, their roles, and how many requests each may send.

A key is for one space or for all. It is kept as its digest. Keys that are given at the start (`--key`) may do
everything; those in the store (`practicum key`) have roles, may expire, and are known to all nodes within a second.
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
"""What a key may do. ask: send requests to the model, and read the playbook. report: report outcomes, and remember.
review: see interactions and decide what is learned. admin: everything, also keys, spaces and the data of users."""

ROLES: tuple[Role, ...] = get_args(Role)

LEAST = 16
"""Characters of a key that is given at the start, at least."""

KNOWN, LATE = 1.0, 0.2
"""Seconds for which the stored keys are known, and for which requests then wait for them to be read again: while the
store does not answer, those known before stay."""

SIGNED_IN = 43_200.0
"""Seconds after which who signed in has to do so again."""

LONGEST_NAME = 200
"""Characters of the name of a key, at most."""

WRONG_A_MINUTE = 60
"""Wrong keys that an address may send a minute."""


@dataclass(frozen=True)
class Grant:
    """What a key allows: for one space, or for all (""), in these roles, until `expires`, and so many requests a
    minute (None: as many as the service allows each key). `identity` is that of the space of a stored key, which does
    not open another space that is made under the same name later."""

    name: str
    space: str
    roles: frozenset[str]
    digest: str
    expires: float | None = None
    a_minute: int | None = None
    identity: str = ""

    def may(self, role: Role) -> bool:
        return includes(self.roles, role)

    def require(self, role: Role, what: str) -> None:
        """Raises Forbidden for `what`, if it takes a role that the key does not have."""
        require_role(self.roles, role, what, f"the key {self.name}")

    def require_all_spaces(self, what: str) -> None:
        """Raises Forbidden for `what` is about all spaces, if the key is for one."""
        if self.space:
            raise Forbidden("key.forbidden", f"{what} is about all spaces, and the key is for {self.space}")

    @property
    def is_operator(self) -> bool:
        """Whether it allows everything in all spaces."""
        return not self.space and "admin" in self.roles

    @property
    def expired(self) -> bool:
        return self.expires is not None and time.time() >= self.expires

    @property
    def named(self) -> list[Role]:
        """The roles, in order."""
        return in_order(self.roles)

    def as_json(self) -> dict[str, Any]:
        """Plain values, without the digest."""
        return {
            "name": self.name, "space": self.space, "roles": self.named,
            "expires": self.expires, "a_minute": self.a_minute,
        }  # fmt: skip


def includes(roles: Collection[str], role: Role) -> bool:
    """Whether these roles include what takes this role."""
    return role in roles or "admin" in roles


def in_order(roles: Collection[str]) -> list[Role]:
    """These roles, in the order of `ROLES`."""
    return [role for role in ROLES if role in roles]


def require_role(roles: Collection[str], role: Role, what: str, who: str) -> None:
    """Raises Forbidden for `what`, which takes a role, unless `who` has it among these roles."""
    if not includes(roles, role):
        have = ", ".join(in_order(roles)) or "none"
        raise Forbidden("key.forbidden", f"{what} takes the role {role}; {who} has {have}", role=role)


EVERYBODY = Grant("this machine", "", frozenset({"admin"}), "")
"""Whoever asks a service that has no keys, which answers to this machine alone."""


class Wrong(UsageError):
    """A key that is wrong, or has expired."""


class Forbidden(UsageError):
    """What a key is not for."""


class TooMany(PracticumError):
    """Too many requests. `after` is the number of seconds after which the next one may come."""

    def __init__(self, code: str, message: str, after: float) -> None:
        super().__init__(code, message, after=after)
        self.after = after


def require_key_of(id: str, grant: Grant) -> None:
    """Raises Forbidden for the key of a space that was deleted, where another space has its name."""
    if grant.space and grant.identity not in ("", id):
        raise Forbidden(
            "key.forbidden",
            f"this key was for a space {grant.space} that was deleted: ask for a new one (practicum key add)",
        )


class Rates:
    """How often clients may ask: at most so many requests in any `seconds`."""

    def __init__(self) -> None:
        self._windows = SlidingWindowCounterRateLimiter(MemoryStorage())

    def take(self, client: str, most: int, what: str, seconds: int = 60) -> None:
        """Count a request. Raises TooMany."""
        rate = RateLimitItemPerSecond(most, seconds)
        if not self._windows.hit(rate, client):
            after = max(self._windows.get_window_stats(rate, client).reset_time - time.time(), 0.1)
            allowed = f"{most:,} in {seconds} s are allowed"
            raise TooMany("request.too_many", f"{what}: {allowed}; wait {after:.1f} s", after)


def digest_of(secret: str) -> str:
    """What is kept of a key or a cookie."""
    return sha256(secret.encode()).hexdigest()


def read_keys(given: Iterable[str]) -> dict[str, Grant]:
    """Keys from texts, KEY or SPACE=KEY, by their digests. Raises UsageError for one that is too short to be secret, or
    that no header can hold."""
    found = {}
    for text in given:
        space, _, key = text.rpartition("=")
        if len(key) < LEAST or not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageError(
                "key.invalid",
                f"a key has at least {LEAST} characters, of ASCII and without spaces: KEY, or SPACE=KEY for a key of "
                "one space",
            )
        _require_space_name(space)
        digest = digest_of(key)
        found[digest] = Grant("--key", space, frozenset({"admin"}), digest)
    return found


class Keys:
    """All keys: those given at the start, and those in the store. `a_minute` is how many requests each may send."""

    def __init__(self, given: Mapping[str, Grant], database: Database, a_minute: int | None = None) -> None:
        self._given, self._database, self._a_minute = given, database, a_minute
        self._stored: Mapping[str, Grant] = {}
        self._read = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._stale = False
        self._asked = float("-inf")
        self.late = LATE
        self._sent, self._wrong = Rates(), Rates()
        self._secret = secrets.token_urlsafe(32)
        self.required = bool(given)
        """Whether requests need a key. Once they do, they do until the process ends."""

    async def refresh(self) -> None:
        """Read the stored keys, if they were not just read. Raises StoreError if they have never been read."""
        now, never = time.monotonic(), self._read == float("-inf")
        if now - self._read <= KNOWN:
            return
        if self._reading is None:
            if now - self._asked <= KNOWN and not never:
                # It failed just now.
                return
            self._reading, self._asked = asyncio.create_task(self._read_stored()), now
            self._reading.add_done_callback(self._ended)
        if never:
            await asyncio.shield(self._reading)
        else:
            await asyncio.wait({self._reading}, timeout=max(self._asked + self.late - now, 0.0))

    async def _read_stored(self) -> None:
        began = time.monotonic()
        self._stored = {grant.digest: grant for grant in await asyncio.to_thread(stored_keys, self._database)}
        self.required = self.required or bool(self._stored)
        self._read = began

    def _ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        error = None if reading.cancelled() else reading.exception()
        if error is not None and not self._stale:
            # Once for as long as they cannot be read.
            logger.warning("the keys are those known before: %s", error)
        self._stale = error is not None

    def forget(self) -> None:
        """Read the stored keys with the next request: they were changed here."""
        self._read = min(self._read, time.monotonic() - 2 * KNOWN)
        self._asked = float("-inf")

    async def grant(self, key: str, address: str) -> Grant:
        """What a key allows; `address` is the client's. Raises Wrong, or TooMany after too many wrong ones."""
        # Looked up by its digest, so the time it takes tells nothing of the keys.
        return await self._known(digest_of(key), address)

    async def _known(self, digest: str, address: str) -> Grant:
        await self.refresh()
        found = self._given.get(digest) or self._stored.get(digest)
        if found is None:
            self._wrong.take(address, WRONG_A_MINUTE, "too many wrong keys from this address")
            raise Wrong("key.wrong", "this key is not known here: check it, or make another one (practicum key add)")
        if found.expired:
            raise Wrong("key.expired", f"the key {found.name} has expired: ask for a new one (practicum key add)")
        return found

    def count(self, grant: Grant) -> None:
        """Count a request. Raises TooMany."""
        a_minute = self._a_minute if grant.a_minute is None else grant.a_minute
        if a_minute is not None:
            self._sent.take(grant.digest, a_minute, f"too many requests with the key {grant.name}")

    # Signing in, for pages

    async def sign_in(self, key: str, address: str) -> str:
        """The cookie of who signs in with a key. Raises Wrong, TooMany or StoreError."""
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
        """What who has this cookie may do; None if nobody has signed in with it, or too long ago."""
        if not self.required:
            return EVERYBODY
        t = schema.logins
        mine = (t.c.token == digest_of(cookie)) & (t.c.expires > time.time())
        rows = await asyncio.to_thread(self._database.rows, Scope("").select(t.c.digest).where(mine))
        if not rows:
            return None
        try:
            return await self._known(rows[0].digest, "")
        except (Wrong, TooMany):
            return None

    async def sign_out(self, cookie: str) -> None:
        """Let a cookie be nobody's."""
        t = schema.logins
        gone = t.c.token == digest_of(cookie)
        await asyncio.wrap_future(self._database.do(lambda at: at.run(at.delete(t).where(gone))))

    def form_token(self, cookie: str) -> str:
        """The token in the forms of a page, so that no page of another site can send them (CSRF)."""
        return self._signer(cookie).sign("form").decode()

    def is_form_token(self, cookie: str, token: str) -> bool:
        """Whether a token was made for the forms of this cookie, and not too long ago."""
        return self._signer(cookie).validate(token, max_age=int(SIGNED_IN))

    def _signer(self, cookie: str) -> TimestampSigner:
        # The cookie is the secret, so that all nodes know the tokens.
        return TimestampSigner(cookie if self.required else self._secret, salt="practicum form")


# Keys in the store


def stored_keys(database: Database) -> Sequence[Grant]:
    """The keys in the store, by space and name."""
    stored = database.rows(select(schema.keys))
    names = {"": "", **database.names_of({row.space for row in stored})}
    rows = [row for row in stored if row.space in names]
    return [
        Grant(r.name, names[r.space], frozenset(r.roles.split(",")), r.digest, r.expires, r.a_minute, r.space)
        for r in sorted(rows, key=lambda row: (names[row.space], row.name))
    ]


def add_key(
    database: Database, name: str, space: str, roles: Sequence[str], days: float | None = None,
    a_minute: int | None = None, id: str | None = None,
) -> tuple[Grant, str]:  # fmt: skip
    """Make a key. Returns its grant, and the key itself, which is kept nowhere. `id` is the identity that the space
    must have; without it, the space may be made later, and the key is for that one. Raises UsageError if there is one
    of this name for the space, or if a name or a role is none, and UnknownSpace for a space that was deleted."""
    if others := [role for role in roles if role not in ROLES]:
        raise UsageError("key.invalid", f"there is no role {others[0]!r:.80}: there are {', '.join(ROLES)}")
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or not name.strip():
        raise UsageError(
            "key.invalid", f"{name!r:.80} is no name of a key: a line of at most {LONGEST_NAME} characters"
        )
    _require_space_name(space)
    key, now, t = f"pk-{secrets.token_urlsafe(32)}", time.time(), schema.keys
    row: dict[str, Any] = {
        "name": name, "digest": digest_of(key), "roles": ",".join(sorted({*roles})), "made": now,
        "expires": None if days is None else now + 86_400 * days, "a_minute": a_minute,
    }  # fmt: skip

    def write(whole: Transaction) -> str:
        known = None
        if space:
            known = reserve_space(whole.db, space) if id is None else find_space(whole.db, space)
            if known is None or id not in (None, known.space):
                raise unknown(space)
        identity = known.space if known is not None else ""
        at = whole.of(identity)
        if at.first(at.select(t.c.name).where(t.c.name == name)) is not None:
            raise UsageError(
                "key.duplicate", f"there is a key {name!r:.80}{_of(space)} already: remove it, or choose another name"
            )
        at.insert(t, row)
        return identity

    identity = database.do(write).result()
    return Grant(name, space, frozenset(roles), row["digest"], row["expires"], a_minute, identity), key


def _require_space_name(space: str) -> None:
    """Raises UsageError for what cannot be the name of a space, unless it is empty: all spaces."""
    if space:
        require_space_name(space)


def _of(space: str) -> str:
    return f" for space {space}" if space else ""


def remove_key(database: Database, name: str, space: str) -> None:
    """Remove a key, and who signed in with it. Raises UsageError if there is none of this name."""
    t = schema.keys

    def write(whole: Transaction) -> None:
        known = find_space(whole.db, space) if space else None
        at = whole.of(known.space if known is not None else "")
        there = known is not None or not space
        if not there or not at.run(at.delete(t).where(t.c.name == name)):
            raise UsageError(
                "key.unknown", f"there is no key {name!r:.80}{_of(space)}: practicum key list shows those there are"
            )
        if known is not None and known.state == "reserved" and at.first(at.select(t.c.name).limit(1)) is None:
            remove_space(at.db, known.space)

    database.do(write).result()
