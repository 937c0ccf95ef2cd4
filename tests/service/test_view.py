"""The pages of the service: who gets them, what a token that only reads can do there, and what they do meanwhile."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import types
import zlib
from collections.abc import Iterator
from functools import partial
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from merge_bench.errors import MergeBenchError
from merge_bench.records.results_folder import YOURS
from merge_bench.records.writer import RECORDS
from merge_bench.service.api import ROUTES, ServiceLimits
from merge_bench.service.serve import ServiceResults, TokenQueue
from merge_bench.service.store import SESSION_SECONDS, Sessions
from tests.helpers.synthetic_campaigns import write_campaign
from tests.service.in_process import Running, running
from tests.service.test_api import RUN

PAGES = ("/", "/ws", "/static/js/bokeh.min.js", "/static/extensions/panel/panel.min.js")
FORBIDDEN = ("/metadata", "/autoload.js?bokeh-autoload-element=1", "/static", "/index", "/login/x", "/.service/token")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), ServiceLimits(queue=10**6, requests=10**9)) as found:
        yield found


@pytest.fixture
def waiting_jobs(tmp_path: Path) -> Iterator[Running]:
    """A service in which every job that is added waits for the one that runs."""
    with running(tmp_path, ServiceLimits(), job=("sleep", "600")) as found:
        found.occupy()
        yield found


def get(
    service: Running,
    path: str = "/",
    token: str | None = None,
    method: str = "GET",
    body: str | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of the answer; `token`: whose session it is; an unknown one is sent as the cookie."""
    sent = {"Host": f"127.0.0.1:{service.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        base, cookie = session_of(service, token) if token in service.tokens else ("", token)
        sent["Cookie"] = f"merge-bench-{service.port}={cookie}"
        path = base + path
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode(errors="replace")
    finally:
        connection.close()


def session_of(service: Running, token: str) -> tuple[str, str]:
    """The path and the cookie of a new session."""
    path, cookie = service.service.page_sessions.begin_session(service.tokens.get(token, token))
    return f"/{path}", cookie


def log_in(service: Running, token: str, **headers: str) -> tuple[int, dict[str, str], str]:
    kind = {"Content_Type": "application/x-www-form-urlencoded"} | headers
    return get(service, "/login", method="POST", body=f"token={service.tokens.get(token, token)}", **kind)


@pytest.mark.slow
def test_a_token_becomes_a_session_that_scripts_cannot_read_and_other_sites_cannot_send(service: Running) -> None:
    status, headers, _ = log_in(service, "reader")
    cookie, *words = headers["Set-Cookie"].split("; ")
    assert (status, f"Path={headers['Location']}") == (303, words[1])
    assert re.fullmatch(r"/[\w-]{32}/", headers["Location"])
    assert cookie.startswith(f"merge-bench-{service.port}=")
    assert service.tokens["reader"] not in str(headers)
    assert {words[0], *words[2:]} == {"HttpOnly", "SameSite=Strict"}
    assert get(service, headers["Location"], Cookie=cookie)[0] == 200
    for body in ("wrong", "", "\x00", "%ff", "{", "[1]", '{"token": 1}', "<script>"):
        status, headers, page = log_in(service, body)
        assert status in (400, 401)
        assert "Set-Cookie" not in headers
        assert "<script" not in page
    assert log_in(service, "reader", Origin="http://evil.example")[0] == 403
    assert "frame-ancestors 'none'" in get(service)[1]["Content-Security-Policy"]


def test_what_a_page_on_another_port_receives_is_worth_nothing(service: Running) -> None:
    """A browser sends its cookies to all ports of a host, but these to one path only."""
    jar = CookieJar()
    form = f"token={service.tokens['ci']}".encode()
    with build_opener(HTTPCookieProcessor(jar)).open(f"http://127.0.0.1:{service.port}/login", form) as answer:
        assert answer.status == 200
        own = answer.url
    for there, sent in ((f"http://127.0.0.1:{service.port + 1}/", None), (own, "merge-bench-")):
        request = Request(there)
        jar.add_cookie_header(request)
        assert (request.get_header("Cookie") or "x").startswith(sent or "x")
    (cookie,) = jar
    for path in ("/", "/ws", "/static/js/bokeh.min.js"):  # even if it got the cookie, it does not know the path
        status, _, page = get(service, path, Cookie=f"{cookie.name}={cookie.value}")
        assert status == 401 or 'name="token"' in page
    assert service.ask("GET", "/api/jobs", token=str(cookie.value))[0] == 401
    for other in (session_of(service, "ci"), session_of(service, "reader")):
        assert 'name="token"' in get(service, f"{other[0]}/", Cookie=f"{cookie.name}={cookie.value}")[2]


def test_a_session_ends_with_its_token_at_a_logout_after_its_time_and_with_the_service(service: Running) -> None:
    def opens(session: tuple[str, str]) -> bool:
        status, _, page = get(service, f"{session[0]}/", Cookie=f"merge-bench-{service.port}={session[1]}")
        assert status == 200
        return 'name="token"' not in page

    token = service.store.add_token("leaver", "run")
    removed, left = session_of(service, token), session_of(service, "ci")
    assert opens(removed)
    service.store.remove_token("leaver")
    service.store.add_token("leaver", "run")
    assert not opens(removed)
    status, headers, _ = get(service, f"{left[0]}/logout", Cookie=f"merge-bench-{service.port}={left[1]}")
    assert (status, headers["Location"]) == (303, "/")
    assert f'{service.port}="";' in headers["Set-Cookie"]
    assert not opens(left)
    now = 1000.0
    sessions = Sessions(service.store, clock=lambda: now)
    path, cookie = sessions.begin_session(service.tokens["reader"])
    assert not Sessions(service.store, clock=lambda: now).has_session(path, cookie)
    for seconds, valid in ((0, True), (SESSION_SECONDS - 1, True), (1, False)):
        now += seconds
        assert sessions.has_session(path, cookie) is valid


def test_without_a_token_there_is_nothing_but_health_the_icon_and_the_form(service: Running) -> None:
    assert get(service, "/favicon.ico")[0] == 200
    assert 'name="token"' in get(service)[2]
    assert 'name="token"' in get(service, "/login")[2]
    for path in (*PAGES[1:], *FORBIDDEN, *(route.path.replace("{id}", "1") for route in ROUTES if route.role)):
        for token in (None, "wrong", service.tokens["ci"][:-1]):
            assert get(service, path, token)[0] == 401, path
    assert service.ask("GET", "/api/health", token=None) == (200, {"ok": True})


@pytest.mark.slow
def test_with_a_token_there_are_pages_and_nothing_else_and_the_page_does_not_contain_the_token(
    service: Running,
) -> None:
    for path in PAGES:
        status, _, page = get(service, path, "reader")
        assert status == (400 if path == "/ws" else 200), path  # a websocket needs an upgrade
        assert service.tokens["reader"] not in page
    session = re.search(r'"token":"([\w.-]+)"', get(service, "/", "reader")[2])
    assert session is not None
    assert b"merge-bench-" not in _decoded(session[1])
    assert b"SameSite" not in _decoded(session[1])
    for path in FORBIDDEN:
        assert get(service, path, "reader")[0] in (401, 404), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert get(service, "/", "reader", method)[0] == 401
    assert get(service, "/api/jobs", "reader")[0] == 401  # the API takes no cookies


def _decoded(token: str) -> bytes:
    payload = token.partition(".")[0]
    found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    packed = found.get("__bk__zlib_", "")
    return json.dumps(found).encode() + zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))


