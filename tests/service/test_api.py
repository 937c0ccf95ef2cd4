"""The HTTP interface: who may ask for what, and that nothing a client sends does harm."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import shlex
import socket
import sqlite3
import threading
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from merge_bench.records.results_folder import ResultEntry
from merge_bench.service.api import LOCAL, ROUTES, ServiceLimits, openapi_document
from merge_bench.service.serve import ServiceResultsFolder
from tests.analysis.history.made_up import Nights, write
from tests.helpers.examples import examples
from tests.service.in_process import Running, running
from tests.service.schemas import ANYTHING, HOSTILE, values

DOCUMENT = openapi_document(ROUTES, "0")
RUN = {"command": "run", "options": {"chunk": "1e4"}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), ServiceLimits(queue=10**6, requests=10**9)) as found:
        yield found


def test_without_a_token_there_is_nothing_but_health(service: Running) -> None:
    assert service.ask("GET", "/api/health", token=None) == (200, {"ok": True})
    for route in (*ROUTES, None):
        if route is None or route.role is not None:
            method, path = (route.method, re.sub("{.*}", "1", route.path)) if route else ("GET", "/x")
            for token in (None, "", "wrong", service.tokens["ci"][:-1]):
                assert service.refused(401, method, path, {} if method == "POST" else None, token=token)
    assert service.refused(401, "GET", "/api/jobs", token=None, Authorization=f"Basic {service.tokens['ci']}")


def test_hosts_and_origins_that_are_not_its_own_are_refused(service: Running) -> None:
    own = f"127.0.0.1:{service.port}"
    for host in ("evil.example", "127.0.0.1", f"{own}0", f"evil.example:{service.port}"):
        assert service.refused(403, "GET", "/api/health", Host=host)["code"] == "wrong-host"
    for origin in ("http://evil.example", "null", f"ftp://{own}", "https://evil.example", f"http://{own}.evil.example"):
        assert service.refused(403, "POST", "/api/jobs", RUN, Origin=origin)["code"] == "wrong-origin"
    assert service.ask("GET", "/api/jobs", Origin=f"http://{own}")[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_a_body_is_json_and_says_so(service: Running, kind: str) -> None:
    assert service.refused(415, "POST", "/api/jobs", RUN, Content_Type=kind)["code"] == "not-json"
    assert service.refused(400, "POST", "/api/jobs", RUN, Content_Type="multipart/form-data; boundary=x")


def test_a_token_of_the_role_read_changes_nothing(service: Running) -> None:
    assert service.refused(403, "POST", "/api/jobs", RUN, token="reader")["code"] == "read-only"
    assert service.refused(403, "DELETE", "/api/jobs/1", token="reader")["code"] == "read-only"
    for path in ("/api/jobs", "/api/results", "/api/openapi.json"):
        assert service.ask("GET", path, token="reader")[0] == 200


def test_a_job_is_queued_shown_and_listed(service: Running) -> None:
    status, job = service.ask("POST", "/api/jobs", {**RUN, "key": "once"})
    assert (status, job["who"], job["command"]) == (201, "ci", "merge-bench run --chunk=1e4")
    assert service.ask("POST", "/api/jobs", {**RUN, "key": "once"})[1]["id"] == job["id"]
    shown = service.ask("GET", f"/api/jobs/{job['id']}")[1]
    assert (shown["id"], shown["settings"], shown["log"]) == (job["id"], {}, "")
    assert service.ask("GET", "/api/jobs?limit=1")[1]["jobs"][0]["id"] == job["id"]
    assert service.ask("GET", "/api/jobs?offset=1000000")[1]["jobs"] == []
    assert service.ask("GET", "/api/results")[1] == {"results": [], "total": 0}


def test_the_history_is_that_of_the_command(
    tmp_path_factory: pytest.TempPathFactory, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no result in" in service.refused(400, "GET", "/api/history")["message"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with running(tmp_path_factory.mktemp("nights"), ServiceLimits()) as found:
        write(found.folder / "results", Nights())
        write(found.folder / "results", Nights(count=2, config="shm"))
        status, answer = found.ask("GET", "/api/history?config=tcp&chunk=1000000&metric=wall&threshold=0.01")
        assert (status, answer["metric"]) == (200, "wall")
        assert [(len(each["results"]), [shift["result"] for shift in each["shifts"]]) for each in answer["series"]] == [
            (40, [30])
        ]
        assert [each["series"]["config"] for each in found.ask("GET", "/api/history?limit=1")[1]["series"]] == ["tcp"]
        assert "none of throughput" in found.refused(400, "GET", "/api/history?metric=speed")["message"]


def test_a_token_cancels_its_own_jobs_and_the_local_one_all(service: Running) -> None:
    number = service.ask("POST", "/api/jobs", RUN)[1]["id"]
    assert service.refused(403, "DELETE", f"/api/jobs/{number}", token="other")["code"] == "not-yours"
    assert service.ask("DELETE", f"/api/jobs/{number}")[0] == 200
    assert service.ask("DELETE", f"/api/jobs/{number}", token=LOCAL)[0] == 200
    assert service.refused(404, "DELETE", "/api/jobs/999999999999999999")["code"] == "no-such-job"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"command":"run"}x',
        b'{"command":1}',
        b'{"command":"run","more":1}',
        b'{"command":"run","options":[]}',
        b'{"command":"run","options":{"chunk":' + b"9" * 5000 + b"}}",
        b'{"command":"run","options":{"chunk":' + b"[" * 20000 + b"]" * 20000 + b"}}",
        b"[" * 60000,
        b'{"command":"\\ud800"}',
        b'{"command":"run","key":"\\u0000"}',
        b'{"command":"run","key":"' + b"a" * 101 + b'"}',
        b'{"command":"run","key":"schedule nightly x"}',
    ],
    ids=range(16),
)
def test_bodies_that_are_no_jobs_are_refused(service: Running, body: bytes) -> None:
    assert service.refused(400, "POST", "/api/jobs", body)["code"] in ("invalid", "refused")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "offset=-1", "x=1", "limit=%FF", "limit=1&limit=a"]
)
def test_parameters_are_checked(service: Running, query: str) -> None:
    assert service.refused(400, "GET", f"/api/jobs?{query}")
    assert service.refused(400, "GET", f"/api/jobs/1?{query}")


def test_other_methods_and_addresses_are_refused(service: Running) -> None:
    for path in (
        "/api",
        "/api/jobs/",
        "/api/jobs/x",
        "/api/jobs/-1",
        "/api/jobs/1/..",
        "/api/jobs/%31",
        "//api/jobs",
        f"/api/jobs/{'1' * 19}",
        "/api/../api/jobs",
        "/etc/passwd",
        "/%00",
        "/%ff",
    ):
        assert service.refused(404, "GET", path)["code"] == "no-such-address"
    assert service.refused(405, "PUT", "/api/jobs", RUN)["code"] == "no-such-method"
    assert service.refused(405, "TRACE", "/api/jobs")
    assert service.refused(400, "GET", "/api/jobs", RUN)["code"] == "body"


def test_a_body_that_is_too_long_is_not_read(service: Running) -> None:
    head = f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\nContent-Length: 99999999\r\n\r\n".encode()
    assert service.raw(head).startswith(b"HTTP/1.1 400 ")


def test_requests_a_minute_and_the_queue_are_limited(tmp_path: Path) -> None:
    now = 60.0
    limits = ServiceLimits(queue=2, requests=5)
    with running(tmp_path, limits, job=("sleep", "600"), clock=lambda: now) as found:
        found.occupy()
        assert [found.ask("POST", "/api/jobs", RUN)[0] for _ in range(3)] == [201, 201, 429]
        assert [found.ask("GET", "/api/jobs")[0] for _ in range(3)] == [200, 200, 429]
        assert [found.ask("GET", "/api/jobs", token=None)[0] for _ in range(6)] == [401] * 5 + [429]
        assert found.ask("GET", "/api/jobs", token="reader")[0] == 200
        now = 120.0
        assert found.ask("GET", "/api/jobs")[0] == 200


def test_health_is_answered_while_results_are_read_and_only_some_wait(tmp_path: Path) -> None:
    reading, go_on = threading.Semaphore(0), threading.Event()

    class SlowResults(ServiceResultsFolder):
        def entries(self) -> tuple[ResultEntry, ...]:
            reading.release()
            assert go_on.wait(60)
            return ()

    slow = running(tmp_path, ServiceLimits(), make_results=SlowResults)
    with slow as found, ThreadPoolExecutor(30) as clients:
        asked = [clients.submit(found.ask, "GET", "/api/results") for _ in range(30)]
        assert reading.acquire(timeout=60)
        assert found.ask("GET", "/api/health", token=None) == (200, {"ok": True})
        assert found.ask("GET", "/api/jobs")[0] == 200
        refused = next(as_completed(asked)).result()
        assert (refused[0], refused[1]["error"]["code"]) == (429, "busy")
        go_on.set()
        assert {each.result()[0] for each in asked} == {200, 429}


@contextlib.contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """A limit of this process, with which writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_no_mistake_of_the_service(tmp_path: Path) -> None:
    with running(tmp_path, ServiceLimits(), job=("sleep", "600")) as found:
        found.occupy()  # so that the service stores nothing by itself
        with no_file_grows_beyond((tmp_path / "service.sqlite-wal").stat().st_size):
            refused = found.refused(503, "POST", "/api/jobs", RUN)
            assert "the service cannot store anything now" in refused["message"]
            assert found.ask("GET", "/api/jobs")[0] == 200
        assert found.ask("POST", "/api/jobs", RUN)[0] == 201
        assert found.mistakes == []


