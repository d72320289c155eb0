"""A report as JSON: the whole analysis, with the version of its keys."""

from __future__ import annotations

import msgspec

from slipstream.lab.reporting.analysis_data import Analysis


def report_json(analysis: Analysis) -> bytes:
    """Indented; keys in the order of the structs, tables sorted; ends with a newline."""
    raw = msgspec.json.encode(analysis, order="deterministic")
    return msgspec.json.format(raw, indent=1) + b"\n"