def test_pages_have_the_hosts_of_the_service_and_nobody_elses(service: Running) -> None:
    for host in ("evil.example", f"evil.example:{service.port}", "127.0.0.1"):
        for path in (*PAGES, "/login"):
            assert get(service, path, "ci", Host=host)[0] == 403, (host, path)
    for origin in ("null", "http://evil.example", f"ftp://127.0.0.1:{service.port}"):
        assert get(service, "/", "ci", Origin=origin)[0] == 403


@pytest.mark.slow
def test_the_websocket_needs_the_cookie_and_the_origin_of_the_service(service: Running) -> None:
    own = f"http://127.0.0.1:{service.port}"
    base, secret = session_of(service, "ci")
    cookie = f"merge-bench-{service.port}={secret}"
    session = re.search(r'"token":"([\w.-]+)"', get(service, f"{base}/", Cookie=cookie)[2])
    assert session is not None

    async def connect(path: str = base, **headers: str) -> WebSocketClientConnection:
        request = HTTPRequest(f"ws://127.0.0.1:{service.port}{path}/ws", headers=headers, request_timeout=30)
        return await websocket_connect(request, subprotocols=["bokeh", session[1]])

    async def check() -> None:
        for headers, status in (
            ({"Origin": own}, 401),
            ({"Origin": own, "Cookie": f"{cookie}x"}, 401),
            ({"Origin": own, "Cookie": cookie, "path": ""}, 401),
            ({"Origin": "http://evil.example", "Cookie": cookie}, 403),
        ):
            with pytest.raises(HTTPClientError) as refused:
                await connect(**headers)
            assert refused.value.code == status
        connection = await connect(Origin=own, Cookie=cookie)
        assert "ACK" in str(await connection.read_message())
        connection.close()

    asyncio.run(check())


