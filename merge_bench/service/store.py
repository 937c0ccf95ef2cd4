"""Jobs, schedules and tokens in one SQLite file. Every change is one transaction, so a kill leaves no half of it.

Sessions, the logins to the service's pages, are in memory only, so they end with the service. Browsers send a cookie to
every port of a host, so another program there may receive it. This one is for a path with a random name only, which no
other page knows: neither cookie nor path is worth anything alone, or at another port.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.service.documents import JobState, Schedule, StoredJob

FOLDER = ".service"
"""The name of the service's folder, inside the folder of its results: a copy of that has everything."""
LOCAL = "local"
"""The name of the token of who started the service, which can cancel the jobs of others as well."""
NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}"
"""The pattern of names of tokens, schedules and configs."""
NAME_RULE = "1 to 60 letters, digits, _, . and -, not beginning with . or -"
_MIGRATIONS = (
    """
    CREATE TABLE instance (name TEXT NOT NULL);
    INSERT INTO instance VALUES (lower(hex(randomblob(6))));
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT NOT NULL, key TEXT, words TEXT NOT NULL, settings TEXT NOT NULL,
        resume INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled', 'interrupted')),
        status INTEGER, result TEXT, message TEXT, created REAL NOT NULL, started REAL, ended REAL,
        UNIQUE (who, key)
    );
    CREATE INDEX jobs_by_state ON jobs (state, id);
    CREATE UNIQUE INDEX one_job_runs ON jobs (state) WHERE state = 'running';
    CREATE TABLE schedules (name TEXT PRIMARY KEY, who TEXT NOT NULL, document TEXT NOT NULL);
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY, role TEXT NOT NULL CHECK (role IN ('read', 'run')), hash TEXT NOT NULL UNIQUE,
        created REAL NOT NULL
    );
    """,
)
"""Each brings the file from the version of its place to the next one; never change one that was released."""
_MOST_ATTEMPTS = 10
"""A job whose service ended during it is begun at most so often."""
SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 1000


class RequestRefused(MergeBenchError):
    """A request that the service refuses, with an HTTP status, a word for programs, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Token(msgspec.Struct, frozen=True):
    """A token without its secret: name, role (read or run), and when it was made, in seconds since the epoch."""

    name: str
    role: str
    created: float = 0.0


def hash_token(token: str) -> str:
    """The SHA-256 of a token, as hexadecimal digits: all that the service keeps of it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def token_identifier(token_hash: str) -> str:
    """Return the identifier by which a client names a token without sending it: a hash of the token's hash."""
    return hashlib.sha256(b"name" + token_hash.encode()).hexdigest()


def make_token_proof(token_hash: str, nonce: str, host: str) -> str:
    """Compute the proof that a service knows a token, from the random text `nonce` and the request's ``Host``."""
    return hmac.digest(token_hash.encode(), f"{nonce} {host.lower()}".encode(), "sha256").hex()


