"""The event log, snapshots and blobs, on SQLite, PostgreSQL or memory. Touches the disk or the database; decides nothing."""
