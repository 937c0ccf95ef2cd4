"""The compiled hash join of one bucket, for the engine `native`.

The left rows of a bucket are entered into a table of chains, and the right rows are looked up in it. For a bucket of
65,000 rows a side, what is read in random order (heads, links and left keys) is about the size of the L2 cache. The
processor works on many look-ups at once: the first loop finds without a branch, by a tag of three further bits of the
hash, which right rows can have a match at all (after the tagged chain heads of Leis et al.,
"Morsel-Driven Parallelism", SIGMOD 2014, section 4.2).

Rows are entered and looked up by 64 bits. A single key of up to 8 bytes is used as it is. Several such keys are folded
into 64 bits, all others are hashed; of the pairs of rows that are found, those with equal keys are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from merge_bench.merge.buffer_pool import BufferPool, aligned
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.hash_join_loops import (
    build_chains,
    find_candidates,
    fold,
    follow_chains,
    gather,
    gather_bytes,
    gather_offsets,
    keep_equal,
)
from merge_bench.merge.frame import Array, Bytes, Column, Field, Frame
from merge_bench.merge.hashing import BLOCK, RowHasher

MOST_ROWS = (1 << 24) - 2
"""Most left rows of a table: a head has 24 bits for the row and 8 for tags."""

_Part: TypeAlias = tuple[Frame, slice]
"""A chunk of right rows, and which of the pairs found belong to it."""


def chain_bits(rows: int) -> int:
    """Bits of a slot number in the table of so many left rows: a power of two above 1.25 × rows, at least 16 slots."""
    return max(4, int(1.25 * rows).bit_length())


class BucketJoin:
    """Joins bucket after bucket with the same scratch memory; for use by one thread.

    Parameters
    ----------
    shape
        Its keys are columns of one type on both sides, without nulls, and none is a float: values are equal where their
        bytes are.
    """

    def __init__(self, shape: JoinShape) -> None:
        self._left, self._right, self._output = shape.left, shape.right, shape.output
        self._left_keys, self._right_keys = (shape.key_places(side) for side in Side)
        self._fixed = all(0 < shape.left[at].width <= 8 for at in self._left_keys)
        # With fixed keys, the words of two rows with equal other keys are equal only if the last keys are.
        self._compared = self._left_keys[:-1] if self._fixed else self._left_keys
        self._hasher = RowHasher()
        self._heads = np.zeros(0, np.uint32)
        self._links = self._entered = np.zeros(0, np.uint64)
        self._hashes: Array = np.zeros(0, np.uint64)
        self._found: list[Array] = [np.zeros(0, np.int32)] * 4
        self._rooms: dict[str, Bytes] = {}

    def join(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """The matching rows, a piece at a time, in memory of `out`.

        `left`, `right`: the bucket's rows in chunks.
        """
        rows = sum(chunk.rows for chunk in left)
        if not rows:
            return
        shift = self._enter(left, rows)
        compared = {at: self._contiguous(left, at, f"key {at}") for at in self._compared}
        candidates, entries, lefts, rights = self._room_for_pairs(rows, right)
        parts: list[_Part] = []
        pairs = 0
        for chunk in right:
            words = self._words(chunk, self._right, self._right_keys)
            count = find_candidates(words, shift, self._heads, candidates, entries)
            while count:
                if pairs + count > lefts.size:
                    yield from self._pieces(left, parts, lefts, rights, out)
                    parts, pairs = [], 0
                ours, theirs = lefts[pairs:], rights[pairs:]
                found, count = follow_chains(
                    words, candidates, entries, count, self._links, self._entered, ours, theirs
                )
                for at, key in zip(self._left_keys, self._right_keys, strict=True):
                    if at in compared:
                        found = keep_equal(compared[at], chunk.columns[key], ours[:found], theirs[:found])
                if found:
                    parts.append((chunk, slice(pairs, pairs + found)))
                    pairs += found
        yield from self._pieces(left, parts, lefts, rights, out)

    def _enter(self, left: Sequence[Frame], rows: int) -> Any:
        bits = chain_bits(rows)
        if self._heads.size < 1 << bits:
            self._heads = np.zeros(1 << bits, np.uint32)
        if self._entered.size < rows:
            self._links, self._entered = np.empty(rows, np.uint32), np.empty(rows, np.uint64)
        self._heads[: 1 << bits] = 0
        shift, first = np.uint64(64 - bits), 0
        for chunk in left:
            build_chains(
                self._words(chunk, self._left, self._left_keys), first, shift, self._heads, self._links, self._entered
            )
            first += chunk.rows
        return shift

    def _words(self, chunk: Frame, fields: Sequence[Field], keys: Sequence[int]) -> Array:
        """The 64 bits of each row; valid until the next call."""
        if self._fixed and len(keys) == 1:
            return chunk.columns[keys[0]].values
        if self._hashes.size < chunk.rows:
            self._hashes = np.empty(chunk.rows, np.uint64)
        if self._fixed:
            words = chunk.columns[keys[0]].values
            for at in keys[1:]:
                fold(words, chunk.columns[at].values, self._hashes[: chunk.rows])
                words = self._hashes[: chunk.rows]
            return words
        columns = [(fields[at], replace(chunk.columns[at], valid=None)) for at in keys]
        for start in range(0, chunk.rows, BLOCK):
            hashes, _ = self._hasher.block(columns, start, min(BLOCK, chunk.rows - start))
            self._hashes[start : start + hashes.size] = hashes
        return self._hashes[: chunk.rows]

    def _contiguous(self, left: Sequence[Frame], at: int, room: str) -> Column:
        """A left column as one chunk, which stays valid until the next column goes into the same `room`."""
        chunks = [chunk.columns[at] for chunk in left]
        offsets = [chunk.offsets for chunk in chunks if chunk.offsets is not None]
        valids = [chunk.valid for chunk in chunks if chunk.valid is not None]
        return Column(
            self._joined([chunk.values for chunk in chunks], f"values of {room}"),
            self._joined_offsets(offsets, f"offsets of {room}") if offsets else None,
            self._joined(valids, f"validity of {room}") if valids else None,
        )

    def _joined(self, chunks: list[Array], name: str) -> Array:
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks, out=self._room(chunks, name))

    def _joined_offsets(self, chunks: list[Array], name: str) -> Array:
        if len(chunks) == 1:
            return chunks[0]
        room, rows = self._room(chunks, name), 0
        room[0] = 0
        for chunk in chunks:
            np.add(chunk[1:], room[rows], out=room[rows + 1 : rows + chunk.size])
            rows += chunk.size - 1
        return room[: rows + 1]

    def _room(self, chunks: list[Array], name: str) -> Array:
        size = sum(chunk.nbytes for chunk in chunks)
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = aligned(size)
        return self._rooms[name][:size].view(chunks[0].dtype)

    def _room_for_pairs(self, rows: int, right: Sequence[Frame]) -> list[Array]:
        """Candidates of a chunk and their entries, and the left and right rows of pairs.

        There is room for as many pairs as either side has rows. So of n pairs with `rows` left rows, at most n / `rows`
        times are the pieces made, and the left columns copied.
        """
        each = [chunk.rows for chunk in right]
        sizes = [max(each, default=0) + 1] * 2 + [max(rows, sum(each)) + 1] * 2
        self._found = [
            room if room.size >= size else np.empty(size, np.int32)
            for room, size in zip(self._found, sizes, strict=True)
        ]
        return self._found

    def _pieces(
        self, left: Sequence[Frame], parts: Sequence[_Part], lefts: Array, rights: Array, out: BufferPool
    ) -> Iterator[Frame]:
        """A piece for each of `parts`. Column by column, because a copied left column stays in the cache until then."""
        if not parts:
            return
        keys = dict(zip(self._left_keys, self._right_keys, strict=True))
        columns: list[list[Column]] = []  # for each field, a column of every piece
        for at in range(len(self._left)):
            if at in keys:  # from the right, where keys are read in order
                columns.append([take_rows(chunk.columns[keys[at]], rights[pairs], out) for chunk, pairs in parts])
            else:
                column = self._contiguous(left, at, "payload")
                columns.append([take_rows(column, lefts[pairs], out) for _, pairs in parts])
        for at in range(len(self._right)):
            if at not in self._right_keys:
                columns.append([take_rows(chunk.columns[at], rights[pairs], out) for chunk, pairs in parts])
        for (_, pairs), taken in zip(parts, zip(*columns, strict=True), strict=True):
            yield Frame(self._output, taken, pairs.stop - pairs.start)


def take_rows(column: Column, rows: Array, out: BufferPool) -> Column:
    """The given rows of a column, in memory of `out`."""
    valid = None
    if column.valid is not None:
        valid = out.take(rows.size)
        gather(column.valid, rows, valid)
    if column.offsets is not None:
        offsets = out.take((rows.size + 1) * 8).view(np.int64)
        data = out.take(gather_offsets(column.offsets, rows, offsets))
        gather_bytes(column.values, column.offsets, rows, offsets, data)
        return Column(data, offsets, valid)
    values = out.take(rows.size * column.values.itemsize).view(column.values.dtype)
    gather(column.values, rows, values)
    return Column(values, None, valid)
