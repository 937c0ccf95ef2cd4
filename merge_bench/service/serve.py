"""The `serve` command: opens the folder of the service, listens, and runs jobs until a signal ends it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import resource
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream
from tornado.netutil import bind_unix_socket

from merge_bench.config.files import open_regular
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.files import make_cache_folder
from merge_bench.host.network import free_port, in_url, is_loopback, origins
from merge_bench.service.api import Limits, Service
from merge_bench.service.rules import Rules
from merge_bench.service.runner import Runner
from merge_bench.service.schedules import LOOK_SECONDS, queue_due
from merge_bench.service.store import FOLDER, LOCAL, Store, open_store

TOKEN_FILE, SOCKET = "token", "socket"
_HOST_NAME = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?", re.ASCII)
_IDLE_SECONDS, _BODY_SECONDS, _HEADER_BYTES, _MOST_CONNECTIONS = 10.0, 30.0, 16 << 10, 256


@dataclass(frozen=True)
class Settings:
    """What the operator chose.

    `tables`: folders whose tables jobs may read; `host_names`: by which clients reach the service, beside its address,
    each with the port of a proxy if there is one; `tls_cert`, `tls_key`: files; `insecure`: serve another address than
    loopback without them.
    """

    results: Path
    port: int
    address: str
    tables: Sequence[Path] = ()
    host_names: Sequence[str] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)


class _Server(HTTPServer):
    """Takes so many connections at a time: anybody can open them, and files are left for jobs."""

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._connections) < min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            super().handle_stream(stream, address)
        else:
            stream.close()


def serve(settings: Settings) -> int:
    """Serve until a signal ends it. A job that runs then is interrupted, and found again at the next start.

    Raises
    ------
    UsageError
        If another service uses the folder, or this machine cannot listen there.
    """
    from bokeh.server.server import BaseServer

    from merge_bench.service.pages import Gate, QuietResults
    from merge_bench.view.dashboard.serve import run_until_signal

    os.umask(0o077)  # what jobs write is for the service's user, who gives it to those who have a token
    results = settings.results.resolve()
    context = _checked(settings)
    with _opened(results, to_serve=True) as store:
        port = free_port(settings.address, settings.port)
        token = _local_token(store, results / FOLDER / TOKEN_FILE)
        runner = Runner(store, results / FOLDER / "jobs", results, job_seconds=settings.limits.job_seconds)
        index = QuietResults(results, runner)
        service = Service(
            store=store, runner=runner, rules=Rules(results, settings.tables), limits=settings.limits,
            hosts=_hosts(settings, port), scheme="https" if context else "http", results=index,
        )  # fmt: skip
        logging.getLogger("tornado.general").setLevel(logging.ERROR)  # what it says about malformed requests
        gate = Gate(service, index)
        server = _Server(
            gate, ssl_options=context, max_body_size=settings.limits.body_bytes,
            max_header_size=_HEADER_BYTES, idle_connection_timeout=_IDLE_SECONDS, body_timeout=_BODY_SECONDS,
        )  # fmt: skip
        pages = BaseServer(IOLoop.current(), gate.pages, server)
        server.listen(port, settings.address)
        if context is None:  # for programs that cannot ask for a proof, such as curl; no other user can open the folder
            with contextlib.suppress(OSError):  # its path is too long
                server.add_socket(bind_unix_socket(str(results / FOLDER / SOCKET), mode=0o600))
        pages.start()
        runner.start()
        loop: Any = IOLoop.current()
        due = (queue_due, store, service.rules, settings.limits.queue, runner.wake)
        PeriodicCallback(lambda: loop.run_in_executor(service.threads, *due), LOOK_SECONDS * 1000).start()
        run_until_signal(
            f"service of {settings.results}/", f"{service.scheme}://{in_url(settings.address)}:{port}/",
            [f"Your token is in {token}."],
            closing=(pages.stop, runner.close, service.threads.shutdown, service.slow.shutdown),
        )  # fmt: skip
    return 0


def check(settings: Settings) -> str:
    """The newest job, or none; raises RunFailed if something is wrong with the settings or the folder."""
    results = settings.results.resolve()
    try:
        _checked(settings)
        with _opened(results, to_serve=False) as store:
            free_port(settings.address, settings.port)
            if problem := store.problem():
                raise UsageError(f"the file of jobs is damaged: {problem}; restore a copy of {results / FOLDER}")
            return next((f"job {job.id}" for job in store.jobs(limit=1)), "none")
    except UsageError as error:
        raise RunFailed(str(error)) from None


def _checked(settings: Settings) -> ssl.SSLContext | None:
    """The certificate, if there is one; raises UsageError for settings that do not work."""
    for folder in settings.tables:
        if not folder.is_dir():
            raise UsageError(f"--tables {folder} is not a folder")
    for name in settings.host_names:
        if not _HOST_NAME.fullmatch(name):
            raise UsageError(f"--host-name {name} is not a name of a host; give NAME, or NAME:PORT for a proxy")
    if not settings.tls_cert:
        if not is_loopback(settings.address) and not settings.insecure:
            raise UsageError(
                f"other machines can reach {settings.address}, and tokens would cross the network unencrypted; give"
                " --tls-cert and --tls-key, or --insecure if nobody else can read that network"
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        for file in filter(None, (settings.tls_cert, settings.tls_key)):
            open_regular(file).close()  # a pipe would be waited for
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use --tls-cert {settings.tls_cert} with its key: {error}") from None
    return context


def _hosts(settings: Settings, port: int) -> frozenset[str]:
    """The values of ``Host`` in requests to this service; others come from pages that renamed this machine."""
    named = [name if re.search(r":\d+$", name) else f"{name}:{port}" for name in settings.host_names]
    found = {each.lower() for each in (*origins(settings.address, port), *named)}
    return frozenset(found | {each.removesuffix(usual) for each in found for usual in (":80", ":443")})


@contextlib.contextmanager
def _opened(results: Path, *, to_serve: bool) -> Iterator[Store]:
    """The store, which no other service uses: two would run two jobs at a time. The kernel ends that with the process.

    `to_serve`: nor does one that serves a copy of the folder on this machine; it would end the other's jobs as its own.
    Both locks are files that only their owner can open, so nobody else can hold them.
    """
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(contextlib.closing(open_store(results)))
        files = [results / FOLDER / "lock"]
        try:
            if to_serve:
                files.append(make_cache_folder() / f"service-{store.instance}-{socket.gethostname()}.lock")
            for file in files:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "cannot lock it: a service of these results, or of a copy, is running already"
            raise UsageError(f"{results / FOLDER}: {why}") from None
        except (OSError, RuntimeError) as error:
            why = str(getattr(error, "strerror", None) or error)
            raise UsageError(
                f"cannot lock files in {results / FOLDER} and in the user's cache: {why}; use another folder on a local"
                " disk, or set XDG_CACHE_HOME"
            ) from None
        yield store


def _local_token(store: Store, file: Path) -> Path:
    """The file with the token of who runs the service, made at the first start."""
    with contextlib.suppress(OSError):
        known = store.find_token(file.read_text(encoding="ascii", errors="replace").strip())
        if known is not None and known.name == LOCAL and file.stat().st_mode & 0o077 == 0:
            return file
    draft = file.with_name(f"{TOKEN_FILE}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    draft.write_text(store.add_token(LOCAL, "run", replace=True) + "\n", encoding="ascii")
    return draft.replace(file)
