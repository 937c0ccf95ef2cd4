"""The handler of every request, which checks its host, origin, token and size before anything else."""

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
_NoFields = msgspec.defstruct("_NoFields", (), forbid_unknown_fields=True)


class Api(RequestHandler):
    """Checks and answers a request, whatever its path."""

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
        """Gives no answer a tag to cache it by."""

    async def prepare(self) -> None:
        """Check the request and answer it, whatever its method: tornado's methods `get`, `post`, … are not used."""
        try:
            route, authorized = self._authorize()
            answer = await self._answer(route, authorized)
            self.set_status(route.status)
            self.set_header("Content-Type", route.content)
            if not isinstance(answer, Path):
                await self.finish(msgspec.json.encode(answer))
                return
            with contextlib.suppress(StreamClosedError):
                for piece in StaticFileHandler.get_content(str(answer)):  # a file of any size, which may grow
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
        """Answer in a thread, slow routes one at a time; health at once, whatever others ask for."""
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
        """The route of the request, and what the route's answer takes; raises `Refused`."""
        service, request = self.service, self.request
        check_host_and_origin(service, request)
        if service.only_pages:
            raise Refused(403, "only-pages", "open the whole address that merge-bench dashboard printed")
        matches = ((route, route.pattern.fullmatch(request.path)) for route in ROUTES)
        routes = {route.method: (route, "".join(match.groups())) for route, match in matches if match}
        route, key = routes.get(request.method or "", (None, ""))
        if route is not None and route.role is None:
            return route, AuthorizedRequest(
                Token("", "read"), request.headers["Host"], self._checked_input(route) if route.takes else None
            )
        token = self._find_token()
        if not routes:
            raise Refused(404, "no-such-address", "there is nothing at this address; see /api/openapi.json")
        if route is None:
            self.set_header("Allow", ", ".join(routes))
            raise Refused(405, "no-such-method", "this address does not have that method")
        if route.role == "run" and token.role != "run":
            raise Refused(403, "read-only", "this token can only read; ask for one with the role run")
        return route, AuthorizedRequest(token, key, self._checked_input(route))

    def _find_token(self) -> Token:
        """The token in the request's header; raises `Refused` if it is not known, or made too many requests."""
        kind, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        token = self.service.store.find_token(secret.strip()) if kind.lower() == "bearer" and secret else None
        if self.service.too_many_requests(token or self.request.remote_ip):
            self.set_header("Retry-After", "60")
            raise Refused(429, "too-many-requests", "too many requests in this minute; wait for the next one")
        if token is None:
            self.set_header("WWW-Authenticate", "Bearer")
            why = "this token is not known" if secret else "this needs a token: Authorization: Bearer TOKEN"
            raise Refused(401, "no-token", why)
        return token

    def _checked_input(self, route: Route) -> Any:
        """The body or the query of the request as the type that `route` takes; raises `Refused`."""
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
            return msgspec.convert(query, route.takes or _NoFields, strict=False)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else visible(str(error))[:300]
            raise Refused(400, "invalid", f"the request is not valid: {why}") from None

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.set_status(status)
        self.finish(msgspec.json.encode(d.Refusal(error=d.Problem(code=code, message=message))))

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answer with an error that tornado found, or with one for a mistake of this program, which is logged."""
        sentences = {400: "the request cannot be understood", 405: "this method does not exist"}
        message = sentences.get(status_code, "the service made a mistake; its log has more")
        self._refuse(status_code, f"http-{status_code}", message)

    def log_exception(self, kind: Any, value: Any, trace: Any) -> None:
        """Log mistakes of this program only."""
        if not isinstance(value, HTTPError):
            _LOGGER.error("a request failed", exc_info=(kind, value, trace))


def check_host_and_origin(service: Service, request: HTTPServerRequest) -> None:
    """Raise `Refused` if ``Host`` is no name of the service, or ``Origin`` says that a page of another site asks."""
    if request.headers.get("Host", "").lower() not in service.hosts:
        raise Refused(403, "wrong-host", "this name is not one of the service's own; see serve --host-name")
    origin = request.headers.get("Origin")
    scheme, _, host = (origin or "").lower().partition("://")
    # A proxy may speak TLS for a service that does not.
    if origin is not None and (host not in service.hosts or scheme not in (service.scheme, "https")):
        raise Refused(403, "wrong-origin", "pages of other sites cannot use this service")
