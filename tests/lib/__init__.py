"""What tests share, by topic."""
