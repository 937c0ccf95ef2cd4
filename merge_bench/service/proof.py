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

_LONGEST = 4096
_LATER = (429, 502, 503, 504)


def hashed(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def name_of(kept: str) -> str:
    """What tells the service which token is meant; `kept`: its hash."""
    return hashlib.sha256(b"name" + kept.encode()).hexdigest()


def proof(kept: str, nonce: str, host: str) -> str:
    """The answer to `nonce` of the service at `host`, as the client wrote it into the request."""
    return hmac.digest(kept.encode(), f"{nonce} {host.lower()}".encode(), "sha256").hex()


class _Proven(HTTPConnection):
    """A connection whose other end has shown that it knows `token`.

    Raises UsageError if it does not; OSError, HTTPException if it cannot be asked now.
    """

    auto_open = 0  # a second connection would not be proven

    def __init__(self, host: str, *, token: str, **given: Any) -> None:
        # This name has two addresses, and the service may have only one: who has the other one could ask it for the
        # proof of the name. Of an address it gives none that is not its own.
        host = re.sub(r"^localhost(?=:|$)", "127.0.0.1", host)
        super().__init__(host, **given)
        self.connect()
        kept, nonce = hashed(token), secrets.token_urlsafe(24)
        self.putrequest("GET", f"/api/proof?token={name_of(kept)}&nonce={nonce}", skip_host=True)
        self.putheader("Host", host)
        self.endheaders()
        with self.getresponse() as answer:
            text = answer.read(_LONGEST)
        if answer.status in _LATER:
            raise ConnectionError(f"HTTP status {answer.status}")
        try:
            found = str(json.loads(text)["proof"])
        except (ValueError, KeyError, TypeError, RecursionError):
            found = ""
        if not hmac.compare_digest(found.encode(errors="replace"), proof(kept, nonce, host).encode()):
            self.close()
            raise UsageError(
                f"what answers at http://{host} does not know your token, which was not sent: another program may have"
                " that port while the service is down, or the token is of another service, or was removed; check"
                f" {' or '.join(TOKENS)}"
            )


class ProvenHandler(HTTPHandler):
    """Opens ``http:`` addresses, and sends a request only to what has shown that it knows `token`."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def http_open(self, request: Request) -> Any:
        """Called by urllib."""
        return self.do_open(_Proven, request, token=self._token)  # type: ignore[arg-type]