class ServiceStore:
    """The SQLite file of the service, which several threads and processes can use at a time."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._query_rows(f"PRAGMA {pragma}")
        with self.transaction():
            (version,) = self._query_rows("PRAGMA user_version")[0]
            if version > len(_MIGRATIONS):
                raise UsageError(f"{path} was written by a newer version of merge_bench; use that one")
            for number, migration in enumerate(_MIGRATIONS[version:], start=version + 1):
                for statement in (*migration.split(";"), f"PRAGMA user_version = {number}"):
                    self._query_rows(statement)
        self.instance = str(self._query_rows("SELECT name FROM instance")[0][0])
        """A name that no other service has, so that its processes can be found."""

    def close(self) -> None:
        """Close the database file."""
        with self._lock:
            self._connection.close()

    def find_file_damage(self) -> str | None:
        """Return the damage that SQLite finds in the file, as text; None if there is none."""
        try:
            finding = str(self._query_rows("PRAGMA integrity_check")[0][0])
        except sqlite3.DatabaseError as error:
            finding = str(error)
        return None if finding == "ok" else finding

    # Jobs.

    def add_job(
        self,
        token_name: str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        *,
        most_queued: int,
        resume: bool = False,
        request_key: str | None = None,
    ) -> tuple[StoredJob, bool]:
        """Queue a job; returns it, and whether it is new.

        A job of this token with the same `request_key` is returned instead of a new one. Raises RequestRefused if
        `most_queued` jobs wait already.
        """
        with self.transaction():
            for earlier in self._select_jobs("SELECT * FROM jobs WHERE who = ? AND key = ?", token_name, request_key):
                if earlier.words != list(arguments) or earlier.settings != dict(settings):
                    raise UsageError(f"another job, {earlier.id}, has this key; choose one that is new")
                return earlier, False
            if (waiting := self.count_jobs_ahead()) >= most_queued:
                raise RequestRefused(
                    429, "queue-full", f"{waiting} jobs are waiting, which is the limit; try again later"
                )
            columns = "who, key, words, settings, resume, state, created"
            query = f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, 'queued', ?) RETURNING *"
            written = json.dumps(list(arguments)), json.dumps(dict(settings))
            (new,) = self._select_jobs(query, token_name, request_key, *written, resume, time.time())
            return new, True

    def find_job(self, number: int) -> StoredJob | None:
        """The job with this number; None if there is none."""
        return next(iter(self._select_jobs("SELECT * FROM jobs WHERE id = ?", number)), None)

    def list_jobs(self, *, limit: int = 100, offset: int = 0) -> list[StoredJob]:
        """Jobs, the newest first."""
        return self._select_jobs("SELECT * FROM jobs ORDER BY id DESC LIMIT ? OFFSET ?", limit, offset)

    def find_running_job(self) -> StoredJob | None:
        """The job that runs; None if there is none."""
        return next(iter(self._select_jobs("SELECT * FROM jobs WHERE state = 'running'")), None)

    def count_jobs_ahead(self, number: int | None = None) -> int:
        """How many jobs are queued; with `number`: how many queued or running jobs come before that one."""
        query = "SELECT count(*) FROM jobs WHERE state IN ('queued', ?) AND id < ?"
        values = ("queued", 2**63 - 1) if number is None else ("running", number)
        return int(self._query_rows(query, *values)[0][0])

    def start_next_job(self) -> StoredJob | None:
        """Mark the oldest queued job as running and return it; None if there is none, or one is running."""
        query = (
            "UPDATE jobs SET state = 'running', attempts = attempts + 1, started = ?, message = NULL, result = NULL"
            " WHERE id = (SELECT min(id) FROM jobs WHERE state = 'queued')"
            " AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running') RETURNING *"
        )
        return next(iter(self._select_jobs(query, time.time())), None)

    def requeue_job(self, number: int) -> None:
        """Queue the job with this number again, because its process could not be started."""
        query = "UPDATE jobs SET state = 'queued', attempts = attempts - 1, started = NULL"
        self._query_rows(f"{query} WHERE id = ? AND state = 'running'", number)

    def cancel_job(self, number: int) -> StoredJob | None:
        """Cancel a queued job, or ask for the end of the running one; a job that has ended stays as it is."""
        query = (
            "UPDATE jobs SET cancelled = 1, state = iif(state = 'queued', 'cancelled', state),"
            " ended = iif(state = 'queued', ?, NULL) WHERE id = ? AND state IN ('queued', 'running')"
        )
        self._query_rows(query, time.time(), number)
        return self.find_job(number)

    def finish_job(
        self,
        number: int,
        status: int | None,
        *,
        result: str | None = None,
        message: str | None = None,
        interrupted: bool = False,
    ) -> JobState:
        """Store the end of the running job, whose processes are gone; returns its new state.

        `result`: the name of its campaign; `interrupted`: it ended because the service did, so it is queued again if it
        was added with `resume`.
        """
        with self.transaction():
            (job,) = self._select_jobs("SELECT * FROM jobs WHERE id = ? AND state = 'running'", number)
            state: JobState = "done" if status == 0 else "failed"
            if job.cancelled and status != 0:
                state = "cancelled"
            elif interrupted:
                state = "queued" if job.resume and job.attempts < _MOST_ATTEMPTS else "interrupted"
            query = "UPDATE jobs SET state = ?, status = ?, result = ?, message = ?, ended = ? WHERE id = ?"
            ended = None if state == "queued" else time.time()
            self._query_rows(query, state, status, result, message, ended, number)
            return state

    # Schedules.

    def list_schedules(self) -> list[Schedule]:
        """All schedules by name."""
        rows = self._query_rows("SELECT document FROM schedules ORDER BY name")
        return [msgspec.json.decode(row["document"], type=Schedule) for row in rows]

    def store_schedule(self, schedule: Schedule) -> None:
        """Store a schedule; it replaces one of the same name."""
        document = msgspec.json.encode(schedule).decode()
        self._query_rows("INSERT OR REPLACE INTO schedules VALUES (?, ?, ?)", schedule.name, schedule.who, document)

    def remove_schedule(self, name: str, token_name: str = LOCAL) -> bool:
        """Remove a schedule of `token_name`, or of anybody if that is `LOCAL`; False if there is none."""
        query = "DELETE FROM schedules WHERE name = ? AND ? IN (who, ?) RETURNING 1"
        return self._query_rows(query, name, token_name, LOCAL) != []

    # Tokens.

    def add_token(self, name: str, role: str, *, replace: bool = False) -> str:
        """Make a token, store its hash, and return it.

        An existing token of that name is replaced with `replace`; else it raises UsageError.
        """
        check_token_or_schedule_name(name)
        token = secrets.token_urlsafe(32)
        with self.transaction():
            if not replace and self._query_rows("SELECT 1 FROM tokens WHERE name = ?", name):
                raise UsageError(f"there is already a token named {name}; remove it first, or choose another name")
            self._query_rows(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?)", name, role, hash_token(token), time.time()
            )
        return token

    def remove_token(self, name: str) -> None:
        """Remove a token and its schedules; raises UsageError if there is none of that name."""
        with self.transaction():
            self._query_rows("DELETE FROM schedules WHERE who = ?", name)
            if not self._query_rows("DELETE FROM tokens WHERE name = ? RETURNING 1", name):
                raise UsageError(f"there is no token named {name}")

    def list_tokens(self) -> list[Token]:
        """All tokens by name."""
        return [Token(*row) for row in self._query_rows("SELECT name, role, created FROM tokens ORDER BY name")]

    def find_token(self, secret: str) -> Token | None:
        """The token with this secret, or None; the time that takes does not tell how much of the secret is right."""
        return self.find_token_by_hash(hash_token(secret))

    def find_token_by_hash(self, token_hash: str) -> Token | None:
        """The token whose secret has this hash; None if there is none."""
        rows = self._query_rows("SELECT hash, name, role, created FROM tokens")
        matches = [Token(*values) for stored, *values in rows if hmac.compare_digest(stored, token_hash)]
        return matches[0] if matches else None

    def make_proof_for_identifier(self, identifier: str, nonce: str, host: str) -> str:
        """The proof that the store knows the token with this `token_identifier`; a random text if it does not."""
        hashes = (str(row["hash"]) for row in self._query_rows("SELECT hash FROM tokens"))
        own = (each for each in hashes if hmac.compare_digest(token_identifier(each), identifier))
        return make_token_proof(next(own, secrets.token_hex(32)), nonce, host)

    def _query_rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _select_jobs(self, query: str, *values: object) -> list[StoredJob]:
        return list(map(_stored_job, self._query_rows(query, *values)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A ``with`` block whose changes of the database are made together, or after an error not at all."""
        with self._lock, contextlib.ExitStack() as stack:
            if not self._connection.in_transaction:
                stack.enter_context(self._connection)  # commits it, or rolls it back after an error
                self._connection.execute("BEGIN IMMEDIATE")
            yield


