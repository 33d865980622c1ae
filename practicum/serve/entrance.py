"""Who asks: the key of a request, its space, and where it may come from."""

from __future__ import annotations

from urllib.parse import urlsplit

from practicum.models.keys import is_loopback
from practicum.serve.access import EVERYBODY, Grant, Keys, Role
from practicum.serve.admission import RequestRefused
from practicum.serve.call import ServedCall

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers with which proxies pass a request on."""


class Entrance:
    """The check of every request to the service. `pass_key`: clients send the key of the service in x-practicum-key,
    and their own to the upstream. `default` is the space of requests that name none."""

    def __init__(self, keys: Keys, default: str, *, pass_key: bool) -> None:
        self.keys, self.pass_key, self._default = keys, pass_key, default

    def _require_host(self, call: ServedCall) -> None:
        """Refuse what could come from another machine, of a service without keys."""
        host = call.headers.get(b"host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            raise RequestRefused("request.malformed", "the header host is not an address") from None
        if not _FORWARDED.isdisjoint(call.headers):
            # A proxy may name this machine as the host, whoever asks.
            raise RequestRefused(
                "key.not_configured", "a service without keys answers to no proxy: configure a key (practicum key add)"
            )
        if not is_loopback(name):
            raise RequestRefused(
                "key.not_configured", "a service without keys answers to this machine alone: configure a key (--key)"
            )

    def _require_origin(self, call: ServedCall) -> None:
        """Refuse what a page of another site, or of another port, could make a browser send to a service without
        keys."""
        host, origin = call.headers.get(b"host", ""), call.headers.get(b"origin")
        own = f"{call.scope['scheme']}://{host}".lower()
        # "null" is the origin of any page that wants to hide its own, unless the browser says that it is this one.
        site = call.headers.get(b"sec-fetch-site")
        if origin is not None and origin.lower() != own and not (origin == "null" and site == "same-origin"):
            raise RequestRefused(
                "key.not_configured",
                f"a service without keys answers to pages of {own:.200} alone: configure a key (--key)",
            )

    async def enter(self, call: ServedCall) -> tuple[Grant, str]:
        """The grant of a request, and its space. Raises RequestRefused without a right key, or TooMany."""
        await self.keys.refresh()
        wanted = call.header(b"x-practicum-space")
        if not self.keys.required:
            self.require_local(call)
            call.grant, call.space = EVERYBODY, wanted or self._default
            return call.grant, call.space
        grant = call.grant = await self.keys.grant(self._key(call), call.address)
        self.keys.count(grant)
        if grant.space and wanted not in (None, grant.space):
            raise RequestRefused("key.forbidden", f"this key is for space {grant.space}, and not for {wanted:.80}")
        call.space = grant.space or wanted or self._default
        return grant, call.space

    async def enter_as(self, call: ServedCall, role: Role) -> str:
        """The space of a request that takes a role. Raises what `enter` raises, and Forbidden for another role."""
        grant, space = await self.enter(call)
        grant.require(role, "this")
        return space

    def require_local(self, call: ServedCall, *, pages: bool = False) -> None:
        """Refuse what could come from another machine, or from a page of another site, of a service without keys. A
        form of another origin is refused by the `pages`, which show what was written in it."""
        self._require_host(call)
        if not (pages and call.method == "POST"):
            self._require_origin(call)

    def _key(self, call: ServedCall) -> str:
        key = call.headers.get(b"x-practicum-key", "")
        if not key and not self.pass_key:
            scheme, _, bearer = call.headers.get(b"authorization", "").partition(" ")
            key = bearer.strip() if scheme.lower() == "bearer" else call.headers.get(b"x-api-key", "")
        if not key:
            where = "x-practicum-key: KEY" if self.pass_key else "Authorization: Bearer KEY"
            raise RequestRefused("key.missing", f"there is no key: send {where}")
        return key
