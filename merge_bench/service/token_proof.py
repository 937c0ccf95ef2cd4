"""Without TLS a service shows that it knows a token before a client sends it: another program may have its port.

The client sends a random text; the answer is a hash of that, of the address that the client asks, and of the token's
hash, which the service keeps. So the answer tells nothing, and one of a service at another address is not accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from http.client import HTTPConnection
from typing import Any
from urllib.request import HTTPHandler, Request

from merge_bench.config.files import TOKENS
from merge_bench.errors import UsageError

_LONGEST_BYTES = 4096
_RETRY_STATUSES = (429, 502, 503, 504)


def hash_token(token: str) -> str:
    """The SHA-256 of a token, as hexadecimal digits: all that the service keeps of it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def token_identifier(token_hash: str) -> str:
    """What tells the service which token is meant: a hash of the token's hash."""
    return hashlib.sha256(b"name" + token_hash.encode()).hexdigest()


def make_proof(token_hash: str, nonce: str, host: str) -> str:
    """The answer to `nonce` of a service that keeps `token_hash`; `host`: the ``Host`` of the request."""
    return hmac.digest(token_hash.encode(), f"{nonce} {host.lower()}".encode(), "sha256").hex()


class _ProvenConnection(HTTPConnection):
    """A connection whose other end has shown that it knows `token`.

    Raises UsageError if it does not know the token; OSError or HTTPException if it cannot be asked now.
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
            text = answer.read(_LONGEST_BYTES)
        if answer.status in _RETRY_STATUSES:
            raise ConnectionError(f"HTTP status {answer.status}")
        try:
            answered = str(json.loads(text)["proof"])
        except (ValueError, KeyError, TypeError, RecursionError):
            answered = ""
        if not hmac.compare_digest(answered.encode(errors="replace"), make_proof(own_hash, nonce, host).encode()):
            self.close()
            raise UsageError(
                f"what answers at http://{host} does not know your token, which was not sent: another program may have"
                " that port while the service is down, or the token is of another service, or was removed; check"
                f" {' or '.join(TOKENS)}"
            )


class ProvenHandler(HTTPHandler):
    """Opens ``http:`` addresses, and sends a request only to a service that has shown that it knows `token`."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def http_open(self, request: Request) -> Any:
        """Called by urllib."""
        return self.do_open(_ProvenConnection, request, token=self._token)  # type: ignore[arg-type]
