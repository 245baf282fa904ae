-- Registers a client: returns the number of partitions, which only grows. A new store gets the caller's schema version.
--
-- needs calls: tag, call, max
-- KEYS     1: the first partition
-- ARGV     1: the schema version that the caller knows  2: how many partitions it wants at least, or 0
--          3: how many a new store has by default  4 to 6: the lowest schema version whose releases can use a store that
--          the caller makes, the first such release, and the release of the caller
-- Returns: how many partitions there are

local wanted = tonumber(ARGV[2])
local found = call('HMGET', tag .. ':meta', 'schema_version', 'partitions')
local partitions = tonumber(found[2] or 0)
local count = max(partitions, wanted, partitions == 0 and wanted == 0 and tonumber(ARGV[3]) or 1)
if not found[1] then
  call('HSET', tag .. ':meta', 'schema_version', ARGV[1], 'oldest_schema', ARGV[4], 'oldest_release', ARGV[5], 'migrated_by', ARGV[6])
end
if count ~= partitions then
  call('HSET', tag .. ':meta', 'partitions', count)
end
return count
