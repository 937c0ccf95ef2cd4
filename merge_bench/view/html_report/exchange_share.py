"""The part of the report about merges beside `probe all-to-all`: what of the network's bandwidth an exchange gets."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.analysis import exchange_share
from merge_bench.analysis.exchange_share import ExchangeShare
from merge_bench.records.campaign import Campaign
from merge_bench.view.html_report.results import Source
from merge_bench.view.numbers import NULL, binary, number
from merge_bench.view.report.content import Page, by_row

PARTS = (
    "Parts of the exchange phase, on its slowest worker in the median iteration. At all-to-all rate: bytes ÷ what the"
    " network carried in probe all-to-all. Slower transfers: what transfers took beyond that. Waiting: until the last"
    " worker had partitioned. Rest: headers, barriers, room for what arrives."
)
NONE = (
    "No all-to-all belongs to a merge here: config, hosts, number of workers and message size have to be the same."
    " Measure it with probe all-to-all --chunk ROWS."
)


def write_exchange_share(page: Page, sources: Sequence[Source], probes: Sequence[Campaign]) -> None:
    """A section for merges and all-to-all that belong together, if both are there."""
    measured = [campaign for campaign in probes if campaign.probe == exchange_share.PROBE]
    if not measured or not sources:
        return
    page.section("Exchange and all-to-all")
    found = [(source, share) for source in sources if (share := exchange_share.find(source.run, measured)) is not None]
    if not found:
        page.line(NONE)
        return
    page.table(
        *by_row(
            ("Run", "Workers", "All-to-all\n(GB/s a worker)", "measured with", "Exchange of\nthe merge (GB/s)",
             "of all-to-all"),
            [(source.label, str(source.run.plan.workers), *_rates(share)) for source, share in found], (0, 3),
        )
    )  # fmt: skip
    apart = [(source, share) for source, share in found if share.phase is not None]
    if apart:
        page.table(
            *by_row(
                ("Run", "Exchange\nphase (ms)", "at all-to-all\nrate (ms)", "slower\ntransfers (ms)", "waiting\n(ms)",
                 "rest (ms)", "of all-to-all"),
                [(source.label, *_parts(share)) for source, share in apart], (0,),
            )
        )  # fmt: skip
        page.line(PARTS, "dim")
    if len(apart) < len(found):
        page.line("With --pipeline on, the exchange overlaps partition and join and has no phase of its own.", "dim")


def _rates(share: ExchangeShare) -> tuple[str, str, str, str]:
    messages = f"{'the same parcels' if share.parcels else 'equal messages'} ({binary(share.size)})"
    return number(share.all_to_all / 1e9), messages, number(share.exchange / 1e9), f"{share.share:.0%}"


def _parts(share: ExchangeShare) -> list[str]:
    seconds = (share.phase, share.ideal, share.slower, share.waiting, share.other)
    part = share.share_of_phase
    return [
        *(number(None if each is None else each * 1e3) for each in seconds),
        NULL if part is None else f"{part:.0%}",
    ]
