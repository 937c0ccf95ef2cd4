"""The Content-Security-Policy of a page of the dashboard: a second defence behind the escaping of every text.

Scripts run if they come from this server or carry the page's nonce; handlers in markup do not run, and nothing is sent
elsewhere. So no part of a page may use CustomJS, `ReactiveHTML` or Panel's `FlexBox`, which need `eval`. In a notebook,
JupyterLab owns the page and sets the policy.
"""

from __future__ import annotations

import secrets
from importlib import resources

from bokeh.document import Document

from merge_bench.dashboard import style_sheets

_TEMPLATE = (resources.files("merge_bench.dashboard") / "templates" / "page.html.j2").read_text(encoding="utf-8")


def set_policy(document: Document) -> None:
    """Give the page of `document` its policy, with a new random nonce."""
    document.template_variables.update(nonce=secrets.token_urlsafe(18), css=style_sheets.PAGE)
    document.template = _TEMPLATE  # type: ignore[assignment]  # Text extends the usual page.
