"""What a drill knows of consumers: their load, its ledger, and what was promised to them."""
