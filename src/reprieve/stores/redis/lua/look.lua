-- Returns jobs by their ids, as they are.
--
-- needs: calls forgotten record rate limits places line events settle look_part
-- KEYS  1: the partition
-- ARGV  1: ids
-- Returns: see look_part.lua

return look(split(ARGV[1], 16))
