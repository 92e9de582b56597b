"""The torch forms of ops in a step, by the topics of ir/ops."""
