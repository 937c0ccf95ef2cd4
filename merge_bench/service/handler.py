"""The handler of every request: host, origin, token and size are checked before anything else is done with it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from asyncio import get_running_loop
from pathlib import Path
from typing import Any

import msgspec
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, StaticFileHandler

from merge_bench.errors import UsageError
from merge_bench.service import documents as d
from merge_bench.service.api import ROUTES, AuthorizedRequest, Route, Service
from merge_bench.service.store import Refused, Token
from merge_bench.view.text import visible

_LOGGER = logging.getLogger(__name__)
_Nothing = msgspec.defstruct("_Nothing", (), forbid_unknown_fields=True)


class Api(RequestHandler):
    """Answers every request, to whatever path."""

    def initialize(self, service: Service) -> None:
        """Called by tornado with what the application has for this handler."""
        self.service = service

    def set_default_headers(self) -> None:
        """Called by tornado before each answer."""
        self.clear_header("Server")
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    def compute_etag(self) -> None:
        """No answer is cached."""

    async def prepare(self) -> None:
        """Check the request and answer it; tornado's methods by name are not used."""
        try:
            route, authorized = self._authorize()
            found = await self._answer(route, authorized)
            self.set_status(route.status)
            self.set_header("Content-Type", route.content)
            if not isinstance(found, Path):
                await self.finish(msgspec.json.encode(found))
                return
            with contextlib.suppress(StreamClosedError):
                for piece in StaticFileHandler.get_content(str(found)):  # a file of any size, which may grow meanwhile
                    self.write(piece)
                    await self.flush()
            self.finish()
        except Refused as refused:
            self._refuse(refused.status, refused.code, str(refused))
        except UsageError as error:
            self._refuse(400, "refused", str(error))
        except sqlite3.OperationalError as error:  # a full disk, for example
            self._refuse(503, "storage", f"the service cannot store anything now: {error}")

    async def _answer(self, route: Route, authorized: AuthorizedRequest) -> Any:
        """In a thread, and of what takes long one at a time: health is answered at once, whatever others ask for."""
        service, loop = self.service, get_running_loop()
        if route.role is None:
            return route.answer(service, authorized)
        if not route.slow:
            return await loop.run_in_executor(service.threads, route.answer, service, authorized)
        if service.waiting.locked():
            raise Refused(429, "busy", "others wait for results already; try again later")
        async with service.waiting:
            return await loop.run_in_executor(service.slow, route.answer, service, authorized)

    def _authorize(self) -> tuple[Route, AuthorizedRequest]:
        """The route and what it needs; raises `Refused`."""
        service, request = self.service, self.request
        check_place(service, request)
        if service.only_pages:
            raise Refused(403, "only-pages", "open the whole address that merge-bench dashboard printed")
        matches = ((route, route.pattern.fullmatch(request.path)) for route in ROUTES)
        routes = {route.method: (route, "".join(match.groups())) for route, match in matches if match}
        route, key = routes.get(request.method or "", (None, ""))
        if route is not None and route.role is None:
            return route, AuthorizedRequest(
                Token("", "read"), request.headers["Host"], self._value(route) if route.takes else None
            )
        token = self._token()
        if not routes:
            raise Refused(404, "no-such-address", "there is nothing at this address; see /api/openapi.json")
        if route is None:
            self.set_header("Allow", ", ".join(routes))
            raise Refused(405, "no-such-method", "this address does not have that method")
        if route.role == "run" and token.role != "run":
            raise Refused(403, "read-only", "this token can only read; ask for one with the role run")
        return route, AuthorizedRequest(token, key, self._value(route))

    def _token(self) -> Token:
        """Whose token the request has."""
        kind, _, given = self.request.headers.get("Authorization", "").partition(" ")
        token = self.service.store.find_token(given.strip()) if kind.lower() == "bearer" and given else None
        if self.service.over_limit(token or self.request.remote_ip):
            self.set_header("Retry-After", "60")
            raise Refused(429, "too-many-requests", "too many requests in this minute; wait for the next one")
        if token is None:
            self.set_header("WWW-Authenticate", "Bearer")
            why = "this token is not known" if given else "this needs a token: Authorization: Bearer TOKEN"
            raise Refused(401, "no-token", why)
        return token

    def _value(self, route: Route) -> Any:
        """The body or the query, checked."""
        if route.method == "POST":
            kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "not-json", "the body must have the Content-Type application/json")
        elif self.request.body:
            raise Refused(400, "body", "this request takes no body")
        try:
            if route.method == "POST":
                return msgspec.json.decode(self.request.body, type=route.takes)
            query = {name: values[-1].decode() for name, values in self.request.query_arguments.items()}
            return msgspec.convert(query, route.takes or _Nothing, strict=False)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else visible(str(error))[:300]
            raise Refused(400, "invalid", f"the request is not valid: {why}") from None

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.set_status(status)
        self.finish(msgspec.json.encode(d.Refusal(error=d.Problem(code=code, message=message))))

    def write_error(self, status_code: int, **given: Any) -> None:
        """Tornado's own refusals, and mistakes of this program, which are logged."""
        known = {400: "the request cannot be understood", 405: "this method does not exist"}
        message = known.get(status_code, "the service made a mistake; its log has more")
        self._refuse(status_code, f"http-{status_code}", message)

    def log_exception(self, kind: Any, value: Any, trace: Any) -> None:
        """Log mistakes of this program only."""
        if not isinstance(value, HTTPError):
            _LOGGER.error("a request failed", exc_info=(kind, value, trace))


def check_place(service: Service, request: HTTPServerRequest) -> None:
    """Raise `Refused` for a name that is not the service's own, and for pages of other sites."""
    if request.headers.get("Host", "").lower() not in service.hosts:
        raise Refused(403, "wrong-host", "this name is not one of the service's own; see serve --host-name")
    origin = request.headers.get("Origin")
    scheme, _, host = (origin or "").lower().partition("://")
    # A proxy may speak TLS for a service that does not.
    if origin is not None and (host not in service.hosts or scheme not in (service.scheme, "https")):
        raise Refused(403, "wrong-origin", "pages of other sites cannot use this service")
