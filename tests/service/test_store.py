"""Jobs and tokens in their file: each change is whole, one job runs at a time, and no token can be read from it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from merge_bench.errors import UsageError
from merge_bench.service.documents import StoredJob
from merge_bench.service.store import RequestRefused, ServiceStore


@pytest.fixture
def store(tmp_path: Path) -> ServiceStore:
    return ServiceStore(tmp_path / "service.sqlite")


def add(store: ServiceStore, who: str = "ci", **given: object) -> StoredJob:
    return store.add_job(who, ["run"], {}, **{"most_queued": 100, **given})[0]


def test_jobs_are_taken_in_their_order_one_at_a_time(store: ServiceStore) -> None:
    first, second = add(store), add(store)
    assert (first.state, store.count_jobs_ahead(second.id), store.count_jobs_ahead()) == ("queued", 1, 2)
    taken = store.start_next_job()
    assert taken is not None
    assert (taken.id, taken.state, taken.attempts) == (first.id, "running", 1)
    assert store.start_next_job() is None
    assert store.finish_job(first.id, 0) == "done"
    after = store.start_next_job()
    assert after is not None
    assert after.id == second.id
    assert store.finish_job(second.id, 4) == "failed"
    assert [(row.id, row.state, row.status) for row in store.list_jobs()] == [
        (second.id, "failed", 4),
        (first.id, "done", 0),
    ]


def test_the_file_itself_refuses_a_second_running_job(store: ServiceStore, tmp_path: Path) -> None:
    add(store), add(store)
    with pytest.raises(sqlite3.IntegrityError), sqlite3.connect(tmp_path / "service.sqlite") as other:
        other.execute("UPDATE jobs SET state = 'running'")


def test_threads_and_processes_take_each_job_once(store: ServiceStore, tmp_path: Path) -> None:
    for _ in range(40):
        add(store)
    other, taken = ServiceStore(tmp_path / "service.sqlite"), []

    def take(each: ServiceStore) -> None:
        while (job := each.start_next_job()) is not None or each.count_jobs_ahead():
            if job is not None:
                taken.append(job.id)
                each.finish_job(job.id, 0)

    threads = [threading.Thread(target=take, args=(each,)) for each in (store, store, other, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [row.id for row in reversed(store.list_jobs())]


def test_a_queued_job_is_cancelled_and_a_running_one_asked_to_end(store: ServiceStore) -> None:
    first, second = add(store), add(store)
    store.start_next_job()
    queued, running = store.cancel_job(second.id), store.cancel_job(first.id)
    assert queued is not None
    assert running is not None
    assert (queued.state, running.state, running.cancelled) == ("cancelled", "running", True)
    assert store.finish_job(first.id, 3) == "cancelled"
    done = store.cancel_job(first.id)
    assert done is not None
    assert done.state == "cancelled"
    assert store.cancel_job(99) is None


def test_an_interrupted_job_goes_on_only_if_it_asked_for_that_and_not_for_ever(store: ServiceStore) -> None:
    add(store)
    store.start_next_job()
    assert store.finish_job(1, None, interrupted=True) == "interrupted"
    job = add(store, resume=True)
    for _ in range(9):
        store.start_next_job()
        assert store.finish_job(job.id, None, interrupted=True) == "queued"
    store.start_next_job()
    assert store.finish_job(job.id, None, interrupted=True) == "interrupted"


def test_the_queue_has_a_limit_and_a_key_is_one_job(store: ServiceStore) -> None:
    first, new = store.add_job("ci", ["run"], {}, most_queued=1, request_key="night")
    assert new
    assert store.add_job("ci", ["run"], {}, most_queued=1, request_key="night") == (first, False)
    with pytest.raises(RequestRefused, match="which is the limit"):
        add(store, most_queued=1)
    with pytest.raises(RequestRefused, match="which is the limit"):
        add(store, "other", most_queued=1, request_key="night")
    store.start_next_job()
    assert add(store, "other", most_queued=1, request_key="night").id != first.id


def test_a_key_is_not_used_for_another_job(store: ServiceStore) -> None:
    store.add_job("ci", ["run", "--chunk=1e3"], {}, most_queued=10, request_key="nightly")
    for words, settings in ((["run", "--chunk=1e4"], {}), (["run", "--chunk=1e3"], {"UCX_TLS": "tcp"})):
        with pytest.raises(UsageError, match="another job, 1, has this key"):
            store.add_job("ci", words, settings, most_queued=10, request_key="nightly")


def test_only_the_hash_of_a_token_is_kept(store: ServiceStore, tmp_path: Path) -> None:
    token = store.add_token("ci", "run")
    assert len(token) >= 43
    found = store.find_token(token)
    assert found is not None
    assert (found.name, found.role) == ("ci", "run")
    for wrong in ("", token[:-1], token + "x", token.swapcase(), "\udcff"):
        assert store.find_token(wrong) is None
    store.close()
    for file in tmp_path.iterdir():
        assert token.encode() not in file.read_bytes()
    store = ServiceStore(tmp_path / "service.sqlite")
    with pytest.raises(UsageError, match="already a token"):
        store.add_token("ci", "read")
    store.remove_token("ci")
    assert store.find_token(token) is None
    with pytest.raises(UsageError, match="no token"):
        store.remove_token("ci")


def test_the_file_stays_the_same_when_it_is_opened_again_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "service.sqlite"
    first = ServiceStore(file)
    add(first)
    first.close()
    second = ServiceStore(file)
    assert second.instance == first.instance
    assert len(second.list_jobs()) == 1
    assert second.find_file_damage() is None
    second.close()
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="newer version"):
        ServiceStore(file)


def test_a_change_that_fails_leaves_nothing(store: ServiceStore) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.add_token("ci", "owner")
    assert store.list_tokens() == []
    assert store.add_token("ci", "read")
