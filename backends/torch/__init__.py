"""The torch backend: generated drivers and fx segments over the engines of runtime/models/engine."""