def test_what_is_asked_of_the_form_counts(tmp_path: Path) -> None:
    now = 60.0
    with running(tmp_path, ServiceLimits(requests=5), clock=lambda: now) as found:
        assert [log_in(found, "wrong")[0] for _ in range(6)] == [401] * 5 + [429]
        assert log_in(found, "ci")[0] == 429
        now = 120.0
        status, headers, _ = log_in(found, "ci")
        assert status == 303
        path, cookie = headers["Location"], headers["Set-Cookie"].partition(";")[0]
        assert 'name="token"' not in get(found, path, Cookie=cookie)[2]
        now += SESSION_SECONDS
        assert 'name="token"' in get(found, path, Cookie=cookie)[2]


def test_while_a_job_runs_no_result_but_that_of_the_job_and_of_the_one_before_is_looked_at(tmp_path: Path) -> None:
    class FakeRunner:
        current: Any = None

        def find_result(self, job: Any) -> str | None:
            return job.result

    def job(number: int, result: str | None) -> Any:
        return types.SimpleNamespace(id=number, attempts=1, result=result)

    def listed() -> dict[str, str]:
        return {entry.folder.name: entry.status for entry in index.entries() if entry.origin == YOURS}

    old, first, second, foreign = (write_campaign(tmp_path, end=None) for _ in range(4))
    moved = [folder.rename(tmp_path / f"later-{folder.name}") for folder in (first, second, foreign)]
    runner = FakeRunner()
    index = ServiceResults(tmp_path, runner, hold_seconds=0.0)
    assert len(listed()) == 4
    for folder in moved:
        folder.rename(tmp_path / folder.name.removeprefix("later-"))
    runner.current = job(1, None)
    assert first.name not in listed()
    runner.current = job(1, first.name)
    assert listed()[first.name] == "unfinished"
    runner.current = job(2, second.name)
    with (first / RECORDS).open("ab") as stream:
        stream.write(b'{"schema":1,"kind":"end","time":1.0,"status":0}\n')
    found = listed()
    assert (found[first.name], found[second.name]) == ("done", "unfinished")
    assert old.name in found
    assert foreign.name not in found


def test_a_token_that_only_reads_sees_jobs_and_cancels_none_and_one_that_was_removed_sees_nothing(
    waiting_jobs: Running,
) -> None:
    service = waiting_jobs
    number = service.ask("POST", "/api/jobs", RUN)[1]["id"]
    api: Any = service.service

    def holder(token: str) -> Any:
        return partial(service.store.find_token, token)

    for name, may in (("reader", False), ("other", False), ("ci", True), ("local", True)):
        assert TokenQueue(api, holder(service.tokens[name])).job(number).cancellable is may
        assert service.ask("GET", f"/api/jobs/{number}", token=name)[1]["cancellable"] is may
    for name in ("reader", "other"):
        with pytest.raises(MergeBenchError, match="another token"):
            TokenQueue(api, holder(service.tokens[name])).cancel(number)
    queue = TokenQueue(api, holder(service.store.add_token("guest", "read")))
    assert queue.jobs().jobs[0].id == number
    service.store.remove_token("guest")
    for ask in (queue.jobs, lambda: queue.job(number), lambda: queue.cancel(number)):
        with pytest.raises(MergeBenchError, match="was removed"):
            ask()
    assert TokenQueue(api, holder(service.tokens["ci"])).cancel(number).state == "cancelled"
