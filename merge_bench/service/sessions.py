"""The logins to the service's pages. They are in memory only, so they end with the service.

Browsers send a cookie to every port of a host, so another program there may receive it. This one is for a path with a
random name only, which no other page knows: neither a cookie nor a path is worth anything alone, or elsewhere.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field

from merge_bench.service.proof import hashed
from merge_bench.service.store import Store, Token

SESSION_SECONDS = 12 * 3600.0
_MOST = 1000


@dataclass(frozen=True)
class _Session:
    cookie: str
    token: str
    ends: float


@dataclass
class Sessions:
    """Of cookies and tokens only hashes are kept; a token that is removed ends its sessions.

    `own`: the path of the session that who started the dashboard has by its address alone, and what it may do.
    """

    store: Store
    own: tuple[str, Token] | None = None
    _known: dict[str, _Session] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, token: str) -> tuple[str, str]:
        """A session for the holder of `token`: the name of its path, and its cookie."""
        path, cookie, now = secrets.token_urlsafe(24), secrets.token_urlsafe(32), time.monotonic()
        with self._lock:
            left = [(name, each) for name, each in self._known.items() if each.ends > now]
            self._known = dict(left[-_MOST + 1 :])
            self._known[path] = _Session(hashed(cookie), hashed(token), now + SESSION_SECONDS)
        return path, cookie

    def begin_own(self, token: Token) -> str:
        """The path of the session that needs no cookie; it ends with this program."""
        path = secrets.token_urlsafe(24)
        self.own = path, token
        return path

    def has(self, path: str, cookie: str | None) -> bool:
        """Whether the session of this path goes on, and has this cookie."""
        if self.is_own(path):
            return True
        session = self._known.get(path)
        right = session is not None and cookie is not None and hmac.compare_digest(session.cookie, hashed(cookie))
        return right and self.token(path) is not None

    def is_own(self, path: str) -> bool:
        """Whether it is that of the session that needs no cookie."""
        return self.own is not None and hmac.compare_digest(self.own[0].encode(), path.encode())

    def token(self, path: str) -> Token | None:
        """Whose session it is; None if it has ended."""
        if self.own is not None and self.is_own(path):
            return self.own[1]
        session = self._known.get(path)
        if session is None or session.ends <= time.monotonic():
            return None
        return self.store.find_hash(session.token)

    def end(self, path: str) -> None:
        """End a session."""
        with self._lock:
            self._known.pop(path, None)
