-- Adds notices to the stream.
--
-- needs calls: write_even_when_full
-- needs events: record_events
-- KEYS     1: the partition
-- ARGV     1: the time of the latest  2 …: the notices
-- Returns: 'ok'

local told = {}
for number = 2, #ARGV do
  told[#told + 1], told[#told + 2] = '', ARGV[number]
end
write_even_when_full()
record_events(told, tonumber(ARGV[1]))
return 'ok'
