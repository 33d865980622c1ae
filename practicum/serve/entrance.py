"""Authentication: checks the key, the space and the origin of every request."""

from __future__ import annotations

from urllib.parse import urlsplit

from practicum.models.keys import is_loopback
from practicum.serve.access import LOCAL_OPERATOR, Grant, Keys, Role
from practicum.serve.call import ServedCall
from practicum.serve.request_checks import RequestRefused

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""Headers that proxies add to a request."""


class Entrance:
    """Check of every request to the service. `pass_key`: clients send the key of the service in `x-practicum-key`; the
    usual headers then have the client's own key for the upstream. `default` is the space of requests that name no
    space."""

    def __init__(self, keys: Keys, default: str, *, pass_key: bool) -> None:
        self.keys, self.pass_key, self._default = keys, pass_key, default

    def _require_host(self, call: ServedCall) -> None:
        """Refuse a request that may come from another machine, because the service has no keys."""
        host = call.headers.get(b"host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            raise RequestRefused("request.malformed", "the header `Host` is not a valid address") from None
        if not _FORWARDED.isdisjoint(call.headers):
            # `Host` proves nothing here: a proxy may name this machine in `Host` for requests from other machines.
            raise RequestRefused(
                "key.not_configured",
                "a service without keys accepts no requests from a proxy: configure a key (practicum key add)",
            )
        if not is_loopback(name):
            raise RequestRefused(
                "key.not_configured",
                "a service without keys only accepts requests from its own machine: configure a key (--key)",
            )

    def _require_origin(self, call: ServedCall) -> None:
        """Refuse a request that a browser may have sent for a page of another origin, as the service has no keys."""
        host, origin = call.headers.get(b"host", ""), call.headers.get(b"origin")
        own = f"{call.scope['scheme']}://{host}".lower()
        # Pages can hide their origin as "null", so accept "null" only if the browser reports the same origin.
        site = call.headers.get(b"sec-fetch-site")
        if origin is not None and origin.lower() != own and not (origin == "null" and site == "same-origin"):
            raise RequestRefused(
                "key.not_configured",
                f"a service without keys only accepts requests from pages of {own:.200}: configure a key (--key)",
            )

    async def enter(self, call: ServedCall) -> tuple[Grant, str]:
        """Return the grant and the space of a request. Raise RequestRefused if the request has no key, or names another
        space than the space of its key; Wrong if the key is unknown or expired; and TooMany above the rate limit of the
        key."""
        await self.keys.refresh()
        requested = call.header(b"x-practicum-space")
        if not self.keys.required:
            self.require_local(call)
            call.grant, call.space = LOCAL_OPERATOR, requested or self._default
            return call.grant, call.space
        grant = call.grant = await self.keys.grant(self._key(call), call.address)
        self.keys.count(grant)
        if grant.space and requested not in (None, grant.space):
            raise RequestRefused(
                "key.forbidden",
                f"this key is for space {grant.space}, not {requested:.80}: leave out x-practicum-space",
            )
        call.space = grant.space or requested or self._default
        return grant, call.space

    async def enter_as(self, call: ServedCall, role: Role) -> str:
        """Return the space of a request that needs a role. Raise the errors of `enter`, and Forbidden if the key lacks
        the role."""
        grant, space = await self.enter(call)
        grant.require(role, "this endpoint")
        return space

    def require_local(self, call: ServedCall, *, pages: bool = False) -> None:
        """Refuse a request that may come from another machine, or from a page of another origin, as the service has
        no keys. With `pages`, a form (POST) of another origin is not refused here: the pages refuse the form, and show
        the text that was entered."""
        self._require_host(call)
        if not (pages and call.method == "POST"):
            self._require_origin(call)

    def _key(self, call: ServedCall) -> str:
        key = call.headers.get(b"x-practicum-key", "")
        if not key and not self.pass_key:
            scheme, _, bearer = call.headers.get(b"authorization", "").partition(" ")
            key = bearer.strip() if scheme.lower() == "bearer" else call.headers.get(b"x-api-key", "")
        if not key:
            header = "x-practicum-key: KEY" if self.pass_key else "Authorization: Bearer KEY"
            raise RequestRefused("key.missing", f"no key in the request: send {header}")
        return key