def test_the_document_has_every_request_and_its_references_exist(service: Running) -> None:
    status, found = service.ask("GET", "/api/openapi.json")
    assert status == 200
    assert {(method.upper(), path) for path, each in found["paths"].items() for method in each} == {
        (route.method, route.path) for route in ROUTES
    }
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(found)):
        assert name in found["components"]["schemas"]


@pytest.mark.slow
def test_records_of_any_size_are_sent_as_they_are(tmp_path: Path) -> None:
    with running(tmp_path, ServiceLimits()) as found:
        number = found.ask("POST", "/api/jobs", RUN)[1]["id"]
        path = f"/api/jobs/{number}/records"
        assert found.refused(404, "GET", path, token="reader")["code"] == "no-records"
        assert found.refused(404, "GET", "/api/jobs/99/records")["code"] == "no-such-job"
        while found.ask("GET", f"/api/jobs/{number}")[1]["state"] != "done":
            pass
        with sqlite3.connect(tmp_path / "service.sqlite") as other:
            other.execute("UPDATE jobs SET result = 'result'")
        records = b"x" * 30_000_000 + b"\xff\n"
        (tmp_path / "results/result").mkdir()
        (tmp_path / "results/result/records.jsonl").write_bytes(records)
        head = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{found.port}\r\n"
        request = f"{head}Authorization: Bearer {found.tokens['reader']}\r\n\r\n".encode()
        answer, _, body = found.raw(request).partition(b"\r\n\r\n")
        assert b"Content-Type: application/x-ndjson" in answer
        assert body == records
        with socket.create_connection(("127.0.0.1", found.port)) as leaving:
            leaving.sendall(request)
            leaving.recv(1)
        time.sleep(0.5)  # the service notices that later
        assert found.ask("GET", "/api/health", token=None)[0] == 200
        assert found.mistakes == []


