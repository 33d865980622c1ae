"""The database of a run: schema, migrations, journal and versions."""
