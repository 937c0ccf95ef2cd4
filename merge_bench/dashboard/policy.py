"""What a page of the view may do, told to the browser: a second line behind the escaping of every text.

Scripts run if they come from this server or carry the page's own random word; handlers in markup do not, and nothing
is sent anywhere else. In a notebook the page is somebody else's, and so is its policy.
"""

from __future__ import annotations

import secrets

from bokeh.document import Document

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'nonce-{{ nonce }}'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_NAMED = 'replace("<script", "<script nonce=" ~ nonce)'
_TEMPLATE = f"""
{{% from macros import embed %}}
{{% block preamble %}}<meta http-equiv="Content-Security-Policy" content="{_POLICY}">{{% endblock %}}
{{% block js_resources %}}{{{{ bokeh_js | {_NAMED} }}}}{{% endblock %}}
{{% block inner_body %}}
{{% for doc in docs %}}{{{{ embed(doc) if doc.elementid }}}}
{{% for root in doc.roots %}}{{{{ embed(root) }}}}{{% endfor %}}{{% endfor %}}
{{{{ plot_script | {_NAMED} }}}}
{{% endblock %}}
"""


def restrict(document: Document) -> None:
    """Give the page of `document` its policy, with a word that nobody else knows."""
    document.template_variables["nonce"] = secrets.token_urlsafe(18)
    document.template = _TEMPLATE  # type: ignore[assignment]  # Text extends the usual page.
