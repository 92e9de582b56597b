"""Train a drafter or a drafting head for a model of yours; see docs/heads.md."""
