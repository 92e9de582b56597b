"""The ops, by topic: every op is defined once, here."""
