"""What a page of the view may do, told to the browser: a second line behind the escaping of every text.

Scripts run if they come from this server or carry the page's own random word; handlers in markup do not, and nothing
is sent anywhere else. In a notebook the page is somebody else's, and so is its policy.
"""

from __future__ import annotations

import secrets
from importlib import resources

from bokeh.document import Document

_TEMPLATE = (resources.files("merge_bench.view.dashboard") / "templates" / "page.html.j2").read_text(encoding="utf-8")


def restrict(document: Document) -> None:
    """Give the page of `document` its policy, with a word that nobody else knows."""
    document.template_variables["nonce"] = secrets.token_urlsafe(18)
    document.template = _TEMPLATE  # type: ignore[assignment]  # Text extends the usual page.
