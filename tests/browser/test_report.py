"""The page of `report`, made from records of the real commands, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.view.report.full import html
from merge_bench.view.report.full.build import References, build
from tests.browser.conftest import Open

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["run", "sweep", "tune", "p2p"])
def test_the_contents_stay_in_sight_and_the_page_fits_the_window(
    kind: str, scheme: str, tmp_path: Path, window: Open
) -> None:
    path = tmp_path / "report.html"
    path.write_text(html.render(build([read_campaign(CAMPAIGNS / kind)], References(), None)))
    view = window(path.as_uri())
    view.complaints.clear()  # the page itself is a file, which no server serves
    page = view.page
    page.emulate_media(color_scheme=scheme)
    contents = page.get_by_role("navigation", name="Contents")
    for width in (1400, 900):
        page.set_viewport_size({"width": width, "height": 900})
        view.wait_until("document.documentElement.scrollWidth <= window.innerWidth")
        page.evaluate("window.scrollTo(0, 0)")
        view.picture(f"report-{kind}-{scheme}-{width}")
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        view.wait_until("document.querySelector('nav').getBoundingClientRect().top >= 0")
        box = contents.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
        assert contents.get_by_role("link", name="Environment").is_visible() is (width == 1400)
    contents.get_by_text("Contents").click()
    contents.get_by_role("link", name="Definitions").click()
    page.get_by_text("A null key matches nothing.").wait_for()  # the link opened what was folded
    assert not contents.get_by_role("link", name="Definitions").is_visible()
