"""A client of the service: it sends requests, says each failure in one sentence, and fetches records of jobs."""

from __future__ import annotations

import filecmp
import hmac
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from socket import gaierror
from ssl import SSLCertVerificationError, SSLError
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, HTTPHandler, ProxyHandler, Request, build_opener, getproxies

import msgspec

from merge_bench.config.files import TOKENS, open_regular_file, replace_file
from merge_bench.config.option import parse_option_text
from merge_bench.config.parsers import parse_service_address
from merge_bench.errors import MergeBenchError, RunFailed, UsageError, first_message_line, print_message
from merge_bench.host.network import is_loopback_address
from merge_bench.records.writer import RECORDS
from merge_bench.service.documents import Job, JobList, JobRequest, RefusalResponse
from merge_bench.service.job_rules import RESULT_NAME, options_by_job_command
from merge_bench.service.store import hash_token, make_token_proof, token_identifier
from merge_bench.view.text import mark_unprintable, truncate

PATIENCE_SECONDS = 120.0
"""Seconds for which a client that follows a job repeats a request while the service, which has answered before, is away
or has too much to do."""
_RETRY_STATUSES = (0, 429, 502, 503, 504)
_TIMEOUT_SECONDS, _PAUSE_SECONDS, _CHUNK_BYTES = 60.0, 1.0, 1 << 20
LONGEST_BYTES = 64 << 20
"""A document that is longer is not read."""
_T = TypeVar("_T")


class _NoRedirects(HTTPErrorProcessor):
    """Returns a redirect as the answer and does not follow it: another host would get the token."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        return response

    https_response = http_response


class _ProofRefusedForNow(ConnectionError):
    """The service, or a proxy before it, answered that it cannot prove now that it knows the token."""


class _TokenCheckedConnection(HTTPConnection):
    """A connection without TLS, whose other end has shown that it knows `token`: another program may have its port.

    The client sends a random text; the answer is a hash of that, of the address that the client asks, and of the
    token's hash, which the service keeps. So the answer tells nothing, and one of a service at another address is not
    accepted. Raises UsageError if the other end does not know the token; OSError or HTTPException if it cannot be asked
    now.
    """

    auto_open = 0  # a second connection would not be proven

    def __init__(self, host: str, *, token: str, **options: Any) -> None:
        # This name has two addresses, and the service may have only one: who has the other one could ask it for the
        # proof of the name. Of an address it gives none that is not its own.
        host = re.sub(r"^localhost(?=:|$)", "127.0.0.1", host)
        super().__init__(host, **options)
        self.connect()
        own_hash, nonce = hash_token(token), secrets.token_urlsafe(24)
        self.putrequest("GET", f"/api/proof?token={token_identifier(own_hash)}&nonce={nonce}", skip_host=True)
        self.putheader("Host", host)
        self.endheaders()
        with self.getresponse() as answer:
            text = answer.read(4096)
        if answer.status in _RETRY_STATUSES:
            raise _ProofRefusedForNow(f"HTTP status {answer.status}")
        try:
            answered = str(json.loads(text)["proof"])
        except (ValueError, KeyError, TypeError, RecursionError):
            answered = ""
        if not hmac.compare_digest(answered.encode(errors="replace"), make_token_proof(own_hash, nonce, host).encode()):
            self.close()
            raise UsageError(
                f"what answers at http://{host} does not know your token, which was not sent: another program may have"
                " that port while the service is down, or the token is of another service, or was removed; check"
                f" {' or '.join(TOKENS)}"
            )


class TokenCheckedHandler(HTTPHandler):
    """Opens ``http:`` addresses, and sends a request only to a service that has shown that it knows `token`."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def http_open(self, request: Request) -> Any:
        """Open an ``http:`` address for urllib, on a connection whose other end has shown that it knows the token."""
        return self.do_open(_TokenCheckedConnection, request, token=self._token)  # type: ignore[arg-type]


