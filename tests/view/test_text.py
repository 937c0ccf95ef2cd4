"""Texts from records on a page."""

from __future__ import annotations

import pytest

from merge_bench.view.text import as_html, keep_cli_options_unbroken


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("with --wait-for-quiet 5m", 'with <span class="unbroken">--wait-for-quiet 5m</span>'),
        ("(--pipeline on)", '(<span class="unbroken">--pipeline</span> on)'),
        ("a--b and get-zcopy", "a--b and get-zcopy"),
        ("--x<b>", '<span class="unbroken">--x</span>&lt;b&gt;'),
    ],
)
def test_no_line_ends_within_an_option(text: str, whole: str) -> None:
    assert keep_cli_options_unbroken(as_html(text)) == whole
