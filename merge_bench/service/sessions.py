"""Sessions: the logins to the service's pages. They are in memory only, so they end with the service.

Browsers send a cookie to every port of a host, so another program there may receive it. This one is for a path with a
random name only, which no other page knows: neither cookie nor path is worth anything alone, or at another port.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field

from merge_bench.service.store import Store, Token
from merge_bench.service.token_proof import hash_token

SESSION_SECONDS = 12 * 3600.0
_MOST = 1000


@dataclass(frozen=True)
class _Session:
    cookie: str
    token: str
    ends: float


@dataclass
class Sessions:
    """Keeps the sessions, with hashes of their cookies and tokens; removing a token ends its sessions.

    `own`: the path of the session that needs no cookie, of who started the dashboard; and its token.
    """

    store: Store
    own: tuple[str, Token] | None = None
    _by_path: dict[str, _Session] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, token: str) -> tuple[str, str]:
        """Begin a session for the holder of `token`; returns its path, a random name, and its cookie."""
        path, cookie, now = secrets.token_urlsafe(24), secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            left = [(name, each) for name, each in self._by_path.items() if each.ends > now]
            self._by_path = dict(left[-_MOST + 1 :])
            self._by_path[path] = _Session(hash_token(cookie), hash_token(token), now + SESSION_SECONDS)
        return path, cookie

    def begin_own(self, token: Token) -> str:
        """Begin the session that needs no cookie and ends with this program; returns its path."""
        path = secrets.token_urlsafe(24)
        self.own = path, token
        return path

    def has(self, path: str, cookie: str | None) -> bool:
        """Whether there is a session with this path and cookie that has not ended."""
        if self.is_own(path):
            return True
        session = self._by_path.get(path)
        same = session is not None and cookie is not None and hmac.compare_digest(session.cookie, hash_token(cookie))
        return same and self.token(path) is not None

    def is_own(self, path: str) -> bool:
        """Whether `path` is that of the session that needs no cookie."""
        return self.own is not None and hmac.compare_digest(self.own[0].encode(), path.encode())

    def token(self, path: str) -> Token | None:
        """The token of the session with this path; None if that session has ended."""
        if self.own is not None and self.is_own(path):
            return self.own[1]
        session = self._by_path.get(path)
        if session is None or session.ends <= time.monotonic():
            return None
        return self.store.find_by_hash(session.token)

    def end(self, path: str) -> None:
        """End the session with this path."""
        with self._lock:
            self._by_path.pop(path, None)
