"""Random work for engines, and the interfaces of foreign ones."""
