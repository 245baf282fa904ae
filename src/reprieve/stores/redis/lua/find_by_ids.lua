-- Returns jobs by their ids.
--
-- needs calls: split
-- needs stored_jobs: read_stored
-- KEYS     1: the partition
-- ARGV     1: ids, 16 bytes each
-- Returns: see `add_stored`

return read_stored(split(ARGV[1], 16))