class Client:
    """Sends requests to the service at `url`.

    `token`: by default that of the environment, or of the service of `results` on loopback; `wait`: for how many
    seconds to repeat a request that the service cannot answer now; where nothing has answered yet, a request is not
    repeated, since the address may be wrong; `pause`: seconds before each repetition; `insecure`: send the token also
    without TLS.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        results: Path = Path("results"),
        wait: float = 0.0,
        pause: float = _PAUSE_SECONDS,
        insecure: bool = False,
    ) -> None:
        self.url, self._wait, self._pause = parse_option_text(parse_service_address, url, "service"), wait, pause
        self._answered = False
        address = urlsplit(self.url)
        local = is_loopback_address(address.hostname or "")
        token = token or _read_token(results / ".service/token" if local else None)
        if address.scheme == "http" and not local and not insecure:
            raise UsageError(
                f"whoever can read the traffic to {self.url} would get your token; use https or an SSH tunnel, or add"
                " --insecure if nobody else can read that network"
            )
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        # Without TLS a proxy could read the token.
        proxies = {name: proxy for name, proxy in getproxies().items() if name == "https"}
        self._open = build_opener(_NoRedirects, ProxyHandler(proxies), TokenCheckedHandler(token)).open

    refusal_reason = end_reason = ""
    is_logged_in = False

    @property
    def queueable_commands(self) -> Mapping[str, Collection[str]]:
        """The commands that can be queued, each with the keys of its options."""
        return options_by_job_command()

    def queue_run(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> Job:
        """Queue a job with a command, shipped configs and options, as the form of the Run tab does."""
        return self.queue_job(JobRequest(command=command, configs=list(configs), options=dict(options)))

    def queue_job(self, request: JobRequest) -> Job:
        """Queue a job; with a `key`, the same request again gives the same job."""
        return self._send_request("POST", "/api/jobs", _json_response_decoder(Job), msgspec.json.encode(request))

    def fetch_job(self, number: int) -> Job:
        """Fetch the job with this number, and the end of its output."""
        return self._send_request("GET", f"/api/jobs/{number}", _json_response_decoder(Job))

    def fetch_jobs(self) -> JobList:
        """Fetch the newest jobs."""
        return self._send_request("GET", "/api/jobs", _json_response_decoder(JobList))

    def cancel_job(self, number: int) -> Job:
        """Cancel the job with this number."""
        return self._send_request("DELETE", f"/api/jobs/{number}", _json_response_decoder(Job))

    def fetch_records(self, job: Job, results: Path) -> Path:
        """Fetch the records of a job into its folder in `results`, and return it; different records there are kept."""
        if not RESULT_NAME.fullmatch(job.result or ""):
            raise RunFailed(f"{self.url} names no result of job {job.id}, or one that cannot be stored")
        folder = results / str(job.result)
        try:
            results.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=results, prefix=".") as draft:
                file = Path(draft, "new", RECORDS)
                file.parent.mkdir()
                self._send_request(
                    "GET", f"/api/jobs/{job.id}/records", lambda answer: _write_response_body(answer, file)
                )
                if not folder.exists():
                    file.parent.rename(folder)
                elif not filecmp.cmp(file, folder / RECORDS, shallow=False):
                    raise RunFailed(f"{folder} has other records, which are kept; choose another folder with --results")
        except OSError as error:
            raise RunFailed(f"cannot write the records to {folder}: {error.strerror}") from None
        return folder

    def _send_request(
        self, method: str, path: str, read_response: Callable[[HTTPResponse], _T], body: bytes | None = None
    ) -> _T:
        deadline = time.monotonic() + self._wait
        problem: MergeBenchError | None = None
        while True:
            status, first_try = 0, problem is None
            try:
                request = Request(self.url + path, body, self._headers, method=method)
                with self._open(request, timeout=_TIMEOUT_SECONDS) as answer:
                    self._answered, status = True, answer.status
                    if status < 300:
                        return read_response(answer)
                    why = _json_response_decoder(RefusalResponse)(
                        answer
                    ).error.message + f"; check {' or '.join(TOKENS)}" * (status == 401)
                    problem = (UsageError if status < 500 else RunFailed)(
                        f"{self.url}: {mark_unprintable(truncate(why))}"
                    )
            except (ValueError, RecursionError):
                status = 0 if answer.length else status  # the connection ended early
                problem = RunFailed(f"{self.url} is no merge_bench service, or one of another version")
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                status = -1 if isinstance(reason, gaierror | SSLError) else 0  # no such host, or no TLS: that stays so
                self._answered |= isinstance(reason, _ProofRefusedForNow)
                if isinstance(reason, SSLCertVerificationError):
                    why = f"{reason.verify_message}; SSL_CERT_FILE can name the certificate of its authority"
                    raise UsageError(f"the certificate of {self.url} is not trusted: {why}") from None
                why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
                hint = "" if self._answered else "; check the address, and whether the service runs"
                problem = RunFailed(f"the request to {self.url} failed: {mark_unprintable(truncate(why))}{hint}")
            if status not in _RETRY_STATUSES or not self._answered or time.monotonic() >= deadline:
                raise problem
            if first_try:
                print_message(f"{problem}; trying again for {self._wait / 60:.0f} minutes")
            time.sleep(self._pause)


def _json_response_decoder(document_type: type[_T]) -> Callable[[HTTPResponse], _T]:
    # A longer answer is cut off, and no JSON then.
    return lambda answer: msgspec.json.decode(answer.read(LONGEST_BYTES), type=document_type)


def _write_response_body(response: HTTPResponse, file: Path) -> None:
    with replace_file(file) as stream:
        shutil.copyfileobj(response, stream, _CHUNK_BYTES)
    if response.length:
        raise IncompleteRead(b"", response.length)


def _read_token(own_file: Path | None) -> str:
    """Read the token from the environment, or from the file that it names, or in `own_file`."""
    token, file = os.environ.get(TOKENS[0], ""), os.environ.get(TOKENS[1]) or own_file
    how = f"set {TOKENS[0]}, or {TOKENS[1]} to a file that has it"
    if not token and file is not None:
        try:
            with open_regular_file(file) as stream:
                if os.fstat(stream.fileno()).st_mode & 0o077:
                    raise UsageError(f"others can read the token in {file}; run: chmod 600 {file}")
                token = stream.read(1000).decode("ascii")
        except FileNotFoundError:
            raise UsageError(f"the service needs a token, and there is no file {file}; {how}") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read a token from {file}: {first_message_line(error)}; {how}") from None
    if not re.fullmatch(r"[!-~]+", token.strip()):
        raise UsageError(f"the service needs a token: {how}")
    return token.strip()
