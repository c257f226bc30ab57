"""The jobs of `tandem pipeline`: archive, replay, audit, stats, compact and scrub."""
