-- Keeps what groups of failures look like; of a group that is kept already, only when it was last seen.
--
-- needs calls: tag, call
-- KEYS     1: the partition
-- ARGV     for each group: its fingerprint, when it was last seen, its record
-- Returns: nothing

for number = 1, #ARGV, 3 do
  call('HSETNX', tag .. ':failures', ARGV[number], ARGV[number + 2])
  call('ZADD', tag .. ':failures_seen', 'GT', ARGV[number + 1], ARGV[number])
end