def requests() -> st.SearchStrategy[tuple[str, str, bytes | None]]:
    """Methods, addresses and bodies, made from the OpenAPI document, with mistakes."""
    found: list[st.SearchStrategy[tuple[str, str, bytes | None]]] = []
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            query = {}
            address: st.SearchStrategy[str] = st.just(path)
            for each in operation.get("parameters", ()):
                value = values(each["schema"], DOCUMENT).map(_in_address)
                if each["in"] == "path":
                    place = f"{{{each['name']}}}"
                    address = value.map(lambda text, path=path, place=place: path.replace(place, text))
                else:
                    query[each["name"]] = value
            queries = st.fixed_dictionaries({}, optional=query).map(
                lambda given: "&".join(map("=".join, given.items()))
            )
            bodies: st.SearchStrategy[bytes | None] = st.none()
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                bodies = values(schema, DOCUMENT).map(lambda value: json.dumps(value).encode())
                bodies = bodies | bodies | st.binary(max_size=60)
            methods_of = st.sampled_from([method.upper()] * 6 + ["PATCH", "PUT", "OPTIONS"])
            found.append(st.tuples(methods_of, st.builds("{}?{}".format, address, queries), bodies))
    anywhere = (HOSTILE | st.text(max_size=30)).map(lambda text: "/" + _in_address(text))
    found.append(
        st.tuples(st.sampled_from(["GET", "POST", "DELETE"]), anywhere, ANYTHING.map(json.dumps).map(str.encode))
    )
    return st.one_of(found[0], found[0], *found)  # jobs more often


