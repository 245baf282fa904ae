-- Runs the exclusion on cases that a test has drawn, and returns what became of each. For tests only.
--
-- needs exclusion: new_exclusion, jump, look_again_at
-- KEYS     1: any name
-- ARGV     1: cases (msgpack): see test_exclusion_matches_core.py
-- Returns: for each how many candidates its jumps leave out, and when it looks again (msgpack)

local results = {}
for number, case in ipairs(cmsgpack.unpack(ARGV[1])) do
  local exclusion = new_exclusion({}, case.tenants, case.lanes, case.settings)
  exclusion.has_skipped = case.has_skipped
  local first = case.jumps and jump(exclusion, case.count)
  local second = case.jumps and jump(exclusion, case.count)
  results[number] = {first or false, second or false, look_again_at(exclusion, case.now, case.has_picks) or false}
end
return cmsgpack.pack(results)
