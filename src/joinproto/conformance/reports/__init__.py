"""The reports of a run, all made from its record."""

from __future__ import annotations

from pathlib import Path

from joinproto.conformance.reports import badge, html, junit, markdown, pcaps
from joinproto.conformance.results import Record


def write_all(record: Record, directory: Path, *, non_strict: bool = False) -> list[Path]:
    """Write every report into `directory`, which is made where there is none.

    | file | what it is |
    | --- | --- |
    | `junit.xml` | for CI systems |
    | `report.html` | for people, without a network |
    | `summary.md` | for the page of a CI job |
    | `badge.svg`, `badge.json` | a badge, and the endpoint that shields.io draws one from |
    | `pcap/*.pcap` | a capture for each case that failed |

    Args:
        record: the run; one that was cut short has reports as well, which say so.
        directory: where to; files of these names in it are overwritten.
        non_strict: cases that came to NON-STRICT have a capture too.

    Returns:
        The files that were written.

    Raises:
        OSError: one of them cannot be.
    """
    contents = {
        "junit.xml": junit.render(record),
        "report.html": html.render(record, non_strict=non_strict).encode(),
        "summary.md": markdown.render(record).encode(),
        "badge.svg": badge.svg(record).encode(),
        "badge.json": badge.endpoint(record).encode(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in contents.items():
        written.append(directory / name)
        written[-1].write_bytes(content)
    return written + pcaps.write(record, directory / pcaps.FOLDER, non_strict=non_strict)