def open_service_store(results: Path) -> ServiceStore:
    """Open the database of the service for these results, in a folder only its owner can read; raises UsageError."""
    folder = results / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for name in ("service.sqlite", "lock"):
            (folder / name).touch(mode=0o600)
            (folder / name).chmod(0o600)  # a copy may have other modes
        return ServiceStore(folder / "service.sqlite")
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"cannot use the folder {folder}: {error}") from None


def has_running_service(results: Path) -> bool:
    """Whether a service of these results runs on this machine, which then holds the lock of the folder."""
    with contextlib.suppress(OSError), open(results / FOLDER / "lock", "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_token_or_schedule_name(name: str) -> None:
    """Raise UsageError if no token and no schedule can have this name."""
    if not re.fullmatch(NAME, name):
        raise UsageError(f"the name {name!r} must have {NAME_RULE}")


def _stored_job(row: sqlite3.Row) -> StoredJob:
    parsed = {name: json.loads(row[name]) for name in ("words", "settings")}
    return StoredJob(**{**row, **parsed, "resume": bool(row["resume"]), "cancelled": bool(row["cancelled"])})


@dataclass(frozen=True)
class _LoginSession:
    cookie: str
    token: str
    ends: float


@dataclass
class LoginSessions:
    """The sessions of logged-in users, with hashes of their cookies and tokens; removing a token ends its sessions.

    `own`: path and token of the session that needs no cookie, that of the person who started the dashboard. `clock`:
    the seconds by which sessions end.
    """

    store: ServiceStore
    own: tuple[str, Token] | None = None
    clock: Callable[[], float] = time.monotonic
    _by_path: dict[str, _LoginSession] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_session(self, token: str) -> tuple[str, str]:
        """Begin a session for the holder of `token`; returns its path, a random name, and its cookie."""
        path, cookie, now = secrets.token_urlsafe(24), secrets.token_urlsafe(32), self.clock()
        with self._lock:
            left = [(name, each) for name, each in self._by_path.items() if each.ends > now]
            self._by_path = dict(left[-_MOST_SESSIONS + 1 :])
            self._by_path[path] = _LoginSession(hash_token(cookie), hash_token(token), now + SESSION_SECONDS)
        return path, cookie

    def begin_cookieless_session(self, token: Token) -> str:
        """Begin the session that needs no cookie and ends with this program; returns its path."""
        path = secrets.token_urlsafe(24)
        self.own = path, token
        return path

    def has_session(self, path: str, cookie: str | None) -> bool:
        """Whether there is a session with this path and cookie that has not ended."""
        if self.is_cookieless_session(path):
            return True
        session = self._by_path.get(path)
        same = session is not None and cookie is not None and hmac.compare_digest(session.cookie, hash_token(cookie))
        return same and self.session_token(path) is not None

    def is_cookieless_session(self, path: str) -> bool:
        """Whether `path` is that of the session that needs no cookie."""
        return self.own is not None and hmac.compare_digest(self.own[0].encode(), path.encode())

    def session_token(self, path: str) -> Token | None:
        """The token of the session with this path; None if that session has ended."""
        if self.own is not None and self.is_cookieless_session(path):
            return self.own[1]
        session = self._by_path.get(path)
        if session is None or session.ends <= self.clock():
            return None
        return self.store.find_token_by_hash(session.token)

    def end_session(self, path: str) -> None:
        """End the session with this path."""
        with self._lock:
            self._by_path.pop(path, None)
