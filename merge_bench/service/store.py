"""Jobs, schedules and tokens in one SQLite file. Every change is one transaction, so a kill leaves no half of it."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.service.documents import JobState, Row, Schedule
from merge_bench.service.proof import hashed, name_of, proof

FOLDER = ".service"
"""In the folder of the results: whoever copies that has everything."""
LOCAL = "local"
"""The token of who started the service: it cancels jobs of others as well."""
NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}"
"""Names of tokens, schedules and configs."""
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
"""So often at most a job is queued again after the service was ended during it."""


class Refused(MergeBenchError):
    """The answer is an error: an HTTP status, a word for programs, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Token(msgspec.Struct, frozen=True):
    """Who asks, what they may do, and since when."""

    name: str
    role: str
    created: float = 0.0


class Store:
    """The file of the service. Safe to use from several threads, and from several processes."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._rows(f"PRAGMA {pragma}")
        with self.change():
            (version,) = self._rows("PRAGMA user_version")[0]
            if version > len(_MIGRATIONS):
                raise UsageError(f"{path} was written by a newer version of merge_bench; use that one")
            for number, migration in enumerate(_MIGRATIONS[version:], start=version + 1):
                for statement in (*migration.split(";"), f"PRAGMA user_version = {number}"):
                    self._rows(statement)
        self.instance = str(self._rows("SELECT name FROM instance")[0][0])
        """A name that no other service has, so that its processes can be found."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def problem(self) -> str | None:
        """What SQLite finds wrong with the file; None if nothing."""
        try:
            found = str(self._rows("PRAGMA integrity_check")[0][0])
        except sqlite3.DatabaseError as error:
            found = str(error)
        return None if found == "ok" else found

    # Jobs.

    def add(
        self, who: str, words: Sequence[str], settings: Mapping[str, str], *, most: int, resume: bool = False,
        key: str | None = None,
    ) -> tuple[Row, bool]:  # fmt: skip
        """Queue a job; gives it, and whether it is new: a second one with the same `key` is the first one.

        Raises Refused if `most` jobs wait already.
        """
        with self.change():
            for known in self._jobs("SELECT * FROM jobs WHERE who = ? AND key = ?", who, key):
                if known.words != list(words) or known.settings != dict(settings):
                    raise UsageError(f"another job, {known.id}, has this key; choose one that is new")
                return known, False
            if (waiting := self.ahead()) >= most:
                raise Refused(429, "queue-full", f"{waiting} jobs are waiting, which is the limit; try again later")
            (new,) = self._jobs(
                "INSERT INTO jobs (who, key, words, settings, resume, state, created)"
                " VALUES (?, ?, ?, ?, ?, 'queued', ?) RETURNING *",
                who, key, json.dumps(list(words)), json.dumps(dict(settings)), resume, time.time(),
            )  # fmt: skip
            return new, True

    def job(self, number: int) -> Row | None:
        """The job with this number."""
        return next(iter(self._jobs("SELECT * FROM jobs WHERE id = ?", number)), None)

    def jobs(self, *, limit: int = 100, offset: int = 0) -> list[Row]:
        """Jobs, the newest first."""
        return self._jobs("SELECT * FROM jobs ORDER BY id DESC LIMIT ? OFFSET ?", limit, offset)

    def running(self) -> Row | None:
        """The job that runs."""
        return next(iter(self._jobs("SELECT * FROM jobs WHERE state = 'running'")), None)

    def ahead(self, number: int | None = None) -> int:
        """How many jobs are queued; with `number`: how many of them, or running, before that one."""
        query = "SELECT count(*) FROM jobs WHERE state IN ('queued', ?) AND id < ?"
        values = ("queued", 2**63 - 1) if number is None else ("running", number)
        return int(self._rows(query, *values)[0][0])

    def take(self) -> Row | None:
        """Make the oldest queued job the running one; None if there is none, or one is running."""
        taken = self._jobs(
            "UPDATE jobs SET state = 'running', attempts = attempts + 1, started = ?, message = NULL, result = NULL"
            " WHERE id = (SELECT min(id) FROM jobs WHERE state = 'queued')"
            " AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running') RETURNING *",
            time.time(),
        )
        return next(iter(taken), None)

    def put_back(self, number: int) -> None:
        """Queue the running job again, whose process could not be started."""
        query = "UPDATE jobs SET state = 'queued', attempts = attempts - 1, started = NULL"
        self._rows(f"{query} WHERE id = ? AND state = 'running'", number)

    def cancel(self, number: int) -> Row | None:
        """Cancel a queued job, or ask for the end of the running one; a job that has ended stays as it is."""
        self._rows(
            "UPDATE jobs SET cancelled = 1, state = iif(state = 'queued', 'cancelled', state),"
            " ended = iif(state = 'queued', ?, NULL) WHERE id = ? AND state IN ('queued', 'running')",
            time.time(), number,
        )  # fmt: skip
        return self.job(number)

    def finish(
        self, number: int, status: int | None, *, result: str | None = None, message: str | None = None,
        interrupted: bool = False,
    ) -> JobState:  # fmt: skip
        """End the running job, whose processes are gone; gives its new state.

        `result`: the name of its campaign; `interrupted`: because the service ended; then a job that asked for it is
        queued again.
        """
        with self.change():
            (job,) = self._jobs("SELECT * FROM jobs WHERE id = ? AND state = 'running'", number)
            state: JobState = "done" if status == 0 else "failed"
            if job.cancelled and status != 0:
                state = "cancelled"
            elif interrupted:
                state = "queued" if job.resume and job.attempts < _MOST_ATTEMPTS else "interrupted"
            self._rows(
                "UPDATE jobs SET state = ?, status = ?, result = ?, message = ?, ended = ? WHERE id = ?",
                state, status, result, message, None if state == "queued" else time.time(), number,
            )  # fmt: skip
            return state

    # Schedules.

    def schedules(self) -> list[Schedule]:
        """All schedules by name."""
        found = self._rows("SELECT document FROM schedules ORDER BY name")
        return [msgspec.json.decode(row["document"], type=Schedule) for row in found]

    def put_schedule(self, schedule: Schedule) -> None:
        """Keep a schedule, instead of one with its name."""
        document = msgspec.json.encode(schedule).decode()
        self._rows("INSERT OR REPLACE INTO schedules VALUES (?, ?, ?)", schedule.name, schedule.who, document)

    def remove_schedule(self, name: str, who: str = LOCAL) -> bool:
        """Remove a schedule of `who`, or of anybody if that is `LOCAL`; False if there is none."""
        query = "DELETE FROM schedules WHERE name = ? AND ? IN (who, ?) RETURNING 1"
        return self._rows(query, name, who, LOCAL) != []

    # Tokens.

    def add_token(self, name: str, role: str, *, replace: bool = False) -> str:
        """A new token, whose hash is kept; raises UsageError if there is one with that name, unless `replace`."""
        check_name(name)
        token = secrets.token_urlsafe(32)
        with self.change():
            if not replace and self._rows("SELECT 1 FROM tokens WHERE name = ?", name):
                raise UsageError(f"there is already a token named {name}; remove it first, or choose another name")
            self._rows("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?)", name, role, hashed(token), time.time())
        return token

    def remove_token(self, name: str) -> None:
        """Remove a token and its schedules; raises UsageError if there is none of that name."""
        with self.change():
            self._rows("DELETE FROM schedules WHERE who = ?", name)
            if not self._rows("DELETE FROM tokens WHERE name = ? RETURNING 1", name):
                raise UsageError(f"there is no token named {name}")

    def tokens(self) -> list[Token]:
        """All tokens by name."""
        return [Token(*row) for row in self._rows("SELECT name, role, created FROM tokens ORDER BY name")]

    def find_token(self, given: str) -> Token | None:
        """Whose token it is, in a time that does not depend on how much of it is right."""
        return self.find_hash(hashed(given))

    def find_hash(self, wanted: str) -> Token | None:
        """Whose token has this hash."""
        rows = self._rows("SELECT hash, name, role, created FROM tokens")
        matches = [Token(*values) for known, *values in rows if hmac.compare_digest(known, wanted)]
        return matches[0] if matches else None

    def prove(self, name: str, nonce: str, host: str) -> str:
        """What shows that the token of this name is known here; a random text for one that is not."""
        hashes = (str(row["hash"]) for row in self._rows("SELECT hash FROM tokens"))
        kept = next((each for each in hashes if hmac.compare_digest(name_of(each), name)), secrets.token_hex(32))
        return proof(kept, nonce, host)

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _jobs(self, query: str, *values: object) -> list[Row]:
        return list(map(_row, self._rows(query, *values)))

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """A transaction; changes that are made during it are part of it."""
        with self._lock, contextlib.ExitStack() as stack:
            if not self._connection.in_transaction:
                stack.enter_context(self._connection)  # commits it, or rolls it back after an error
                self._connection.execute("BEGIN IMMEDIATE")
            yield


def open_store(results: Path) -> Store:
    """The store of the service for these results, in a folder that only its owner can read; raises UsageError."""
    folder = results / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for name in ("service.sqlite", "lock"):
            (folder / name).touch(mode=0o600)
            (folder / name).chmod(0o600)  # a copy may have other modes
        return Store(folder / "service.sqlite")
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"cannot use the folder {folder}: {error}") from None


def is_served(results: Path) -> bool:
    """Whether a service of these results runs on this machine: it holds the lock of the folder."""
    with contextlib.suppress(OSError), open(results / FOLDER / "lock", "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_name(name: str) -> None:
    """Raise UsageError if no token and no schedule can have this name."""
    if not re.fullmatch(NAME, name):
        raise UsageError(f"the name {name!r} must have {NAME_RULE}")


def _row(found: sqlite3.Row) -> Row:
    parsed = {name: json.loads(found[name]) for name in ("words", "settings")}
    return Row(**{**found, **parsed, "resume": bool(found["resume"]), "cancelled": bool(found["cancelled"])})
