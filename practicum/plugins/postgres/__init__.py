"""Store backend for PostgreSQL: runs, the search index of their entries, and the data of a service."""
