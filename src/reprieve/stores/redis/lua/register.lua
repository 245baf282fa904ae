-- Registers a client: returns the store's schema version and its number of partitions, which only grows.
--
-- needs calls: tag, call, max
-- KEYS     1: the first partition
-- ARGV     1: the schema version that the caller knows  2: how many partitions it wants at least, or 0
--          3: how many a new store has by default
-- Returns: {schema version, partitions}; nothing is written if the stored version is newer

local known, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = call('HMGET', tag .. ':meta', 'schema_version', 'partitions')
local version, partitions = tonumber(found[1] or known), tonumber(found[2] or 0)
local count = max(partitions, wanted, partitions == 0 and wanted == 0 and tonumber(ARGV[3]) or 1)
if version <= known and (not found[1] or count ~= partitions) then
  call('HSET', tag .. ':meta', 'schema_version', known, 'partitions', count)
end
return {version, count}
