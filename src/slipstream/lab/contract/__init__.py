"""What plan, manifest, records and runtimes are; everything else of the lab rests on it."""
