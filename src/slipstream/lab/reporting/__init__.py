"""From records to a report, byte for byte."""