def _in_address(value: object) -> str:
    return urllib.parse.quote(str(value), errors="replace")


@pytest.mark.slow
@examples(400)
@hypothesis.given(requests(), st.sampled_from(["ci", "ci", "ci", "reader", None]))
def test_no_request_is_a_mistake_of_the_service(
    service: Running, request: tuple[str, str, bytes | None], token: str | None
) -> None:
    """With `--soak` 4,000 requests. Whatever is accepted is of the three commands with plain words."""
    method, address, body = request
    status, answer = service.ask(method, address, body, token=token)
    assert status < 500, answer
    assert "Traceback" not in json.dumps(answer)
    assert service.mistakes == []
    if token is None and status == 200:
        assert answer == {"ok": True} or address.partition("?")[0] in ("/", "/login")
    if status == 201:
        words = shlex.split(answer["command"])[1:]
        assert words[0] in ("run", "tune", "probe")
        assert all(word.startswith("--") for word in words[1 + (words[0] != "run") :])
    assert {each.name for each in service.folder.iterdir()} <= {
        "results",
        "tables",
        "jobs",
        "service.sqlite",
        "service.sqlite-wal",
        "service.sqlite-shm",
    }
    assert list((service.folder / "results").iterdir()) == []


@pytest.mark.slow
@examples(100)
@hypothesis.given(
    st.lists(
        st.sampled_from(
            [
                b"GET /api/jobs HTTP/1.1\r\n",
                b"POST /api/jobs HTTP/1.1\r\n",
                b"Host: 127.0.0.1\r\n",
                b"\r\n",
                b"Content-Length: -1\r\n",
                b"Content-Length: 5\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"Content-Type: multipart/form-data\r\n",
                b"X" * 70000 + b": 1\r\n",
                b"GET http://x/ HTTP/9.9\r\n",
                b"Content-Encoding: gzip\r\n",
                b"Expect: 100-continue\r\n",
                b"Cookie: \xff\xfe=\x00\r\n",
                b"ffffffff\r\n",
                b"{}",
                b"\x16\x03\x01",
            ]
        )
        | st.binary(max_size=20),
        min_size=1,
        max_size=8,
    ).map(b"".join)
)
def test_no_bytes_are_a_mistake_of_the_service(service: Running, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        found = service.raw(data, 0.1)
        assert not re.match(rb"HTTP/1.\d 5|HTTP/1.\d 2(?!00 OK\r\n.*ok)", found, re.S), found
        assert b"Traceback" not in found
    assert service.mistakes == []
    assert service.ask("GET", "/api/health", token=None)[0] == 200
